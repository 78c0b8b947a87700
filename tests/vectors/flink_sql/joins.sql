-- Joins of two tables, directly and behind a view; the expiry of Flink's join has no counterpart.
SET 'table.exec.state.ttl' = '1 d';
CREATE TABLE orders (id BIGINT, customer_id BIGINT, amount DECIMAL(10, 2), doubled AS amount * 2, at TIMESTAMP(3),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'kafka', 'topic' = 'shop', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json', 'canal-json.table.include' = 'orders');
CREATE TABLE customers (id BIGINT, region STRING, active BOOLEAN, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'customers', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE revenue (region STRING, total DECIMAL(38, 2), n BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'revenue', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE shown (region STRING, total DECIMAL(38, 2), n BIGINT) WITH ('connector' = 'print');
CREATE VIEW sold AS SELECT c.region, o.doubled - 1 AS net, o.amount FROM orders AS o JOIN customers AS c ON o.customer_id = c.id WHERE c.active;
INSERT INTO revenue SELECT c.region, SUM(o.amount), COUNT(*) FROM orders AS o LEFT JOIN customers AS c ON o.customer_id = c.id AND c.active GROUP BY c.region;
INSERT INTO shown SELECT s.region, SUM(s.net), COUNT(*) FROM sold AS s WHERE s.amount > 3 GROUP BY s.region;
