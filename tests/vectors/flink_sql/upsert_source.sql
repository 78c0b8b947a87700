CREATE TABLE users (id BIGINT, country STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE per_country (country STRING PRIMARY KEY NOT ENFORCED, n BIGINT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'per-country', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO per_country SELECT country, COUNT(*) FROM users GROUP BY country;
