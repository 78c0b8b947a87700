"""Limits of an epoch: reading Kafka, computing, and the hot state."""

from __future__ import annotations

# --- reading Kafka ---

# A task that receives no record of its range for this long fails; the service starts the job again.
KAFKA_READ_SECONDS_MAX = 60.0

# Kafka answers an administrative request in milliseconds, and in seconds while a broker restarts.
KAFKA_ADMIN_SECONDS_MAX = 30

# A wait for a broker's port to accept: a port without a listener refuses at once.
LISTENER_SECONDS_MAX = 5.0

# Records that a task takes from the consumer at once, bytes of one fetch, and KiB fetched ahead:
# together they bound what a task holds of its range.
RANGE_RECORDS_AT_ONCE = 4_000
RANGE_FETCH_BYTES = 1024 * 1024
RANGE_QUEUE_KIB = 2_048

# Attempts at one record that lose a worker, or get nothing, before the job stops: a worker could
# have been killed by hand.
MESSAGE_ATTEMPTS_MAX = 3

# Ranges with fewer records on average share a task: starting a task costs more than reading them.
SMALL_RANGE_RECORDS = 5_000

# A range is split between several tasks, but into no smaller pieces than this.
RANGE_PIECE_RECORDS_MIN = 20_000

# The embedded broker starts in 4 s on an idle machine. Its messages may exceed MESSAGE_BYTES_MAX,
# as they may on other brokers.
BROKER_START_SECONDS_MAX = 60
BROKER_STOP_SECONDS_MAX = 15
BROKER_MESSAGE_BYTES_MAX = 80 * 1024 * 1024

# A new embedded broker waits this long for the lock of one that is ending.
BROKER_LOCK_SECONDS_MAX = 3

# Bytes of a file that its lines are found in and read by at once: 20,000 lines of 200 bytes, so the
# part of a piece that belongs to another task costs little.
FILE_PIECE_BYTES = 4 * 1024 * 1024
# Rows for one epoch of a snapshot, if the spec does not name the parts of a database's table: an
# epoch of 2.9 million rows of three columns had a job take 4.9 GB.
SNAPSHOT_PART_ROWS = 500_000
# Characters of a text key at which a part ends: each epoch of the snapshot has it. It is one of so
# many rows behind those of the part; more are read only if none of the first can be an end.
SNAPSHOT_KEY_CHARACTERS_MAX = 1_000
SNAPSHOT_BOUND_ROWS = 100, 10_000
# Rows that the driver of a database gives at once.
SNAPSHOT_FETCH_ROWS = 10_000
# Bytes of a piece of a snapshot's files, fewer if the rows are small, and its files. A change of
# both is another PLAN_FORMAT, because a start must find the parts of the one before.
SNAPSHOT_PIECE_BYTES = 16 * 1024 * 1024
SNAPSHOT_PIECE_FILES = 64
# Tasks that list the files of a snapshot: 10,000 of them took a minute for as many files.
SNAPSHOT_LISTING_TASKS = 64
# Pieces of one epoch; another number is another PLAN_FORMAT too.
SNAPSHOT_PART_PIECES = 4

# --- computing an epoch ---

# Free space for the temporary checkpoint of a run; a disk with less is not written to.
SCRATCH_BYTES_MIN = 8 * 1024 * 1024
# Rows for one fold task: below this, starting another task costs more than it saves.
FOLD_TASK_ROWS = 8_000

# Small epochs in a row before a job on several executors runs them in one task again: between one
# task and many, buckets change their executors, which have to catch up.
SMALL_EPOCHS_IN_HOMES_MAX = 16

# A task waits this long for the executor that has the state of its buckets, and so long again for
# its host; then another executor catches up with it.
HOME_WAIT_MS_MAX = 300

# How often the driver reads which executors its cluster has.
EXECUTORS_READ_SECONDS = 1.0

# Tasks with homes send each target the same number of records through the shuffle: as many as
# TASK_BYTES_MAX can fill, but together at most so many, because most of them are empty.
SHUFFLE_RECORDS_MAX = 256

# Tasks of a Python worker between two runs of the cyclic garbage collector. A run visits
# everything that the worker caches, and tasks leave few cycles behind.
TASKS_BETWEEN_GC_MAX = 1_000

# Bytes of one Arrow batch on its way to Python.
ARROW_BATCH_BYTES_MAX = 64 * 1024 * 1024

# Bytes of rows that a fold task receives as one value; a larger row is sent alone.
PARCEL_BYTES_MAX = 16 * 1024 * 1024

# Arrow bytes that one task holds at once. A larger epoch is computed in parts.
TASK_BYTES_MAX = 256 * 1024 * 1024

# Bytes of the texts of one Arrow array with offsets of 32 bits.
ARRAY_TEXT_BYTES_MAX = 2**31 - 1

# Group keys named in an epoch's counters for dropped retractions; the others are only counted.
DROPPED_KEYS_NAMED_MAX = 20

