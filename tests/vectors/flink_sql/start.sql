SET 'pipeline.auto-watermark-interval' = '500 ms';
CREATE TABLE a (k STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH (
  'connector' = 'kafka', 'topic' = 'a', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json',
  'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '1769860800000',
  'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '20 s',
  'scan.watermark.alignment.update-interval' = '2 s', 'scan.watermark.idle-timeout' = '1 h'
);
CREATE TABLE b (k STRING) WITH (
  'connector' = 'kafka', 'topic' = 'b', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json',
  'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:300'
);
CREATE TABLE n_a (k STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE n_b (k STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO n_a SELECT k, COUNT(*) FROM a GROUP BY k;
INSERT INTO n_b SELECT k, COUNT(*) FROM b GROUP BY k;
