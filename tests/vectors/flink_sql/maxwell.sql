SET 'table.exec.source.cdc-events-duplicate' = 'true';
CREATE TABLE product (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, cnt INT, `at` TIMESTAMP) WITH (
  'connector' = 'kafka', 'topic' = 'one;two', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'maxwell-json', 'maxwell-json.timestamp-format.standard' = 'ISO-8601'
);
CREATE TABLE items (name STRING, total INT) WITH (
  'connector' = 'kafka', 'topic' = 'items', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'debezium-json'
);
INSERT INTO items SELECT p.name, SUM(p.cnt) FROM product p GROUP BY p.name;
