-- Two jobs cannot write one sink; a view that two jobs read is one job.
CREATE TABLE product (name STRING, kind STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE VIEW sums AS SELECT name, kind, SUM(cnt) AS total FROM product GROUP BY name, kind;
CREATE TABLE by_total (total INT, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE by_kind (kind STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO by_total SELECT total, COUNT(*) FROM sums GROUP BY total;
INSERT INTO by_kind SELECT kind, COUNT(*) FROM sums GROUP BY kind;
INSERT INTO by_kind SELECT kind, COUNT(*) FROM product GROUP BY kind;
