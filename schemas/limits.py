"""Every limit of retally: the name ends with the unit, the comment says why this number."""

from __future__ import annotations

# --- messages ---

# Kafka's default limit is 1 MiB. A larger message than this is quarantined before it is parsed,
# so that it cannot exhaust a worker's memory.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
# Levels of nesting. Rows are flat, and a recursive parser runs out of stack at some 500 levels.
MESSAGE_DEPTH_MAX = 64
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
# Converted texts that a decoder caches for each column: most columns have few distinct values.
MEMO_ENTRIES_MAX = 100_000
# Values of keys and of several columns, cached for each argument and bucket: they repeat less.
ROW_MEMO_ENTRIES_MAX = 10_000
# Characters of a number: Jackson, and so Flink, has the same limit. Columns are far shorter, and
# big-integer arithmetic is still fast.
NUMBER_CHARACTERS_MAX = 1_000
# Limits of the scanner: tokens of one message (rows times columns), bytes of messages at once, and
# names of tables that it remembers. What has more is decoded row by row.
SCAN_TOKENS_MAX = 65_536
SCAN_BYTES_MAX = 16 * 1024 * 1024
SCAN_TABLES_MAX = 64
SCAN_NAME_BYTES_MAX = 512  # of a remembered database and table together
SCAN_ODD_PART_MAX = 1 / 8  # of some messages; if more are odd, all are decoded one by one

# Messages that are decoded as one batch, column by column. Their objects fit a processor's cache,
# and one malformed message sends few others to the exact decoder.
CANAL_BATCH_MESSAGES = 800
# After a failed batch the next batches are decoded message by message: so many at most before the
# batch decoder is tried again.
EXACT_PIECES_MAX = 32

# --- job specs and queries ---

# Identifiers of retally and of users: letters, digits and underscores.
IDENTIFIER_CHARACTERS_MAX = 63
JOB_NAME_CHARACTERS_MAX = 40

# The text of a query, and the depth and nodes of its expression tree: they bound the parser's work.
QUERY_CHARACTERS_MAX = 20_000
EXPRESSION_DEPTH_MAX = 100
EXPRESSION_NODES_MAX = 5_000
# Nested parentheses, CASEs and prefix operators: more overflow the stack of the SQL parser.
QUERY_NESTING_MAX = 40

# Columns of a source or of a result: a spec with a thousand of them has 30 KB.
COLUMNS_MAX = 1_000
# Each row counts once in every grouping set, which multiplies the rows of an epoch. 64 is CUBE over
# six columns.
GROUPING_SETS_MAX = 64

# Windows of HOP that contain one row. Each adds a row to the epoch, so max_rows is multiplied by
# this at most. 288 is a day that slides by five minutes.
WINDOWS_OF_A_ROW_MAX = 288

# A change of a group reads k entries of TOP_K.
TOP_K_MAX = 1_000
# Characters of one value of STRING_AGG, ARRAY_AGG and TOP_K: at four bytes each it fits a Kafka
# record of 1 MiB. Longer values become NULL and are counted.
LIST_CHARACTERS_MAX = 250_000
LIST_VALUES_MAX = 50_000

# Characters that LPAD, RPAD and REPEAT return for one value: small beside the message.
TEXT_CHARACTERS_MAX = 10_000
# A job spec or a connections file: a thousand columns take 30 KB, and the worst case parses in
# about a second. Nodes are counted with aliases expanded.
SPEC_BYTES_MAX = 256 * 1024
SPEC_DEPTH_MAX = 32
SPEC_NODES_MAX = 20_000

# Problems reported for one spec: nobody reads further.
PROBLEMS_MAX = 100
# The longest duration in a spec, a hundred years, and the largest whole number: JSON carries every
# integer up to 2^53 exactly.
DURATION_MS_MAX = 100 * 366 * 86_400_000
COUNT_MAX = 2**53 - 1

# Kafka's limit for a topic name, and our limits for the topics and partitions of one job.
TOPIC_CHARACTERS_MAX = 249
TOPICS_MAX = 100
TOPIC_PARTITIONS_MAX = 10_000

# A regular expression that matches database or table names.
PATTERN_CHARACTERS_MAX = 500

# Buckets of a job's state. The count cannot change later, so it may be far above the default, 32.
BUCKETS_MAX = 4_096

# --- reading Kafka ---

