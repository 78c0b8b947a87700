CREATE TABLE accounts (id BIGINT, owner STRING, balance DECIMAL(12, 2), PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'kafka', 'topic' = 'bank.accounts', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-json', 'debezium-json.schema-include' = 'true',
  'properties.isolation.level' = 'read_uncommitted', 'properties.fetch.min.bytes' = '1'
);
CREATE TABLE balances (owner STRING, total DECIMAL(38, 2)) WITH (
  'connector' = 'kafka', 'topic' = 'balances', 'properties.bootstrap.servers' = 'localhost:9092',
  'format' = 'canal-json', 'sink.delivery-guarantee' = 'at-least-once', 'sink.transactional-id-prefix' = 'b'
);
INSERT INTO balances SELECT owner, SUM(balance) FROM accounts WHERE balance > 0 GROUP BY owner;
