SET 'table.exec.state.ttl' = '1 d';
CREATE TABLE product (name STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE items (name STRING PRIMARY KEY NOT ENFORCED, top INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'items', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO items SELECT name, MAX(cnt) FROM product GROUP BY name;
