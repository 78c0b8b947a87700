-- The same with a derived table.
CREATE TABLE product (id BIGINT, name STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE totals (cnt_total INT PRIMARY KEY NOT ENFORCED, names BIGINT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'totals', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO totals
SELECT total, COUNT(*) FROM (SELECT name, SUM(cnt) AS total FROM product WHERE cnt > 1 GROUP BY name) AS per_name
GROUP BY total;
