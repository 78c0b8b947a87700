-- A computed time: windows are over its column, and everything else has the time itself.
CREATE TABLE clicks (
  who STRING, ms BIGINT, at AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'scan.watermark.idle-timeout' = '30 s', 'format' = 'json'
);
CREATE TABLE latest (who STRING, at TIMESTAMP_LTZ(3), ms BIGINT) WITH ('connector' = 'print');
INSERT INTO latest SELECT who, MAX(at), MAX(ms) FROM clicks GROUP BY who;
CREATE TABLE per_minute (since TIMESTAMP(3), first_click TIMESTAMP_LTZ(3), n BIGINT) WITH ('connector' = 'print');
INSERT INTO per_minute
SELECT window_start, MIN(at), COUNT(*) FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
CREATE VIEW named AS SELECT who AS name, at AS moment FROM clicks WHERE who <> 'x';
CREATE TABLE moments (at STRING, until TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print');
INSERT INTO moments
SELECT CAST(moment AS STRING), TUMBLE_END(moment, INTERVAL '1' MINUTE), COUNT(*)
FROM named GROUP BY CAST(moment AS STRING), TUMBLE(moment, INTERVAL '1' MINUTE);
CREATE TABLE ends (until STRING, seconds BIGINT, last_end TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print');
INSERT INTO ends
SELECT DATE_FORMAT(w.window_end, 'HH:mm'), TIMESTAMPDIFF(SECOND, window_start, window_end), MAX(window_end), COUNT(*)
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '1' MINUTE)) AS w
GROUP BY DATE_FORMAT(w.window_end, 'HH:mm'), window_start, window_end HAVING CAST(window_end AS STRING) < '2026-01-31 12:02';
CREATE TABLE in_seconds (who STRING, ms BIGINT, at AS TO_TIMESTAMP(FROM_UNIXTIME(ms / 1000)), WATERMARK FOR at AS at)
WITH (
  'connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);
CREATE TABLE latest_second (who STRING, at TIMESTAMP(3)) WITH ('connector' = 'print');
INSERT INTO latest_second SELECT who, MAX(at) FROM in_seconds GROUP BY who;
CREATE TABLE readings (sensor STRING, txt STRING, at AS TO_TIMESTAMP(txt), WATERMARK FOR at AS at) WITH (
  'connector' = 'kafka', 'topic' = 'readings', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);
CREATE TABLE texts (txt STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO texts SELECT txt, COUNT(*) FROM readings GROUP BY txt;