# A task that receives no record of its range for this long fails, and the job stops.
KAFKA_READ_SECONDS_MAX = 60.0

# Kafka answers an administrative request in milliseconds, and in seconds while a broker restarts.
KAFKA_ADMIN_SECONDS_MAX = 30

# Records that a task takes from the consumer at once, bytes of one fetch, and KiB fetched ahead:
# together they bound what a task holds of its range.
RANGE_RECORDS_AT_ONCE = 4_000
RANGE_FETCH_BYTES = 1024 * 1024
RANGE_QUEUE_KIB = 2_048

# Ranges with fewer records on average share a task: starting a task costs more than reading them.
SMALL_RANGE_RECORDS = 5_000

# A range is split between several tasks, but into no smaller pieces than this.
RANGE_PIECE_RECORDS_MIN = 20_000

# The embedded broker starts in 4 s on an idle machine. Its messages may exceed MESSAGE_BYTES_MAX,
# as they may on other brokers.
BROKER_START_SECONDS_MAX = 60
BROKER_STOP_SECONDS_MAX = 15
BROKER_MESSAGE_BYTES_MAX = 80 * 1024 * 1024

# --- computing an epoch ---

# Free space for the temporary checkpoint of a run; a disk with less is not written to.
SCRATCH_BYTES_MIN = 8 * 1024 * 1024
# Rows for one fold task: below this, starting another task costs more than it saves.
FOLD_TASK_ROWS = 8_000

# Tasks of a Python worker between two runs of the cyclic garbage collector. A run visits
# everything that the worker caches, and tasks leave few cycles behind.
TASKS_BETWEEN_GC_MAX = 1_000

# Bytes of one Arrow batch on its way to Python.
ARROW_BATCH_BYTES_MAX = 64 * 1024 * 1024

# Bytes of rows that a fold task receives as one value; a larger row is sent alone.
PARCEL_BYTES_MAX = 16 * 1024 * 1024

# Arrow bytes that one task holds at once. A larger epoch is computed in parts. Offsets of an Arrow
# text column end at 2 GiB.
TASK_BYTES_MAX = 256 * 1024 * 1024

# Group keys named in an epoch's counters for lost retractions; the others are only counted.
DROPPED_KEYS_NAMED_MAX = 20

# Recent epochs whose files the driver sends to fold tasks; a bucket further behind reads the table.
RECENT_EPOCHS_MAX = 256

# A group expires at most 1/100 of its TTL late, so that many groups share one epoch.
EXPIRY_LATE_PARTS = 100

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

# A fold task waits this long for another process to release a bucket; then it fails.
BUCKET_LOCK_SECONDS_MAX = 30

# Initial address space of a bucket: the file is sparse, so it costs nothing; it doubles when full.
HOT_STATE_MAP_BYTES = 1 << 30

# Records in one write transaction: this bounds the memory of a catch-up and of a rebuild.
HOT_STATE_CHUNK_RECORDS = 200_000

# Hot states that one worker keeps open: each takes two of the usual 1,024 file descriptors.
HOT_STATES_OPEN_MAX = 256

# A multiset is one record up to this size, about a hundred values. A larger one would fill half a
# page of LMDB, so it has an entry for each value.
HOT_STATE_SMALL_MULTISET_BYTES = 1_024

# --- the Delta table ---

# Commits between two checkpoints of the Delta log, and live files from which compaction is overdue:
# commits stayed at 4 ms with these numbers.
CHECKPOINT_EVERY_COMMITS = 100
LIVE_FILES_MAX = 300

# Older commits than the newest checkpoint that the log keeps, unless they are younger than an hour:
# each commit lists the log, and 14,000 entries take 90 ms.
LOG_ENTRIES_MAX = 1_000

# Epoch files that compaction merges into one file of the next tier.
COMPACTION_FAN_IN = 32
# Files of epochs that never committed are deleted once they are older than this.
ORPHAN_AGE_SECONDS_MIN = 3_600
# Epochs whose multiset files stay apart, so that explanations tell values apart that came and went:
# at least MIN, and an hour of them up to MAX, which an explanation reads.
EXPLAINED_EPOCHS_MIN = 1_024
EXPLAINED_EPOCHS_MAX = 4_096
# Rows of one compacted file; a merge with more writes several files.
COMPACTED_ROWS_MAX = 5_000_000

# A file of changelog, epochs or quarantine of this size is not merged again: it would gain nothing.
COMPACTED_BYTES_MAX = 256 * 1024 * 1024

