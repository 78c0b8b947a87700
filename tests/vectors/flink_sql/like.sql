-- LIKE takes over columns, options, key and watermark of another table.
CREATE TABLE orders (
  order_id BIGINT, user_id BIGINT, product STRING, amount INT, price DECIMAL(10,2),
  order_time TIMESTAMP(3),
  WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
) WITH ('connector'='kafka','topic'='orders','properties.bootstrap.servers'='broker:9092','properties.group.id'='g','scan.startup.mode'='earliest-offset','format'='json');
CREATE TABLE out1 (product STRING, total BIGINT, PRIMARY KEY (product) NOT ENFORCED) WITH ('connector'='upsert-kafka','topic'='out1','properties.bootstrap.servers'='broker:9092','key.format'='json','value.format'='json');
CREATE TABLE orders2 WITH ('topic'='orders2') LIKE orders;
INSERT INTO out1 SELECT product, SUM(amount) FROM orders2 GROUP BY product;
CREATE TABLE orders3 (extra STRING) WITH ('topic'='orders3') LIKE orders (EXCLUDING WATERMARKS OVERWRITING OPTIONS);
CREATE TABLE out2 (product STRING, n BIGINT) WITH ('connector'='print');
INSERT INTO out2 SELECT product, COUNT(extra) FROM orders3 GROUP BY product;
