-- Named arguments; lines of CSV; a view between the window and the table.
CREATE TEMPORARY TABLE bids (
  item VARCHAR(20) NOT NULL,
  price DECIMAL(10, 2),
  note ARRAY<STRING>,
  bidtime TIMESTAMP(3) COMMENT 'when it was made',
  WATERMARK FOR bidtime AS bidtime
) COMMENT 'bids' WITH (
  'connector' = 'kafka', 'topic' = 'bids', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'scan.watermark.idle-timeout' = '1 min',
  'format' = 'csv', 'csv.field-delimiter' = ';', 'csv.null-literal' = 'n/a', 'csv.quote-character' = ''''
);
CREATE VIEW dear (thing, price, bidtime) AS SELECT item, price, bidtime FROM bids WHERE price >= 2;
CREATE TABLE highest (thing STRING, until TIMESTAMP(3), price DECIMAL(10, 2)) WITH ('connector' = 'print');
INSERT INTO highest (thing, until, price)
SELECT thing, window_end, MAX(price) FROM TABLE(
  HOP(DATA => TABLE dear, TIMECOL => DESCRIPTOR(bidtime), SLIDE => INTERVAL '5' MINUTES, SIZE => INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, thing;
