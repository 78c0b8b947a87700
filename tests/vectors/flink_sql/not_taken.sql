ADD JAR '/opt/udf.jar';
CREATE FUNCTION twice AS 'com.example.Twice';
CREATE TABLE product (
  id BIGINT, name STRING, cnt INT, at TIMESTAMP(3), tags ARRAY<STRING>,
  now_at AS PROCTIME(), stamp TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE avro (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'avro',
  'properties.bootstrap.servers' = 'localhost:9092');
CREATE TABLE files (id BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE sink (a STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE elsewhere (a STRING, n BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:x');
CREATE TABLE plain (a STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'plain', 'format' = 'json',
  'properties.bootstrap.servers' = 'localhost:9092');
CREATE TABLE odd (a STRING, n BIGINT) WITH ('connector' = 'upsert-kafka', 'topic' = 'odd', 'colour' = 'red',
  'key.format' = 'json', 'value.format' = 'json', 'properties.bootstrap.servers' = 'localhost:9092');
INSERT INTO sink SELECT p.name, COUNT(*) FROM product p JOIN avro a ON p.id = a.id GROUP BY p.name;
INSERT INTO sink SELECT name, ROW_NUMBER() OVER (PARTITION BY name ORDER BY cnt) FROM product;
INSERT INTO sink SELECT name, cnt FROM product;
INSERT INTO sink SELECT name, COUNT(*) FROM product GROUP BY name ORDER BY name LIMIT 10;
INSERT INTO sink SELECT name, COUNT(*) FROM product GROUP BY name UNION ALL SELECT 'x', 1 FROM product;
INSERT INTO sink SELECT name, MAX(now_at) FROM product GROUP BY name;
INSERT INTO sink SELECT name, MAX(stamp) FROM product GROUP BY name;
INSERT INTO sink SELECT tags[1], COUNT(*) FROM product GROUP BY tags[1];
INSERT INTO sink SELECT name, twice(SUM(cnt)) FROM product GROUP BY name;
INSERT INTO sink SELECT name, FIRST_VALUE(cnt) FROM product GROUP BY name;
INSERT INTO sink SELECT name FROM product GROUP BY name;
INSERT INTO sink SELECT name, COUNT(*) FROM nowhere GROUP BY name;
INSERT INTO sink SELECT 'a', COUNT(*) FROM avro;
INSERT INTO sink SELECT 'a', COUNT(*) FROM files;
INSERT INTO sink SELECT name, COUNT(*) FROM TABLE(CUMULATE(TABLE product, DESCRIPTOR(at), INTERVAL '7' MINUTE, INTERVAL '1' HOUR)) GROUP BY name, window_start, window_end;
INSERT INTO sink SELECT name, COUNT(*) FROM TABLE(TUMBLE(TABLE product, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY name;
INSERT INTO elsewhere SELECT name, COUNT(*) FROM product GROUP BY name;
INSERT INTO plain SELECT name, COUNT(*) FROM product GROUP BY name;
INSERT INTO odd SELECT name, COUNT(*) FROM product GROUP BY name;
INSERT INTO missing SELECT name, COUNT(*) FROM product GROUP BY name;
SELECT * FROM product;
