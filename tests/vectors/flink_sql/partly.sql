-- What is taken is written; what is not has its place.
CREATE TABLE product (name STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE items (name STRING PRIMARY KEY NOT ENFORCED, n BIGINT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'items', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE more (name STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO items SELECT name, COUNT(*) FROM product GROUP BY name;
INSERT INTO more SELECT name,
  COUNT(*) + RAND() FROM product GROUP BY name;
