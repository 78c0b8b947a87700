-- An INSERT casts its results to the types of the sink's columns.
CREATE TABLE product (name STRING, price DECIMAL(10, 2), weight DOUBLE, cnt INT, at TIMESTAMP(6)) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);
CREATE TABLE casts (
  name STRING, avg_price DECIMAL(10, 2), mean_price DOUBLE, avg_weight DECIMAL(6, 1), total DOUBLE, latest TIMESTAMP(3),
  small DECIMAL(3, 2), PRIMARY KEY (name) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'casts', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO casts
SELECT name, AVG(price), AVG(price), AVG(weight), SUM(cnt), MAX(at), SUM(price) FROM product GROUP BY name;
CREATE TABLE wider (name VARCHAR(20), total BIGINT, dearest DECIMAL(20, 2), latest TIMESTAMP(9)) WITH ('connector' = 'print');
INSERT INTO wider SELECT name, SUM(cnt), MAX(price), MAX(at) FROM product GROUP BY name;
CREATE TABLE keys (cnt DECIMAL(12, 2), n BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'keys', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'canal-json'
);
INSERT INTO keys SELECT cnt, COUNT(*) FROM product GROUP BY cnt HAVING cnt > 1;
CREATE TABLE not_cast (cnt DOUBLE PRIMARY KEY NOT ENFORCED, names ARRAY<STRING>, counts ARRAY<DOUBLE>) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'not-cast', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO not_cast SELECT cnt, ARRAY_AGG(name ORDER BY name), ARRAY_AGG(cnt ORDER BY cnt) FROM product GROUP BY cnt;
