CREATE TABLE orders (id BIGINT, shop STRING, amount INT, price INT, cost AS amount * price) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE VIEW paid AS SELECT UPPER(shop) AS shop, cost FROM orders WHERE amount > 0 AND price < 100;
CREATE VIEW dear AS SELECT * FROM paid WHERE cost >= 10; -- a view over a view
CREATE TABLE costs (shop STRING PRIMARY KEY NOT ENFORCED, total INT, n BIGINT, mean INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'costs', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
BEGIN STATEMENT SET;
INSERT INTO costs SELECT shop, SUM(cost) AS total, COUNT(*), SUM(cost) / COUNT(cost) FROM dear GROUP BY shop;
END;
