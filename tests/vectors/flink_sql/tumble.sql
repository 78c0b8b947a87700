-- A window table function over plain events.
SET 'table.exec.source.idle-timeout' = '30 s';
CREATE TABLE orders (
  shop STRING,
  amount INT,
  at TIMESTAMP(3),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'shop.orders',
  'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.ignore-parse-errors' = 'true'
);
CREATE TABLE orders_by_minute (
  shop STRING,
  window_start TIMESTAMP(3),
  window_end TIMESTAMP(3),
  total INT
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders-by-minute',
  'properties.bootstrap.servers' = 'localhost:9092',
  'format' = 'json'
);
INSERT INTO orders_by_minute
SELECT shop, window_start, window_end, SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTES))
WHERE amount > 0
GROUP BY shop, window_start, window_end;