# Group keys named in an epoch's counters that came below zero; the others are only counted.
KEYS_BELOW_ZERO_NAMED_MAX = 20

# Recent epochs whose files the driver sends to fold tasks; a bucket further behind reads the table.
RECENT_EPOCHS_MAX = 256

# A group expires at most 1/100 of its TTL late, so that many groups share one epoch.
EXPIRY_LATE_PARTS = 100

# A group whose results are withheld does not expire: its timer fires again 1/10 of the TTL later.
WITHHELD_EXPIRY_PARTS = 10

# A job of an alignment group that has reported nothing for so many intervals, and at least for so
# many milliseconds, counts as ended; the group goes on without it.
ALIGNMENT_SILENCE_ROUNDS = 10
ALIGNMENT_SILENCE_MS_MIN = 10_000

# A stopping job waits this long for its running epoch.
STOP_SECONDS_MAX = 30.0

# How often the job commits its offsets under its consumer group, for lag tools.
GROUP_OFFSETS_EVERY_SECONDS = 5.0

# --- hot state ---

# Bytes of an order-preserving prefix of a key: LMDB allows 511 bytes, and a hash of 16 follows.
KEY_PREFIX_BYTES_MAX = 400

# Bytes of the namespace in a timer's key: with a cut group, the key fits LMDB's 511 bytes.
TIMER_NAMESPACE_BYTES_MAX = 64

# Bytes of the group in an entry's key; the rest of the key is for the value.
GROUP_PREFIX_BYTES_MAX = 200

# A fold task waits this long for another process to release a bucket; then it fails.
BUCKET_LOCK_SECONDS_MAX = 30

# Attempts of a task to catch up a bucket while other processes advance the same state.
CATCH_UP_TRIES_MAX = 5

# Initial address space of a bucket: the file is sparse, so it costs nothing; it doubles when full.
HOT_STATE_MAP_BYTES = 1 << 30

# Records in one write transaction: this bounds the memory of a catch-up and of a rebuild.
HOT_STATE_CHUNK_RECORDS = 200_000

# Hot states of one kind that one worker keeps open, and of how many file descriptors each is one:
# one in LMDB takes two, one in arrays takes one, so with the usual 1,024 there are 256 of each. Ten
# views have 320; a worker that opens all of them again in each epoch takes a fifth longer.
HOT_STATES_OPEN_MAX = 4_096
DESCRIPTORS_OF_A_HOT_STATE = 4

# Threads of a fold that read pages of a state beyond memory, so many at once: disks read 16 sooner
# than one after the other, and more do not help.
PAGE_READERS = 16

# A multiset is one record up to this size, about a hundred values. A larger one would fill half a
# page of LMDB, so it has an entry for each value.
HOT_STATE_SMALL_MULTISET_BYTES = 1_024

# --- dedupe: pk ---

# Leaves of one key that wait for the key's own changes, or the reverse: as many as a spare key, by
# which an application swaps rows, has while one partition is read before another one.
KEY_ENDS_MAX = 4_096
# A key without a row is remembered for so long, in the source's time: one partition of a topic may
# be read this much later than another one, or be repeated by the source.
LEFT_KEY_KEPT_MS = 24 * 3_600_000
# Keys without a row that one bucket remembers, about 75 MB of its hot state: with 32 buckets, 185
# updates of primary keys a second for a day. Of more the oldest are forgotten sooner, and counted.
LEFT_KEYS_MAX = 500_000
# Left keys of one bucket that an epoch forgets; the others follow in later epochs.
LEFT_KEYS_FORGOTTEN_MAX = 10_000
# Keys without a change whose rows a TRUNCATE may remove, looked at together.
TRUNCATED_KEYS_AT_ONCE = 50_000
# Changes of keys that a dedupe task derives together: some MB of images.
KEY_CHANGES_AT_ONCE = 50_000
# Keys of a doubtful order that an epoch names.
DOUBTFUL_KEYS_NAMED_MAX = 5

# Rows of one batch of joined rows: a row has some hundred bytes in Python, so a batch some MB, and
# what each batch costs is spread over enough rows.
JOIN_BATCH_ROWS = 20_000

# Bytes of the texts of one batch of joined rows, but for one row: a text may have some MB, and many
# rows may join it.
JOIN_BATCH_BYTES = 32 * 1024 * 1024

# Runs of a side of a join that are smaller are read into memory: a process may map 65,530 files.
RUN_BYTES_IN_MEMORY_MAX = 1 << 18

# Of a text in a row of a join so many bytes are hashed for all rows together. What follows them has
# a CRC of its own, which takes 0.5 us for each such text.
HASHED_TEXT_BYTES = 64

# Pairs of rows with one join key that one epoch may add and remove: 20 s of one core. A change of a
# row that a million others join is far below it; a key with thousands of rows on both sides is not.
JOIN_PAIRS_MAX = 20_000_000

# How often one joined row may be there: weights multiply, and a batch of them must add up in 63
# bits. A query that reads only the keys of a star of joins comes near it first.
JOINED_TIMES_MAX = 10**14
