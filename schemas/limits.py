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

# A reason with all around it, in any alphabet; kept free on the disk for when it is full.
FAILURE_BYTES_MAX = 4 * 1024

# Schemas inside messages that a decoder knows at once: a table has one, and another after an ALTER.
MESSAGE_SCHEMAS_MAX = 100

# Conversions of text that a column remembers; canal repeats few distinct values in most columns.
MEMO_ENTRIES_MAX = 100_000

# Values that were read from their keys, and values of several columns, which repeat less: so many
# are remembered of each argument and bucket.
ROW_MEMO_ENTRIES_MAX = 10_000

# Logical buckets of a job's state; fixed for its life, so there is room above the default of 32.
BUCKETS_MAX = 4_096

# Records of an epoch's ranges, on average, below which a core reads several of them in one task.
SMALL_RANGE_RECORDS = 5_000

# Room for the throw-away checkpoint of a run; what has less free is not written to.
SCRATCH_BYTES_MIN = 8 * 1024 * 1024

# Rows of an epoch that one fold task takes before another task is worth its start-up cost.
FOLD_TASK_ROWS = 8_000

# Tasks of a Python worker between two searches for garbage in cycles; one search walks all that the
# worker remembers, and tasks leave little behind.
TASKS_UNSEARCHED_MAX = 1_000

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

# Commits that the log keeps from before its newest checkpoint, if they are not older than an hour:
# every commit lists it, and 14,000 entries take 90 ms.
LOG_ENTRIES_MAX = 1_000

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
EXPRESSION_NODES_MAX = 5_000
# Parentheses, CASEs and prefix operators inside each other: what the parser's own recursion bears.
QUERY_NESTING_MAX = 40
COLUMNS_MAX = 1_000

# A job spec or a connections file: a thousand columns take 30 KB, so this is generous, and parsing
# stays near a second in the worst case. Nodes are counted with aliases written out.
SPEC_BYTES_MAX = 256 * 1024
SPEC_DEPTH_MAX = 32
SPEC_NODES_MAX = 20_000

# Problems named for one spec; beyond it nobody reads on.
PROBLEMS_MAX = 100

# Durations and whole numbers as users write them: a hundred years, and below 2^53 so that JSON
# carries every one exactly.
DURATION_MS_MAX = 100 * 366 * 86_400_000
COUNT_MAX = 2**53 - 1

# Kafka: a topic name's own bound, and sane ones of ours for what one job reads and writes.
TOPIC_CHARACTERS_MAX = 249
TOPICS_MAX = 100
TOPIC_PARTITIONS_MAX = 10_000

# Regular expressions over database and table names.
PATTERN_CHARACTERS_MAX = 500

# Characters of a number in a message: far beyond any column, far below where big-integer
# arithmetic gets slow; Jackson, and so Flink, draws the line at the same place.
NUMBER_CHARACTERS_MAX = 1_000

# Address space of a bucket's hot state at first: sparse, so it costs nothing; doubled when full.
HOT_STATE_MAP_BYTES = 1 << 30

# Records that one write transaction of the hot state takes before it commits: what catching up and
# rebuilding hold in memory.
HOT_STATE_CHUNK_RECORDS = 200_000

# Hot states that one worker keeps open: each has two file descriptors of the usual 1,024.
HOT_STATES_OPEN_MAX = 256

# The embedded broker: it starts in 4 s on an idle machine and gets a minute on a busy one; it
# takes messages far above MESSAGE_BYTES_MAX, because other people's brokers do.
BROKER_START_SECONDS_MAX = 60
BROKER_STOP_SECONDS_MAX = 15
BROKER_MESSAGE_BYTES_MAX = 80 * 1024 * 1024

# A task writes its rejects to a file whenever it holds so many bytes of them, so that a flood of
# large bad messages cannot fill a worker's memory.
QUARANTINE_FILE_BYTES = 32 * 1024 * 1024

# Up to this size a message has no room to nest so deep (512 levels) that a parser runs out of
# stack, and to count its brackets would cost as much as to parse it.
SHORT_MESSAGE_BYTES_MAX = 1_024

