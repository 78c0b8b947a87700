CREATE TABLE product (name STRING, cnt INT) WITH (
  'connector' = 'kafka', 'topic' = 'product', 'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json',
  'properties.bootstrap.servers' = 'kafka-1.example.com:9093, kafka-2.example.com:9093',
  'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = 'SCRAM-SHA-512',
  'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="reader" password="s3cr\"et #1";',
  'properties.ssl.truststore.location' = '/etc/kafka/trust.jks', 'properties.ssl.truststore.password' = 'tr-secret'
);
CREATE TABLE items (name STRING PRIMARY KEY NOT ENFORCED, total INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'items', 'key.format' = 'json', 'value.format' = 'json',
  'properties.bootstrap.servers' = 'other.example.com:9092',
  'properties.security.protocol' = 'SASL_PLAINTEXT', 'properties.sasl.mechanism' = 'PLAIN',
  'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.plain.PlainLoginModule required username=writer password=w-secret;'
);
INSERT INTO items SELECT name, SUM(cnt) FROM product GROUP BY name;
