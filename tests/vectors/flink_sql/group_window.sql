-- The older form of windows, a lateness, and a session time zone that does not matter.
SET 'table.exec.emit.allow-lateness' = '1 min';
SET 'table.local-time-zone' = 'Europe/Rome';
CREATE TABLE orders (shop STRING, amount BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' MINUTE) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'scan.watermark.idle-timeout' = '10 s', 'format' = 'json'
);
CREATE TABLE by_hour (shop STRING, since TIMESTAMP(3), total BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO by_hour
SELECT shop, TUMBLE_START(at, INTERVAL '1' HOUR), SUM(amount) AS ignored
FROM orders AS o
GROUP BY shop, TUMBLE(at, INTERVAL '1' HOUR);