# Files in one merge, far below the usual 1,024 file descriptors of a process; and rows that a merge
# reads from each at once: this, and one bucket, is what it holds in memory.
MERGE_FILES_MAX = 256
MERGE_BATCH_ROWS = 8_192

# A merge writes row groups of whole buckets with at least this many rows, so that one bucket can be
# read alone. Smaller row groups would be mostly headers.
ROW_GROUP_ROWS_MIN = 65_536

# Rows that a merge holds before it writes them: quarantined messages may be large.
ROW_GROUP_BYTES_MAX = 64 * 1024 * 1024

# After a failed merge the part is not merged for this long; the other parts are.
MERGE_RETRY_SECONDS = 60.0
# Fraction of the wall time that compaction may take.
COMPACTION_SHARE_MAX = 0.2
# How often maintenance looks for work, and how often it deletes old files.
MAINTENANCE_EVERY_SECONDS = 2.0
SWEEP_EVERY_SECONDS = 600.0
# Fraction of the wall time that refreshing the results mirror may take.
MIRROR_SHARE_MAX = 0.05

# Object storage: a wait for the first byte of an answer, and for a whole request.
OBJECT_CONNECT_SECONDS_MAX = 5.0
OBJECT_REQUEST_SECONDS_MAX = 30.0

# An object up to this size is read in one request, even if only some columns are needed.
OBJECT_WHOLE_BYTES_MAX = 8 * 1024 * 1024

# Concurrent requests of one process to object storage, when it needs many objects.
OBJECT_REQUESTS_AT_ONCE = 16

# --- publishing the changelog ---

# Records of one Kafka transaction: far fewer than would time out, and enough to make its own cost
# negligible.
TRANSACTION_RECORDS_MAX = 200_000
TRANSACTION_TIMEOUT_MS = 120_000

# The publisher renders and produces rows in chunks that fit a processor's cache. Their text stays
# far below the 2 GiB of one Arrow text array.
PUBLISH_CHUNK_ROWS = 8_192
PUBLISH_CHUNK_BYTES_MAX = 32 * 1024 * 1024

# KiB of records that wait in the producer: this bounds its memory while the broker is slow.
PUBLISH_BUFFER_KIBIBYTES = 64 * 1024

# Epochs committed but not yet published; at this number the driver waits for the publisher.
PUBLISH_BACKLOG_EPOCHS_MAX = 64

# The publisher retries for so long after its last success, with pauses up to the second number;
# then the job stops, and the supervisor decides.
PUBLISH_GIVE_UP_SECONDS = 600
PUBLISH_PAUSE_SECONDS_MAX = 5

# One blocking call of the publisher; between two calls it checks that its driver still lives.
PUBLISH_CALL_SECONDS_MAX = 30

# A publisher starts in about a second; the coordinator of a new broker may need many.
PUBLISHER_START_SECONDS_MAX = 120
PUBLISHER_STOP_SECONDS_MAX = 60

# A publisher whose driver has died aborts its transaction; then it exits, whatever still hangs.
PUBLISHER_ORPHAN_SECONDS_MAX = 5
# Records at the end of a progress topic that are read first, which nearly always suffice; if not,
# ten times as many are read.
PROGRESS_TAIL_RECORDS = 1_000

# --- the service: requests ---

# A request body is at most a job spec, whose characters JSON may escape.
REQUEST_BYTES_MAX = 2 * SPEC_BYTES_MAX

# A whole request must arrive this long after its first byte, or after the connection was opened.
REQUEST_SECONDS_MAX = 20.0
REQUEST_HEAD_BYTES_MAX = 64 * 1024

# Bytes of a connection are parsed in slices: thousands of small requests must not block others.
PARSED_AT_ONCE_BYTES = 1024

# Unanswered requests of one connection. Few clients pipeline; beyond this the connection is closed.
REQUESTS_UNANSWERED_MAX = 4

# Idle and slow connections. Beyond this the longest idle ones are closed; before, 1,200 of them
# made the service answer 503 to everyone.
WAITING_CONNECTIONS_MAX = 400

# Requests that run or are queued, without followers. An admin gets 503 from here on, a viewer from
# two thirds, an anonymous client from a half.
REQUESTS_AT_WORK_MAX = 600

# Requests started in one round of the event loop. A round also accepts one connection, so with a
# thousand started at once the next client would wait for seconds.
REQUESTS_STARTED_PER_ROUND = 1

