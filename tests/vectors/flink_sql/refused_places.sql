-- Hints, CREATE TABLE AS, VALUES, UNION, WITH, OVER, MATCH_RECOGNIZE, joins of windows: each refused where it is.
CREATE TABLE orders (
  order_id BIGINT, user_id BIGINT, product STRING, amount INT, price DECIMAL(10,2),
  order_time TIMESTAMP(3),
  WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
) WITH ('connector'='kafka','topic'='orders','properties.bootstrap.servers'='broker:9092','properties.group.id'='g','scan.startup.mode'='earliest-offset','format'='json');
CREATE TABLE out1 (product STRING, total BIGINT, PRIMARY KEY (product) NOT ENFORCED) WITH ('connector'='upsert-kafka','topic'='out1','properties.bootstrap.servers'='broker:9092','key.format'='json','value.format'='json');
CREATE TABLE copy WITH ('connector'='kafka','topic'='c','properties.bootstrap.servers'='broker:9092','format'='json') AS SELECT product, COUNT(*) AS n FROM orders /*+ OPTIONS('scan.startup.mode'='latest-offset') */ GROUP BY product;
INSERT INTO out1 SELECT /*+ STATE_TTL('orders'='1d') */ product, SUM(amount) FROM orders /*+ OPTIONS('scan.startup.mode'='latest-offset') */ GROUP BY product;
INSERT INTO out1 VALUES ('a', 1);
INSERT INTO out1 SELECT product, SUM(amount) FROM (SELECT product, amount FROM orders UNION ALL SELECT product, amount FROM orders) GROUP BY product ORDER BY product LIMIT 10;
CREATE TABLE o_over_dedup (order_id BIGINT, product STRING, PRIMARY KEY (order_id) NOT ENFORCED) WITH ('connector'='upsert-kafka','topic'='o','properties.bootstrap.servers'='broker:9092','key.format'='json','value.format'='json');
INSERT INTO o_over_dedup SELECT order_id, product FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY order_time ASC) AS row_num FROM orders) WHERE row_num <= 3;
CREATE TABLE o_match (product STRING, a TIMESTAMP(3)) WITH ('connector'='kafka','topic'='o','properties.bootstrap.servers'='broker:9092','format'='json');
INSERT INTO o_match SELECT product, start_tstamp FROM orders MATCH_RECOGNIZE (PARTITION BY product ORDER BY order_time MEASURES A.order_time AS start_tstamp ONE ROW PER MATCH AFTER MATCH SKIP TO LAST B PATTERN (A B+) DEFINE B AS B.price < A.price) AS T;
CREATE TABLE o_window_join (ws TIMESTAMP(3), a BIGINT, b BIGINT) WITH ('connector'='kafka','topic'='o','properties.bootstrap.servers'='broker:9092','format'='json');
INSERT INTO o_window_join SELECT L.window_start, L.order_id, R.order_id FROM (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(order_time), INTERVAL '5' MINUTES))) L FULL JOIN (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(order_time), INTERVAL '5' MINUTES))) R ON L.user_id = R.user_id AND L.window_start = R.window_start AND L.window_end = R.window_end;
CREATE TABLE rates_temporal_join (currency STRING, rate DECIMAL(32,2), update_time TIMESTAMP(3) METADATA FROM 'value.source.timestamp' VIRTUAL, WATERMARK FOR update_time AS update_time, PRIMARY KEY(currency) NOT ENFORCED) WITH ('connector'='kafka','topic'='r','properties.bootstrap.servers'='broker:9092','value.format'='debezium-json');
INSERT INTO out1 SELECT o.product, CAST(r.rate AS BIGINT) FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.order_time AS r ON o.product = r.currency;
CREATE TABLE copied WITH ('connector'='print') AS SELECT product, COUNT(*) AS n FROM orders GROUP BY product;
CREATE TABLE like_nothing WITH ('connector'='print') LIKE nowhere;
