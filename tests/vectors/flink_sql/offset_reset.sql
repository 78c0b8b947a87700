CREATE TABLE product (name STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'properties.group.id' = 'g', 'properties.auto.offset.reset' = 'latest', 'format' = 'canal-json'
);
CREATE TABLE items (name STRING PRIMARY KEY NOT ENFORCED, total INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'items', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO items SELECT name, SUM(cnt) FROM product GROUP BY name;