# While requests of several roles wait, one start in eight goes to the lowest role.
STARTS_PER_LOWEST_RANK = 8

# Rows on one page of results or of changes: a few megabytes, rendered in well under a second.
PAGE_ROWS_MAX = 10_000
PAGE_ROWS_DEFAULT = 100

# Conditions and sort columns of one listing: more is work for a query engine.
CONDITIONS_MAX = 20
ORDER_COLUMNS_MAX = 8
# A query of results is cancelled after this; longer ones are for a query engine on the table.
QUERY_SECONDS_MAX = 5.0

# SQL over results runs in a process of its own: as much as one core gives in some seconds, and what
# a machine with two jobs has to spare. A browser shows no more rows.
SQL_SECONDS_MAX = 20.0
SQL_MEMORY_BYTES_MAX = 1024 * 1024 * 1024
SQL_GROUPS_MAX = 2_000_000  # of one job
SQL_ROWS_MAX = 100_000  # of an answer
SQL_ANSWER_BYTES_MAX = 64 * 1024 * 1024
SQL_AT_ONCE_MAX = 2

# Concurrent requests that read the table (as_of, explain, diff): each may hold a whole state.
TABLE_READS_MAX = 4

# Followers of all jobs, and requests that wait for an epoch: each is a task and a socket.
FOLLOWERS_MAX = 600

# Fraction of the followers that one token may have, so that others find room.
FOLLOWERS_A_TOKEN_SHARE = 5 / 6

# File descriptors: three quarters serve all connections, one quarter serves the readers of JOBS_MAX
# jobs. If the system grants fewer, the limits of connections shrink.
DESCRIPTORS_WANTED = 8_192

# A follower that reads nothing for this long is disconnected; it resumes with its last id.
FOLLOWER_STALL_SECONDS_MAX = 20.0

# Proxies close a connection that is silent for a minute or more.
HEARTBEAT_SECONDS = 15.0

# A request may wait this long for an epoch or for changes.
WAIT_SECONDS_MAX = 60.0

# --- the service: results index and history ---

# Rows of the newest epochs kept rendered for followers; a follower further behind reads the table.
RECENT_CHANGES_ROWS_MAX = 100_000

# Old versions of rows stay in the index, so that all pages of a listing, and the first snapshot of
# a follower, come from one epoch.
INDEX_HISTORY_SECONDS = 300.0

# Page cache of an index writer in KiB: it holds the pages that every epoch touches.
INDEX_CACHE_KIB = 32 * 1024

# Results of past epochs that stay in memory for the next page of the same listing.
PAST_RESULTS_KEPT_MAX = 4

# A request waits this long for a service that has just started to read the job's table.
SETTLE_SECONDS_MAX = 10.0

# How often the service checks for a new version of a table: one lookup of a file name.
INDEX_POLL_SECONDS = 0.02

# The same in object storage, where each check is a request that costs money.
OBJECT_POLL_SECONDS = 0.5

# Followers of a job wake up in so many groups, so that other requests run in between.
PULSE_SHARES = 200

# Result columns that get an index when a client sorts or filters by them: each index slows down
# every changed row.
INDEXED_COLUMNS_MAX = 4

# History of a job in the console: the newest epochs one by one, and an hour in slots of 10 s. It
# takes at most 400 KB a job.
HISTORY_EPOCHS_MAX = 360
HISTORY_SLOT_SECONDS = 10
HISTORY_SLOTS_MAX = 360
HISTORY_DAY_SLOT_SECONDS = 120
HISTORY_DAY_SLOTS_MAX = 720
HISTORY_SAVE_SECONDS = 60.0
# The size of a table is cached for this long, because reading it scans the log.
STATE_SIZE_SECONDS = 10.0

# --- the service: jobs and operations ---

# How often the supervisor checks its processes.
SUPERVISOR_TICK_SECONDS = 0.2

# The pause before a restart doubles from MIN to MAX; after a run of FORGIVEN seconds it is MIN.
RESTART_PAUSE_SECONDS_MIN = 1.0
RESTART_PAUSE_SECONDS_MAX = 60.0
RESTART_FORGIVEN_SECONDS = 60.0

