CREATE TABLE orders (order_id BIGINT, product STRING, amount INT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE latest (product STRING PRIMARY KEY NOT ENFORCED, order_id BIGINT, amount INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'latest', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE sums (amount INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'sums', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE top1 (product STRING PRIMARY KEY NOT ENFORCED, amount INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'top1', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE VIEW dearest AS
SELECT product, amount FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY amount DESC) AS row_num FROM orders
) WHERE row_num <= 1 AND amount > 2;
INSERT INTO latest
SELECT product, order_id, amount FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY at DESC) AS row_num
  FROM orders
) WHERE row_num = 1;
INSERT INTO sums SELECT amount, COUNT(*) FROM dearest GROUP BY amount;
INSERT INTO top1 SELECT * FROM dearest;
INSERT INTO top1 SELECT product, amount FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY amount DESC) AS n FROM orders) WHERE n <= 2;
INSERT INTO top1 SELECT product, MAX(n) FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY amount DESC) AS n FROM orders) WHERE n = 1 GROUP BY product;
INSERT INTO sums SELECT o.amount, COUNT(*) FROM orders o JOIN (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY amount DESC) AS n FROM orders) AS r ON o.order_id = r.order_id GROUP BY o.amount;