# Messages over which the fraction of bad ones is taken; a single bad message of a quiet topic
# must not stop a job.
BAD_FRACTION_MESSAGES_MIN = 100

# Recent epochs whose files the fold tasks are told; a bucket that lags further reads the table.
LINE_EPOCHS = 256

# Kafka administration: one request is answered in milliseconds; a broker that restarts, in seconds.
KAFKA_ADMIN_SECONDS_MAX = 30

# The publisher renders and produces rows in pieces that stay in the processor's caches, and whose
# text is far below the 2 GiB that one Arrow array of text may hold.
PUBLISH_CHUNK_ROWS = 8_192
PUBLISH_CHUNK_BYTES_MAX = 32 * 1024 * 1024

# Memory of records that wait in the producer for the broker.
PUBLISH_BUFFER_KIBIBYTES = 64 * 1024

# Epochs that were committed but not yet published before the driver waits for its publisher.
PUBLISH_BACKLOG_EPOCHS_MAX = 64

# A publisher tries again for this long after its last success, pausing at most so long between
# two attempts; then the job stops with the reason, and its supervisor decides.
PUBLISH_GIVE_UP_SECONDS = 600
PUBLISH_PAUSE_SECONDS_MAX = 5

# One blocking call of the publisher to Kafka; it looks after its parent between two calls.
PUBLISH_CALL_SECONDS_MAX = 30

# A publisher starts in about a second; a fresh broker's coordinator may need many.
PUBLISHER_START_SECONDS_MAX = 120
PUBLISHER_STOP_SECONDS_MAX = 60

# A publisher whose driver is gone aborts; what hangs longer than this in a library is left alone.
PUBLISHER_ORPHAN_SECONDS_MAX = 5

# Records at the end of a progress topic that are read first; the newest is nearly always among
# them, and ten times as many are read when it is not.
PROGRESS_TAIL_RECORDS = 1_000

# Rows in one compacted file; beyond it a merge writes several.
COMPACTED_ROWS_MAX = 5_000_000

# Of the time that passes, what merging may take at most.
COMPACTION_SHARE_MAX = 0.2

# How often maintenance looks for work, and sweeps.
MAINTENANCE_EVERY_SECONDS = 2.0
SWEEP_EVERY_SECONDS = 600.0

# How often the job reports its offsets under its consumer group.
GROUP_OFFSETS_EVERY_SECONDS = 5.0

# A running epoch is given so long to finish when the job is told to stop.
STOP_SECONDS_MAX = 30.0

# Of the time that passes, what refreshing the results mirror may take at most.
MIRROR_SHARE_MAX = 0.05

# A merge is written in row groups of whole buckets and at least so many rows, so that one bucket
# is read back without the others; smaller ones would be all header.
ROW_GROUP_ROWS_MIN = 65_536

# Memory of rows that a merge has not yet written: what quarantine keeps of a message may be large.
ROW_GROUP_BYTES_MAX = 64 * 1024 * 1024

# A file of changelog, epochs or quarantine that is as large as this gains nothing by being merged.
COMPACTED_BYTES_MAX = 256 * 1024 * 1024

# Files that one merge takes: far below the 1,024 files that a process may have open.
MERGE_FILES_MAX = 256

# Rows that a merge reads of each file at once. What it holds is so many of each, and one bucket.
MERGE_BATCH_ROWS = 8_192

# A part whose merge failed rests for so long; the others are merged meanwhile.
MERGE_RETRY_SECONDS = 60.0

# A multiset of the hot state is one record up to this size, which is about a hundred values; one
# that would fill half a page of LMDB has an entry for each value instead.
HOT_STATE_SMALL_MULTISET_BYTES = 1_024

# A group expires this part of its TTL late at most, so that many groups make few epochs.
EXPIRY_LATE_PARTS = 100

# Bytes in one batch of rows on their way to Python.
ARROW_BATCH_BYTES_MAX = 64 * 1024 * 1024

# Bytes of rows that go to a fold task as one value; a row that is larger goes alone.
PARCEL_BYTES_MAX = 16 * 1024 * 1024