# A job on a cluster whose tasks run nowhere reports it after REPORTED, and fails after MAX, because
# Spark would wait for ever. A lost executor is replaced within some ten seconds.
EXECUTORS_MISSING_REPORTED_SECONDS = 30.0
EXECUTORS_MISSING_SECONDS_MAX = 120.0
# A stopping job is killed after this: longer than the job gives its epoch and its publisher.
JOB_STOP_SECONDS_MAX = 120.0
# A job's log is rotated at this size; two files are kept. LINES is the limit of one answer.
JOB_LOG_BYTES_MAX = 16 * 1024 * 1024
LOG_LINES_MAX = 1_000
# Jobs of one service: each is a thread of the service.
JOBS_MAX = 500

# Running jobs, unless `retally serve --running-max` sets another number: each has a JVM and a
# Python worker for each core, which take one or two gigabytes.
JOBS_RUNNING_MAX = 16

# Niceness of a job's processes: on a busy machine the job gets a tenth of the service's CPU time.
JOB_NICENESS = 10

# Commands that the service runs as operations (audit, savepoint, rewind): an audit takes longest.
OPERATION_SECONDS_MAX = 3_600.0
OPERATIONS_AT_ONCE_MAX = 2
OPERATIONS_WAITING_MAX = 100
OPERATION_OUTPUT_BYTES_MAX = 4 * 1024 * 1024

# Trials of a user's spec or query: each has its own process, which is killed at these limits. The
# largest spec takes three seconds. Beyond WAITING further trials are refused.
ATTEMPT_SECONDS_MAX = 10.0
ATTEMPT_BYTES_MAX = 512 * 1024 * 1024
ATTEMPTS_AT_ONCE_MAX = 2
ATTEMPTS_WAITING_MAX = 20

# --- the service: access ---

# A browser session ends after a day, or after eight idle hours. Beyond the count, the oldest
# session of the token ends.
SESSION_SECONDS_MAX = 86_400
SESSION_IDLE_SECONDS_MAX = 8 * 3_600
SESSIONS_A_TOKEN_MAX = 50

# The time of a session's last request is saved this often; a killed service loses the rest.
SESSION_SAVE_SECONDS = 600

# A ticket opens one stream, at once.
TICKET_SECONDS_MAX = 30.0
TICKETS_A_TOKEN_MAX = 200

# A replaced token stays valid for a day, so that clients can switch.
TOKEN_OVERLAP_SECONDS = 86_400

# The audit log is rotated at this size. LINES is the limit of one answer.
AUDIT_LOG_BYTES_MAX = 64 * 1024 * 1024
AUDIT_LOG_FILES_MAX = 8
AUDIT_LOG_LINES_MAX = 1_000

# --- the console ---

# Lines and entries on pages that refresh every two seconds; the REST API returns more.
CONSOLE_LOG_LINES = 100
CONSOLE_AUDIT_LOG_LINES = 200
CONSOLE_PARTITIONS = 100
CONSOLE_SAVEPOINTS = 50
CONSOLE_AUDITS = 100
CONSOLE_FAILURES = FAILURES_KEPT = 100  # of each job, with their stacks
CONSOLE_SQL_ROWS = 500

# Sample messages of a topic for the spec editor. All samples together stay below BYTES, except that
# the last message may exceed it. They are cached for KEPT seconds.
SAMPLE_MESSAGES_MAX = 10
SAMPLE_BYTES_MAX = 1024 * 1024
SAMPLE_SECONDS_MAX = 5.0
SAMPLE_PARTITIONS_MAX = 32
TOPICS_SHOWN_MAX = 200  # of a connection, by name
SAMPLE_KEPT_SECONDS = 30.0
# Rows of results, epochs of a group's history, and how many of them show every detail.
CONSOLE_RESULT_ROWS = 50
CONSOLE_HISTORY_EPOCHS = 500
CONSOLE_EPOCHS_DETAILED = 12
# Entries of a multiset (from both ends), and bytes of a message, on one page.
CONSOLE_ENTRIES = 24
CONSOLE_RAW_BYTES = 64 * 1024
# Groups that a quarantined message affects, and quarantined messages on one page.
CONSOLE_AFFECTED_GROUPS = 20
CONSOLE_QUARANTINE_ROWS = 50
# The oldest epoch of a job's history is cached for this long: finding it may read the changelog.
LOOKBACK_SECONDS = 30.0
# Groups of one job whose history stays in memory, and changelog rows of a new live page.
CONSOLE_STORIES_KEPT = 4
CONSOLE_CHANGES_BEFORE = 200
