-- A query that only picks columns of an aggregated view is the query of that view.
SET 'table.local-time-zone' = 'Asia/Shanghai';
CREATE TABLE MyTable3 (item STRING, price DOUBLE, ts BIGINT, ltz AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR ltz AS ltz - INTERVAL '10' MINUTE)
 WITH ('connector' = 'kafka','topic'='t','properties.bootstrap.servers'='b:9092','format' = 'json','scan.startup.mode'='earliest-offset');
CREATE TABLE o (window_start TIMESTAMP(3), window_end TIMESTAMP(3), item STRING, mx DOUBLE) WITH ('connector'='kafka','topic'='o','properties.bootstrap.servers'='b:9092','format'='json');
CREATE VIEW MyView4 AS SELECT TUMBLE_START(ltz, INTERVAL '10' MINUTE) AS window_start, TUMBLE_END(ltz, INTERVAL '10' MINUTE) AS window_end, TUMBLE_ROWTIME(ltz, INTERVAL '10' MINUTE) as window_rowtime, item, MAX(price) as max_price FROM MyTable3 GROUP BY TUMBLE(ltz, INTERVAL '10' MINUTE), item;
INSERT INTO o SELECT window_start, window_end, item, max_price FROM MyView4;
CREATE VIEW twice (thing, top) AS SELECT item, max_price FROM MyView4;
CREATE TABLE o2 (item STRING, top DOUBLE) WITH ('connector'='print');
INSERT INTO o2 SELECT t.thing AS item, top FROM twice AS t;
INSERT INTO o2 SELECT thing, top + 1 FROM twice;
INSERT INTO o2 SELECT thing, top FROM twice WHERE top > 1;
