SET execution.checkpointing.interval = 10s;
SET table.exec.mini-batch.enabled = true;
SET table.exec.mini-batch.allow-latency = 500 ms;
SET table.exec.mini-batch.size = 100;
USE CATALOG default_catalog;
CREATE TABLE default_catalog.default_database.product (id BIGINT, name STRING, kind STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE by_name (name STRING PRIMARY KEY NOT ENFORCED, n BIGINT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'by-name', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE by_kind (kind STRING PRIMARY KEY NOT ENFORCED, total INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'by-kind', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
EXECUTE STATEMENT SET BEGIN
  INSERT INTO by_name SELECT name, COUNT(*) FROM product GROUP BY name;
  INSERT INTO by_kind SELECT kind, SUM(cnt) FROM default_catalog.default_database.product GROUP BY kind;
END;