# Rows that one task holds at once, as Arrow has them. An epoch with more of them for some task is
# computed in parts. Well below 2 GiB, where the offsets of an Arrow text column end.
TASK_BYTES_MAX = 256 * 1024 * 1024

# A job of an alignment group that has told nothing for so many rounds, and for at least so many
# milliseconds, has ended or hangs; the group goes on without it.
ALIGNMENT_SILENCE_EVERIES = 10
ALIGNMENT_SILENCE_MS_MIN = 10_000

# Windows of HOP that one row may be in: each is a row of its own from there on, so an epoch of
# max_rows becomes so many times as large. A day that slides by five minutes.
WINDOWS_OF_A_ROW_MAX = 288

# The service. A request's body is a job spec at most; JSON of one may spell characters as escapes.
REQUEST_BYTES_MAX = 2 * SPEC_BYTES_MAX

# A request has to be there, body and all, so many seconds after its first byte, or after its
# connection where it is the first one; and its head has a bound of its own.
REQUEST_SECONDS_MAX = 20.0
REQUEST_HEAD_BYTES_MAX = 64 * 1024

# A request's bytes are parsed in slices, so that thousands of small ones are not parsed in one go.
PARSED_AT_ONCE_BYTES = 1024

# Requests that one connection may have unanswered. Hardly any client sends the next one before the
# answer to the last; after so many the rest is dropped, and the connection closed.
REQUESTS_UNANSWERED_MAX = 4

# Connections on which nothing is asked, or not yet all, or whose answers nobody takes: of more,
# those that have waited longest are closed.
WAITING_CONNECTIONS_MAX = 400

# Requests that are at work or wait for their turn, beside the followers. An admin's are refused
# from here on, those of others before: a viewer's from two thirds, a stranger's from a half.
REQUESTS_AT_WORK_MAX = 600

# Requests that begin in one round of the event loop. A round takes one new connection, so with a
# few milliseconds for each a thousand of them would make the next one wait for seconds.
TURNS_A_ROUND = 1

# While requests of several ranks wait, so many turns have one of the lowest rank among them.
TURNS_FOR_THE_LAST = 8

# Rows of one page of results or of changes: a few megabytes, rendered in well under a second.
PAGE_ROWS_MAX = 10_000
PAGE_ROWS_DEFAULT = 100

# Conditions, and columns to order by, of one listing: more is a query engine's work.
CONDITIONS_MAX = 20
ORDER_COLUMNS_MAX = 8

# A question to the results that takes longer is stopped; the state is open to query engines.
QUERY_SECONDS_MAX = 5.0

# Questions that read the table itself (the past, explain, diff): so many at once, others are
# refused, because each may hold a whole state in memory.
TABLE_READS_MAX = 4

# Followers of changes over all jobs, and requests that wait for an epoch: each is a task and a
# socket.
FOLLOWERS_MAX = 600
# Of them one token has at most so many, so that others find room beside it.
FOLLOWERS_A_TOKEN_SHARE = 5 / 6

# Open files that the service asks the system for: three quarters are more than enough for the
# connections of all bounds, a quarter for the readers of JOBS_MAX jobs. With fewer, the bounds on
# connections are lowered.
DESCRIPTORS_WANTED = 8_192

# A follower that takes nothing for so long is dropped; it comes back with its last id.
FOLLOWER_STALL_SECONDS_MAX = 20.0

# Proxies drop what is silent for a minute or more.
HEARTBEAT_SECONDS = 15.0

# How long a request may wait for an epoch, or for changes.
WAIT_SECONDS_MAX = 60.0

# Rows of the newest epochs that are kept rendered for followers; who is behind reads the table.
RECENT_CHANGES_ROWS_MAX = 100_000

# Old versions of rows stay in the results index for so long, so that pages of one listing, and
# the snapshot that a follower begins with, come from one epoch.
INDEX_HISTORY_SECONDS = 300.0

# What the writer of a results index keeps of it in memory, in KiB: pages that every epoch touches.
INDEX_CACHE_KIB = 32 * 1024

