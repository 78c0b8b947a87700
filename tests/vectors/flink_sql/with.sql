CREATE TABLE orders (id BIGINT, shop STRING, amount INT, price INT) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE totals (shop STRING, total INT) WITH ('connector' = 'print');
CREATE TABLE shops (total INT, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE dear (shop STRING, n BIGINT) WITH ('connector' = 'print');
CREATE VIEW big AS WITH shown (name, cost) AS (SELECT UPPER(shop), amount * price FROM orders)
SELECT name, cost FROM shown WHERE cost >= 10;
INSERT INTO totals WITH paid AS (SELECT shop, amount FROM orders WHERE amount > 1),
  named AS (SELECT LOWER(shop) AS shop, amount FROM paid)
SELECT shop, SUM(amount) FROM named GROUP BY shop;
INSERT INTO shops WITH paid AS (SELECT shop, SUM(amount) AS total FROM orders GROUP BY shop)
SELECT total, COUNT(*) FROM paid GROUP BY total;
INSERT INTO dear SELECT name, COUNT(*) FROM big GROUP BY name;
INSERT INTO dear WITH RECURSIVE r AS (SELECT shop FROM orders) SELECT shop, COUNT(*) FROM r GROUP BY shop;
INSERT INTO dear SELECT shop, COUNT(*) FROM (WITH w AS (SELECT shop FROM orders) SELECT shop FROM w) GROUP BY shop;
CREATE VIEW twice AS WITH big AS (SELECT shop FROM orders) SELECT shop FROM big;
