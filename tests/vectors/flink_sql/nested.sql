CREATE TABLE events (
  id BIGINT,
  who ROW<name STRING, home ROW<city STRING, zip STRING>>,
  tags MAP<STRING, STRING>,
  amount INT
) WITH (
  'connector' = 'kafka', 'topic' = 'events', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);
CREATE TABLE per_city (city STRING PRIMARY KEY NOT ENFORCED, people BIGINT, total INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'per-city', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO per_city
SELECT e.who.home.city, COUNT(DISTINCT who.name), SUM(amount) FROM events AS e GROUP BY e.who.home.city;
