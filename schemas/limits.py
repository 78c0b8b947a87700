"""Every bound of retally: a name, a unit, and a sentence why it is this number."""

from __future__ import annotations

# A message above this size is quarantined before it is parsed, so that one giant cannot take the
# memory of a worker; Kafka's own default limit for a record is 1 MiB.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024

# Deeper JSON than this is no row of a table; far below where a recursive parser runs out of stack.
MESSAGE_DEPTH_MAX = 64

# What quarantine keeps of a message: enough to see and to replay any normal one.
QUARANTINE_BYTES_MAX = 1024 * 1024

# A reason is for people and stays readable.
REASON_CHARACTERS_MAX = 500

# Conversions of text that a column remembers; canal repeats few distinct values in most columns.
MEMO_ENTRIES_MAX = 100_000

# Logical buckets of a job's state; fixed for its life, so there is room above the default of 32.
BUCKETS_MAX = 4_096

# Rows of an epoch that one fold task takes before another task is worth its start-up cost.
FOLD_TASK_ROWS = 20_000

# Records in one Kafka transaction of the publisher: far below what times out, large enough that
# the cost of a transaction vanishes.
TRANSACTION_RECORDS_MAX = 200_000
TRANSACTION_TIMEOUT_MS = 120_000

# Bytes of an order-preserving key prefix in the hot state; LMDB ends keys at 511 bytes, and 16
# are the hash behind the prefix.
KEY_PREFIX_BYTES_MAX = 400

# Time a fold task waits for another process to let go of a bucket before it gives up, loudly.
BUCKET_LOCK_SECONDS_MAX = 30

# Group keys named in an epoch's counters as having lost retractions; beyond it only the number.
DROPPED_KEYS_NAMED_MAX = 20

# Log upkeep: epochs between Delta checkpoints, and live files a table may have before compaction
# is overdue; commits stayed at 4 ms with these figures.
CHECKPOINT_EVERY_COMMITS = 100
LIVE_FILES_MAX = 300

# Epoch files merged into one of the next tier by compaction.
COMPACTION_FAN_IN = 32

# Files of epochs that never committed are swept when they are older than this.
ORPHAN_AGE_SECONDS_MIN = 3_600

# An identifier of ours or of a user: letters, digits, underscores.
IDENTIFIER_CHARACTERS_MAX = 63
JOB_NAME_CHARACTERS_MAX = 40

# Query text and the tree it parses to.
QUERY_CHARACTERS_MAX = 20_000
EXPRESSION_DEPTH_MAX = 100
COLUMNS_MAX = 1_000
