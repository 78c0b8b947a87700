CREATE TABLE readings (
  sensor STRING, celsius DOUBLE, ts STRING,
  at AS TO_TIMESTAMP(ts, 'yyyy-MM-dd''T''HH:mm:ss'),
  WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'readings', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);
CREATE TABLE warmest (sensor STRING, since TIMESTAMP(3), celsius DOUBLE) WITH ('connector' = 'print');
INSERT INTO warmest
SELECT sensor, window_start, MAX(celsius) FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY sensor, window_start, window_end;
