CREATE TABLE product (
  name STRING, cnt INT,
  changed TIMESTAMP_LTZ(3) METADATA FROM 'value.event-timestamp' VIRTUAL,
  WATERMARK FOR changed AS changed - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE events (
  name STRING, cnt INT, `timestamp` TIMESTAMP_LTZ(3) METADATA,
  WATERMARK FOR `timestamp` AS `timestamp`
) WITH (
  'connector' = 'kafka', 'topic' = 'events', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);
CREATE TABLE a (name STRING PRIMARY KEY NOT ENFORCED, total INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'a', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE c (name STRING, total INT) WITH ('connector' = 'print');
INSERT INTO a SELECT name, SUM(cnt) FROM product GROUP BY name;
INSERT INTO c SELECT name, SUM(cnt) FROM events GROUP BY name;
