-- The example of Flink's documentation for CUMULATE; and windows with an offset.
CREATE TABLE bids (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'bids', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'scan.watermark.idle-timeout' = '1 min', 'format' = 'csv'
);
CREATE TABLE sums (since TIMESTAMP(3), until TIMESTAMP(3), total DECIMAL(10, 2)) WITH ('connector' = 'print');
CREATE TABLE shifted (since TIMESTAMP(3), total DECIMAL(10, 2)) WITH ('connector' = 'print');
INSERT INTO sums SELECT window_start, window_end, SUM(price) FROM TABLE(
  CUMULATE(TABLE bids, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES))
GROUP BY window_start, window_end;
INSERT INTO shifted SELECT window_start, SUM(price) FROM TABLE(
  TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL '10' MINUTES, OFFSET => INTERVAL '-9' MINUTES))
GROUP BY window_start, window_end;
