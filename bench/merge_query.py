"""Plain Spark as a peer: foreachBatch aggregates the batch and MERGEs it into a Delta table.

    topic ─► from_json ─► signed rows ─► SUM and COUNT of the batch ─► MERGE by name

python -m bench.merge_query BROKERS TOPIC TABLE ──► a line of JSON for each batch

It is the usual handwritten solution. It has only SUM and COUNT: MERGE cannot compute a MAX that
decreases after a delete from the batch and the old result. It publishes nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from jobs.edge.spark.session import session

ROWS_MAX = 200_000
_ROW = StructType([StructField("name", StringType()), StructField("cnt", StringType())])
_MESSAGE = StructType(
    [
        StructField("type", StringType()),
        StructField("data", ArrayType(_ROW)),
        StructField("old", ArrayType(_ROW)),
    ]
)


def make_signed_rows(messages: DataFrame) -> DataFrame:
    """Return each inserted and deleted row with its contribution to SUM and COUNT."""
    parsed = messages.select(
        F.from_json(F.col("value").cast("string"), _MESSAGE).alias("m")
    ).select("m.type", F.col("m.data")[0].alias("new"), F.col("m.old")[0].alias("old"))
    new_cnt = F.col("new.cnt").cast("long")
    sign = F.when(F.col("type") == "DELETE", -1).otherwise(1)
    arrived = parsed.select(
        F.col("new.name").alias("name"), (new_cnt * sign).alias("total"), sign.alias("n")
    )
    updated = parsed.where(F.col("type") == "UPDATE")
    gone = updated.select(
        F.coalesce("old.name", "new.name").alias("name"),
        (-F.coalesce(F.col("old.cnt").cast("long"), new_cnt)).alias("total"),
        F.lit(-1).alias("n"),
    )
    return arrived.unionByName(gone)


def main(brokers: str, topic: str, table: str) -> None:
    from delta.tables import DeltaTable

    spark = session("merge", memory="2g", delta=True)
    spark.createDataFrame([], "name STRING, total LONG, n LONG").write.format("delta").save(table)
    target = DeltaTable.forPath(spark, table)
    processed = 0

    def merge(messages: DataFrame, batch: int) -> None:
        nonlocal processed
        began = time.time()
        rows = messages.count()
        deltas = (
            make_signed_rows(messages)
            .groupBy("name")
            .agg(F.sum("total").alias("total"), F.sum("n").alias("n"))
        )
        (
            target.alias("t")
            .merge(deltas.alias("d"), "t.name = d.name")
            .whenMatchedDelete("t.n + d.n = 0")
            .whenMatchedUpdate(set={"total": "t.total + d.total", "n": "t.n + d.n"})
            .whenNotMatchedInsert(
                condition="d.n <> 0", values={"name": "d.name", "total": "d.total", "n": "d.n"}
            )
            .execute()
        )
        processed += rows
        line = {
            "batch": batch,
            "rows": rows,
            "processed": processed,
            "began": began,
            "ended": time.time(),
        }
        print(json.dumps(line), flush=True)

    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(ROWS_MAX))
        .load()
        .writeStream.foreachBatch(merge)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="merge-", dir=f"{table}/.."))
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
