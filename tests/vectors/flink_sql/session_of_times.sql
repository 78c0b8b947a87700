CREATE TABLE clicks (
  who STRING, page STRING, at TIMESTAMP(3),
  WATERMARK FOR at AS at - INTERVAL '0.5' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'latest-offset', 'scan.watermark.idle-timeout' = '0',
  'scan.watermark.emit.strategy' = 'on-event', 'format' = 'json', 'json.fail-on-missing-field' = 'true'
);
CREATE TABLE visits (who STRING, first_click TIMESTAMP(3), last_click TIMESTAMP(3), pages BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'visits', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json'
);
INSERT INTO visits
SELECT who, window_start, window_end, COUNT(DISTINCT page)
FROM TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(at), INTERVAL '10' MINUTES))
GROUP BY who, window_start, window_end;
