-- Windows, views and names in the style of the documents of Flink.
CREATE TABLE Bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING, `user` BIGINT, `order` INT, `value` INT,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' MINUTE
) WITH ('connector' = 'kafka', 'topic' = 'bid', 'properties.bootstrap.servers' = 'localhost:9092', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE t1 (window_start TIMESTAMP(3), window_end TIMESTAMP(3), supplier_id STRING, total_price DECIMAL(38, 2)) WITH ('connector' = 'print');
INSERT INTO t1 SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end, GROUPING SETS ((supplier_id), ());
CREATE TABLE t2 (window_start TIMESTAMP(3), window_end TIMESTAMP(3), item STRING, supplier_id STRING, total_price DECIMAL(38, 2)) WITH ('connector' = 'print');
INSERT INTO t2 SELECT window_start, window_end, item, supplier_id, SUM(price) AS total_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end, CUBE (supplier_id, item);
CREATE TABLE t3 (u BIGINT, o INT, v INT, n BIGINT) WITH ('connector' = 'print');
INSERT INTO t3 SELECT `user`, `order`, MAX(`value`), COUNT(*) FROM Bid GROUP BY `user`, `order`;
CREATE TABLE t4 (ws TIMESTAMP(3), p DECIMAL(10,2)) WITH ('connector' = 'print');
INSERT INTO t4 SELECT ws, MAX(price) FROM (SELECT TUMBLE_START(bidtime, INTERVAL '1' HOUR) ws, item, SUM(price) AS price FROM Bid GROUP BY item, TUMBLE(bidtime, INTERVAL '1' HOUR)) GROUP BY ws;
CREATE TABLE t5 (item STRING, d STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO t5 SELECT item, DATE_FORMAT(bidtime, 'yyyy-MM-dd'), COUNT(DISTINCT `user`) FROM Bid WHERE item <> 'x' AND bidtime > TIMESTAMP '2026-01-01 00:00:00' AND item LIKE 'a%' AND supplier_id IN ('a', 'b') GROUP BY item, DATE_FORMAT(bidtime, 'yyyy-MM-dd');
CREATE TABLE t6 (item STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO t6 SELECT DISTINCT item, 1 FROM Bid;
CREATE TABLE t8 (item STRING, n BIGINT) WITH ('connector' = 'print');
CREATE VIEW w AS SELECT item, price, window_start ws, window_end we FROM TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' MINUTE));
INSERT INTO t8 SELECT item, COUNT(*) FROM w GROUP BY item, ws, we;
CREATE VIEW w2 AS SELECT * FROM TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' MINUTE)) WHERE price > 1;
CREATE TABLE t7 (item STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO t7 SELECT item, COUNT(*) FROM w2 GROUP BY item, window_start, window_end;
