-- The job of docs/flink.md.
SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '1 s';
SET 'table.exec.mini-batch.size' = '5000';

CREATE TABLE product (
  id BIGINT, name STRING, cnt INT, updated_at TIMESTAMP(3),
  WATERMARK FOR updated_at AS updated_at - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'shop.product', 'properties.bootstrap.servers' = 'localhost:9092',
  'properties.group.id' = 'items', 'scan.startup.mode' = 'earliest-offset',
  'scan.watermark.idle-timeout' = '30 s',
  'format' = 'canal-json', 'canal-json.database.include' = 'shop', 'canal-json.table.include' = 'product',
  'canal-json.timestamp-format.standard' = 'SQL'
);
CREATE TABLE items (name STRING, total INT, top INT, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'items-changes', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json', 'sink.parallelism' = '4'
);
INSERT INTO items SELECT name, SUM(cnt), MAX(cnt), COUNT(*) FROM product GROUP BY name;
