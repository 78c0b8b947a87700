CREATE TABLE product (name STRING, cnt INT) WITH ('connector' = 'kafka);
INSERT INTO items SELECT name, COUNT(*) FROM product GROUP BY name;
