CREATE TABLE documents (id BIGINT, body BYTES) WITH (
  'connector' = 'kafka', 'topic' = 'documents', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'canal-json'
);
CREATE TABLE bodies (n BIGINT) WITH ('connector' = 'print');
INSERT INTO bodies SELECT COUNT(DISTINCT body) FROM documents;
