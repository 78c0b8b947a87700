-- An aggregate of an aggregate is two jobs.
CREATE TABLE product (id BIGINT, name STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE sizes (n BIGINT PRIMARY KEY NOT ENFORCED, names BIGINT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'sizes', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE VIEW per_name AS SELECT name, COUNT(*) AS n FROM product GROUP BY name;
INSERT INTO sizes SELECT n, COUNT(*) FROM per_name GROUP BY n;
