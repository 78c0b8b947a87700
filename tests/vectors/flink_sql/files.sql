CREATE TABLE orders (
  shop STRING,
  amount DECIMAL(10, 2),
  at TIMESTAMP(3),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = 'file:///data/orders',
  'source.monitor-interval' = '10 s',
  'format' = 'csv',
  'csv.field-delimiter' = ';'
);

SELECT shop, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY shop;