# Results of past epochs that were rebuilt from the table and are kept for the next page of them.
PAST_RESULTS_KEPT_MAX = 4

# How long a request waits for a service that has just begun to read a job's table.
SETTLE_SECONDS_MAX = 10.0

# How often the service looks for a job's next version: one look at a file name.
INDEX_LOOK_SECONDS = 0.02

# The same for a table in object storage, where each look is a request that costs money.
OBJECT_LOOK_SECONDS = 0.5

# Requests to object storage: until somebody answers, and until an answer goes on.
OBJECT_CONNECT_SECONDS_MAX = 5.0
OBJECT_REQUEST_SECONDS_MAX = 30.0

# An object up to this size is read in one request, whatever columns of it are wanted.
OBJECT_WHOLE_BYTES_MAX = 8 * 1024 * 1024

# Requests of one process to object storage at the same time, where there are many to be made.
OBJECT_REQUESTS_AT_ONCE = 16

# Those who follow a job are woken in so many shares, so that other requests come in between.
PULSE_SHARES = 200

# How often the supervisor looks after its processes.
SUPERVISOR_TICK_SECONDS = 0.2

# Pauses before a failed job is started again: doubled each time up to the bound; a job that ran
# for so long begins with the first one.
RESTART_PAUSE_SECONDS_MIN = 1.0
RESTART_PAUSE_SECONDS_MAX = 60.0
RESTART_FORGIVEN_SECONDS = 60.0

# A job that was told to stop is killed after this: longer than it gives its own epoch and its
# publisher.
JOB_STOP_SECONDS_MAX = 120.0

# One job's log before its older half is moved aside; two such files are kept.
JOB_LOG_BYTES_MAX = 16 * 1024 * 1024
LOG_LINES_MAX = 1_000

# Jobs of one service: each is a thread here and a process with a JVM beside it.
JOBS_MAX = 500

# Jobs that run at once unless `retally serve --running-max` says more: each is a JVM and a Python
# worker for each core, a gigabyte or two in all.
JOBS_RUNNING_MAX = 16

# A command that the service runs for an operation (audit, savepoint, rewind).
OPERATION_SECONDS_MAX = 3_600.0
OPERATIONS_AT_ONCE_MAX = 2
OPERATIONS_WAITING_MAX = 100
OPERATION_OUTPUT_BYTES_MAX = 4 * 1024 * 1024

# A browser's session ends after so long, or after so long without a request. Of one token's
# sessions the oldest goes when there are too many.
SESSION_SECONDS_MAX = 86_400
SESSION_IDLE_SECONDS_MAX = 8 * 3_600
SESSIONS_A_TOKEN_MAX = 50
# A session's last request is written down so often; a killed service forgets the time since.
SESSION_NOTED_SECONDS = 600

# A ticket is for a stream that begins at once.
TICKET_SECONDS_MAX = 30.0
TICKETS_A_TOKEN_MAX = 200

# A token that another of its name replaces goes on working so long.
TOKEN_OVERLAP_SECONDS = 86_400

# The trail of changes before it is moved aside; lines of it that are told at once.
TRAIL_BYTES_MAX = 64 * 1024 * 1024
TRAIL_FILES_MAX = 8
TRAIL_LINES_MAX = 1_000

# A task that hears nothing of its range for so long gives up, and the job ends with the reason.
KAFKA_READ_SECONDS_MAX = 60.0

# Records that a task takes from Kafka at once; bytes of one fetch; what is fetched ahead, in KiB.
RANGE_RECORDS_AT_ONCE = 4_000
RANGE_FETCH_BYTES = 1024 * 1024
RANGE_QUEUE_KIB = 2_048

# Messages that are decoded column by column: few enough that their objects stay in a processor's
# cache, and that one odd message holds up few others. And how many pieces of them are decoded
# message by message at most before the faster way is tried again.
PLAIN_MESSAGES_AT_ONCE = 800
ODD_PIECES_MAX = 32

# A range is cut into pieces for several tasks, but not into smaller ones than so many offsets.
RANGE_PIECE_RECORDS_MIN = 20_000

