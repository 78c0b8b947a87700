CREATE TABLE product (name STRING, kind STRING, cnt DOUBLE) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE lists (kind STRING PRIMARY KEY NOT ENFORCED, names STRING, spread DOUBLE) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'lists', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'csv', 'value.format' = 'json', 'value.json.encode.ignore-null-fields' = 'true'
);
INSERT INTO lists SELECT kind, LISTAGG(name), STDDEV_POP(cnt) FROM product GROUP BY kind;
