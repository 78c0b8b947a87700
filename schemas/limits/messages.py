"""Limits of source messages: their size and nesting, and what decoders cache."""

from __future__ import annotations

# Kafka's default limit is 1 MiB. A larger message than this is quarantined before it is parsed,
# so that it cannot exhaust a worker's memory.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
# Levels of nesting. Rows are flat, and a recursive parser runs out of stack at some 500 levels.
MESSAGE_DEPTH_MAX = 64
# Values in the columns of a message, of some 150 bytes each. In Protobuf two bytes may be a message
# of all its fields.
MESSAGE_VALUES_MAX = 1_000_000
# Levels of a text that JSON functions read and print; each takes a few frames of the stack.
JSON_DEPTH_MAX = 200
# A message below this size cannot nest deep enough to overflow a parser's stack (512 levels), so
# its brackets are not counted.
SHORT_MESSAGE_BYTES_MAX = 1_024
# Quarantine keeps this much of a message, which is enough to replay any normal one.
QUARANTINE_BYTES_MAX = 1024 * 1024
# A task writes rejected messages to a file at this size, to bound the memory of a worker.
QUARANTINE_FILE_BYTES = 32 * 1024 * 1024
# The fraction of bad messages is computed over at least so many, so that a single bad message of a
# quiet topic does not stop the job.
BAD_FRACTION_MESSAGES_MIN = 100

# A reason is a sentence or two for people.
REASON_CHARACTERS_MAX = 500
# A reason with its stack. The disk reserves this much, so that a job can report a full disk.
FAILURE_BYTES_MAX = 16 * 1024
STACK_CHARACTERS_MAX = 8_000
# Message schemas that a decoder caches: a table has one, and one more after each ALTER.
MESSAGE_SCHEMAS_MAX = 100
# Types in an Avro schema, with those that it names: code is generated for each of them.
SCHEMA_TYPES_MAX = 20_000
# A schema registry answers in milliseconds, and in seconds while it restarts. After this long the
# task fails, and the service starts the job again.
REGISTRY_SECONDS_MAX = 30.0
REGISTRY_REQUEST_SECONDS_MAX = 10.0
# A new id reaches the followers of a registry within moments, so a message may come before it.
REGISTRY_FOLLOW_SECONDS_MAX = 3.0
# Messages of an id that the registry does not know do not ask again for so long.
REGISTRY_UNKNOWN_SECONDS = 60.0
REGISTRY_BYTES_MAX = 4 * 1024 * 1024  # of one answer; Confluent's registry takes schemas of 1 MiB
REGISTRY_SCHEMAS_MAX = 1_000  # that a process keeps
REGISTRY_REFERENCES_MAX = 100  # schemas that one names, with those that they name
# Characters of a mysqlType with its labels. A larger one is read again for each message.
CACHED_TYPES_CHARACTERS_MAX = 256 * 1024
# Names of tables whose match with the filters a decoder caches.
FILTERED_TABLES_CACHED_MAX = 10_000
# Spans of eight seconds whose times a decoder of Avro reads fast: the times of a topic advance.
MESSAGE_TIMES_CACHED_MAX = 1_000
# Converted texts that a decoder caches for each column: most columns have few distinct values.
MEMO_ENTRIES_MAX = 100_000
# Longer texts are not cached: they seldom repeat.
MEMO_TEXT_CHARACTERS_MAX = 64
# Values of keys and of several columns, cached for each argument and bucket: they repeat less.
ROW_MEMO_ENTRIES_MAX = 10_000
# Characters of a number: Jackson, and so Flink, has the same limit. Columns are far shorter, and
# big-integer arithmetic is still fast.
NUMBER_CHARACTERS_MAX = 1_000
# Limits of the scanner: tokens of one message (rows times columns), bytes of messages at once, and
# names of tables, and labels of ENUMs and SETs, that it remembers. What has more is decoded row by
# row.
SCAN_TOKENS_MAX = 65_536
SCAN_BYTES_MAX = 16 * 1024 * 1024
SCAN_TABLES_MAX = 64
SCAN_NAME_BYTES_MAX = 512  # of a remembered database and table together
SCAN_LABELS_MAX = 32  # kinds of messages whose columns have other labels; twice as many in one scan
SCAN_TYPES_BYTES_MAX = 65_536  # of the `mysqlType` with labels
# Fraction of some messages; if more are unusual, all are decoded one by one.
SCAN_UNUSUAL_PART_MAX = 1 / 8

# How a repeating source is noticed. A restarted canal numbers its batches from 1; in a partition
# that few rows of the table reach, the first message has a higher number.
SOURCE_ID_AFTER_RESTART_MAX = 10_000
# MySQL's binlog has whole seconds, and short statements are out of order by one all the time.
SOURCE_ES_BACK_MS_MAX = 1_000
# Messages of a partition that a job remembers, some 40 bytes each in every epoch row.
SOURCE_MESSAGES_SEEN_MAX = 4

# Messages that are scanned together. Their rows fit a processor's cache, and many unusual messages
# send few others to the exact decoder.
PIECE_MESSAGES = 800
