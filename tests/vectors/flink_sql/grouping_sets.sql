CREATE TABLE orders (shop STRING, customer STRING, amount INT, paid BOOLEAN) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE sums (shop STRING, customer STRING, total INT, paid BIGINT, customers BIGINT, kind STRING) WITH ('connector' = 'print');
INSERT INTO sums
SELECT shop, customer, SUM(amount), COUNT(*) FILTER (WHERE paid), APPROX_COUNT_DISTINCT(customer),
  CASE WHEN SUM(amount) > 10 THEN 'much' ELSE 'little' END
FROM orders
WHERE amount IS NOT NULL AND (paid OR amount < 1000)
GROUP BY GROUPING SETS ((shop, customer), (shop))
HAVING COUNT(*) > 0;
