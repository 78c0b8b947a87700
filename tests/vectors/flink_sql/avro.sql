CREATE TABLE product (id BIGINT, name STRING, price DECIMAL(10, 2), made TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = 'shop.product', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-avro-confluent',
  'debezium-avro-confluent.url' = 'https://registry:8081',
  'debezium-avro-confluent.basic-auth.credentials-source' = 'USER_INFO',
  'debezium-avro-confluent.basic-auth.user-info' = 'retally:r-secret:1'
);
CREATE TABLE clicks (page STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH (
  'connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'value.format' = 'avro-confluent',
  'value.avro-confluent.schema-registry.url' = 'https://clicks:8081',
  'value.avro-confluent.ssl.truststore.location' = '/etc/trust.jks'
);
CREATE TABLE prices (name STRING, total DECIMAL(38, 2), PRIMARY KEY (name) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'prices', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'avro-confluent', 'key.avro-confluent.url' = 'http://other:8081',
  'value.format' = 'avro-confluent', 'value.avro-confluent.url' = 'http://other:8081'
);
CREATE TABLE changes (name STRING, n BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'name-changes', 'properties.bootstrap.servers' = 'kafka:9092',
  'format' = 'debezium-avro-confluent', 'debezium-avro-confluent.url' = 'http://other:8081',
  'debezium-avro-confluent.subject' = 'changes'
);
CREATE TABLE pages (page STRING, n BIGINT, ends TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = 'pages', 'properties.bootstrap.servers' = 'kafka:9092',
  'format' = 'avro-confluent', 'avro-confluent.url' = 'http://other:8081'
);
CREATE TABLE wrong (name STRING, n BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'wrong', 'properties.bootstrap.servers' = 'kafka:9092',
  'format' = 'avro-confluent', 'avro-confluent.url' = 'http://other:8081'
);
INSERT INTO prices SELECT name, SUM(price) FROM product GROUP BY name;
INSERT INTO changes SELECT name, COUNT(*) FROM product GROUP BY name;
INSERT INTO pages SELECT page, COUNT(*), window_end
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY page, window_start, window_end;
INSERT INTO wrong SELECT name, COUNT(*) FROM product GROUP BY name;