# Columns of a job's results that get an index of their own once somebody orders or filters by
# them: each costs some time for every changed row.
INDEXED_COLUMNS_MAX = 4

# Characters that LPAD, RPAD and REPEAT may make of one value: with any number of rows they stay
# small beside the message that the value came in.
TEXT_CHARACTERS_MADE_MAX = 10_000

# What STRING_AGG, ARRAY_AGG and TOP_K put into one value: four bytes a character stay below the
# 1 MiB that a record of Kafka has by default. Longer ones are NULL, and counted.
LIST_CHARACTERS_MAX = 250_000
LIST_VALUES_MAX = 50_000

# k of TOP_K: each change of a group reads so many entries.
TOP_K_MAX = 1_000

# Grouping sets of a query: a row counts in each of them, so an epoch becomes so many times as
# large. CUBE over six columns.
GROUPING_SETS_MAX = 64

# What the console shows of how a job went: its newest epochs one by one, and the last hour in
# slots of ten seconds; 200 KB a job at most.
COURSE_EPOCHS_MAX = 360
COURSE_SLOT_SECONDS = 10
COURSE_SLOTS_MAX = 360

# How long the size of a job's table is told again before it is looked at anew, in its log.
STATE_SIZE_SECONDS = 10.0

# Work on what a user gives to be tried (a spec that is checked, a query on sample messages): each
# has a process of its own, which is ended when it passes one of these. A spec of the largest size
# takes three seconds. So many are at work at once, and so many are taken before others are refused.
ATTEMPT_SECONDS_MAX = 10.0
ATTEMPT_BYTES_MAX = 512 * 1024 * 1024
ATTEMPTS_AT_ONCE_MAX = 2
ATTEMPTS_WAITING_MAX = 20

# What pages show of logs, of what was done, of partitions and savepoints: they are taken anew every
# two seconds. More is behind the REST API.
CONSOLE_LOG_LINES = 100
CONSOLE_OPERATIONS = 10
CONSOLE_TRAIL_LINES = 200
CONSOLE_PARTITIONS = 100
CONSOLE_SAVEPOINTS = 50

# The newest messages of a topic that the console shows to whoever writes a spec: so many in all,
# read in so many bytes and seconds from so many partitions, and shown again from memory for a
# while. A message may be as large as its broker allows, so the last one may pass the bound.
SAMPLE_MESSAGES_MAX = 10
SAMPLE_BYTES_MAX = 1024 * 1024
SAMPLE_SECONDS_MAX = 5.0
SAMPLE_PARTITIONS_MAX = 32
SAMPLE_KEPT_SECONDS = 30.0

# What the console shows at once: results on a page, epochs of a group's course (newest ones) and
# those of them that are told in full, entries of a multiset (from both ends), bytes of a message.
CONSOLE_RESULT_ROWS = 50
CONSOLE_COURSE_EPOCHS = 500
CONSOLE_EPOCHS_TOLD = 12
CONSOLE_ENTRIES = 24
CONSOLE_RAW_BYTES = 64 * 1024

# Groups that the page of a refused message names.
CONSOLE_AFFECTED_GROUPS = 20
CONSOLE_QUARANTINE_ROWS = 50

# Groups whose MAX went down (or MIN up) lately: so many are remembered, out of so many epochs and,
# for one request, about so many rows of the changelog.
CONSOLE_RETREATS = 20
CONSOLE_RETREATS_EPOCHS = 200
CONSOLE_RETREATS_ROWS = 20_000

# How long it is remembered how far back a job's history goes: a look may read its changelog.
LOOKBACK_SECONDS = 30.0

# Groups of one job whose story the console keeps in memory, while no epoch comes.
CONSOLE_STORIES_KEPT = 4

# Rows of the changelog that the console's live page begins with.
CONSOLE_CHANGES_BEFORE = 200

# Operations of a job that the console's page of audits lists.
CONSOLE_AUDITS = 100

# Niceness of the session of a job that a service started, where both are on one machine: the job
# has a tenth of the weight of the service, when both want the same processor.
JOB_NICENESS = 10
