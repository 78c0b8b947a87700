"""Flink SQL with several queries over one topic, in one statement set.

topic ──► one source ─┬─► aggregate of view 1 ──► result topic 1
                      └─► aggregate of view 2 ──► result topic 2   all in one job
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.flink.peer import FlinkJob, source_table, with_options


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """A query with one group column; `columns` are those of its results, as Flink declares them."""

    query: str
    key: str
    columns: dict[str, str]


@dataclass(slots=True)
class FlinkStatementSet(FlinkJob):
    """The first view writes to `sink_topic`, the others to topics beside it."""

    views: dict[str, ViewQuery] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return [self.sink_topic, *(f"{self.sink_topic}-{name}" for name in list(self.views)[1:])]

    def script(self, *, bounded: bool) -> str:
        tables, inserts = [], []
        for topic, (name, view) in zip(self.topics, self.views.items(), strict=True):
            options = {**self._sink_options(), "topic": topic}
            if "sink.transactional-id-prefix" in options:  # two sinks of one prefix would collide
                options["sink.transactional-id-prefix"] = topic
            declared = ", ".join(f"{column} {kind}" for column, kind in view.columns.items())
            tables.append(
                f"CREATE TABLE `{name}` ({declared}, PRIMARY KEY ({view.key}) NOT ENFORCED) "
                f"WITH ({with_options(options)});\n"
            )
            inserts.append(f"INSERT INTO `{name}` {view.query};")
        # The bench's main splits statements at line ends, so the set is one line.
        together = f"EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END;\n"
        source = source_table(self.columns, self.brokers, self.topic, bounded=bounded)
        return source + "".join(tables) + together
