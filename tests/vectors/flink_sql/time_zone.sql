SET 'table.local-time-zone' = 'Asia/Shanghai';
CREATE TABLE orders (amount INT, at TIMESTAMP_LTZ(3)) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE days (`day` STRING, total INT) WITH ('connector' = 'print');
INSERT INTO days SELECT DATE_FORMAT(at, 'yyyy-MM-dd'), SUM(amount) FROM orders GROUP BY DATE_FORMAT(at, 'yyyy-MM-dd');
