"""Limits of the service for its clients: requests, results, history, access."""

from __future__ import annotations

from schemas.limits.specs import SPEC_BYTES_MAX

# --- requests ---

# A request body is at most a job spec, whose characters JSON may escape.
REQUEST_BYTES_MAX = 2 * SPEC_BYTES_MAX

# A whole request must arrive this long after its first byte, or after the connection was opened.
REQUEST_SECONDS_MAX = 20.0
REQUEST_HEAD_BYTES_MAX = 64 * 1024

# Shorter answers are sent as they are: a packet has 1,460 bytes.
GZIP_BYTES_MIN = 1_400
# The fastest level. It makes JSON five times smaller; level 9 takes five times as long for a tenth.
GZIP_LEVEL = 1

# The header X-Request-Id; a longer one is replaced. Proxies send 32 to 60.
REQUEST_ID_CHARACTERS_MAX = 128

# The header Idempotency-Key: a UUID has 36 characters.
REQUEST_KEY_CHARACTERS_MAX = 200

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

# Bytes of a quarantined message in a listing; a request for one message returns all of it.
QUARANTINE_PREVIEW_BYTES = 1_024

# Rows of the quarantine that are read at once: without their bytes, and with them, which are at
# most QUARANTINE_BYTES_MAX for each row.
QUARANTINE_SCAN_ROWS = 8_192
QUARANTINE_RAW_ROWS = 32

# Conditions and sort columns of one listing: more is work for a query engine.
CONDITIONS_MAX = 20
ORDER_COLUMNS_MAX = 8
# A query of results is cancelled after this; longer ones are for a query engine on the table.
QUERY_SECONDS_MAX = 5.0

# Instructions of SQLite between two checks of that time.
SQLITE_CHECK_STEPS = 20_000

# SQL over results runs in processes of its own: as much as one core gives in some seconds, and what
# a machine with two jobs has to spare. A browser shows no more rows.
SQL_SECONDS_MAX = 20.0
# After that time DuckDB may be inside one call of a function, which nothing but its process's end
# stops.
SQL_GRACE_SECONDS = 1.0
SQL_MEMORY_BYTES_MAX = 1024 * 1024 * 1024  # of DuckDB
# Of a whole process, beyond what it has before a statement: it also holds the rows of the jobs as
# Python objects, and the answer as text.
SQL_PROCESS_BYTES_MAX = 4 * SQL_MEMORY_BYTES_MAX
SQL_GROUPS_MAX = 2_000_000  # of one job
SQL_ROWS_MAX = 100_000  # of an answer
SQL_BATCH_ROWS = 10_000  # of an answer, that DuckDB converts at once
SQL_ANSWER_BYTES_MAX = 64 * 1024 * 1024  # of an answer, as Arrow and as it is sent
SQL_REPLY_BYTES_MAX = 64 * 1024  # the reason of a refusal, or the epochs of all tables it names
SQL_AT_ONCE_MAX = 2  # one for each token
SQL_AT_ONCE_OF_ADMINS = 1  # beside those, so that others cannot keep an admin from answers
# A statement waits for its turn at most this long: a dashboard sends several at once. More waiting
# ones would not be answered in this time.
SQL_WAIT_SECONDS_MAX = 5.0
SQL_WAITING_MAX = 64
SQL_WAITING_OF_TOKEN_MAX = 16
# A worker ends after so many statements, or with so much memory after one: then what DuckDB or
# Python did not give back goes with it. A new worker takes some milliseconds.
SQL_WORKER_STATEMENTS_MAX = 1_000
SQL_WORKER_BYTES_MAX = 512 * 1024 * 1024
# A worker keeps the results that it has read, as Arrow, until their table has another version.
SQL_KEPT_BYTES_MAX = 64 * 1024 * 1024
SQL_KEPT_TABLES_MAX = 100
# The workers' spawner imports DuckDB, which takes a second of a core. It starts after the readers
# of jobs had theirs, or with the first statement.
SQL_WARM_AFTER_SECONDS = 2.0
SQL_START_SECONDS_MAX = 15.0  # of a worker, and of the spawner before it

# Connections of PostgreSQL clients. A pool of a dashboard has some ten. More are refused, and a
# token leaves half of them to others. Of those that have not signed in, the oldest gives way.
POSTGRES_CONNECTIONS_MAX = 100
POSTGRES_CONNECTIONS_OF_TOKEN_MAX = 50
POSTGRES_WAITING_MAX = 50
POSTGRES_STARTUP_BYTES_MAX = 10_000  # as PostgreSQL has it
POSTGRES_STARTUP_SECONDS_MAX = 10.0
# A message has a statement of QUERY_CHARACTERS_MAX or its parameters, and arrives in one go.
POSTGRES_MESSAGE_BYTES_MAX = 1024 * 1024
POSTGRES_MESSAGE_SECONDS_MAX = 30.0
POSTGRES_IDLE_SECONDS_MAX = 3600.0
POSTGRES_STALL_SECONDS_MAX = 60.0  # of a client that takes nothing of its answer
# Of a connection: prepared statements, or cursors (pgjdbc keeps 256); and the bytes of their texts
# and parameters.
POSTGRES_STATEMENTS_MAX = 300
POSTGRES_KEPT_BYTES_MAX = 4 * 1024 * 1024
POSTGRES_SETTINGS_MAX = 100
# Answers that clients have not read yet, of all connections.
POSTGRES_HELD_BYTES_MAX = 256 * 1024 * 1024
POSTGRES_COLUMNS_MAX = 1_664  # as PostgreSQL has it

# Concurrent reads of tables for requests (as_of, explain, diff, changes that are no longer in
# memory): each may hold a whole state.
TABLE_READS_MAX = 4

# A stream that has to read the table while others do tries again after this.
TABLE_READ_RETRY_SECONDS = 0.2

# Followers of all jobs, and requests that wait for an epoch: each is a task and a socket.
FOLLOWERS_MAX = 600

# Fraction of the followers that one token may have, so that others find room.
FOLLOWERS_A_TOKEN_SHARE = 5 / 6

# File descriptors: three quarters serve all connections, one quarter serves the readers of JOBS_MAX
# jobs. If the system grants fewer, the limits of connections shrink.
DESCRIPTORS_WANTED = 8_192

# A follower that reads nothing for this long is disconnected; it resumes with its last id.
FOLLOWER_STALL_SECONDS_MAX = 20.0

# Rows of an epoch that are rendered on the event loop; larger epochs are rendered in a thread.
STREAM_LOOP_ROWS_MAX = 2_000

# Bytes of a stream that are written at once; a stalled follower keeps them in memory.
STREAM_PIECE_BYTES = 64 * 1024

# Proxies close a connection that is silent for a minute or more.
HEARTBEAT_SECONDS = 15.0

# A request may wait this long for an epoch or for changes.
WAIT_SECONDS_MAX = 60.0

# --- results index and history ---

# Rows of the newest epochs kept rendered for followers; a follower further behind reads the table.
RECENT_CHANGES_ROWS_MAX = 100_000

# Old versions of rows stay in the index, so that all pages of a listing, and the first snapshot of
# a follower, come from one epoch.
INDEX_HISTORY_SECONDS = 300.0

# Page cache of an index writer in KiB: it holds the pages that every epoch touches.
INDEX_CACHE_KIB = 32 * 1024

# Pages in SQLite's log before a checkpoint, 64 MiB: a page of several epochs is copied once.
INDEX_CHECKPOINT_PAGES = 16_000

# Changelog rows that a reader holds while the index catches up.
INDEX_CATCH_UP_ROWS_MAX = 200_000

# Results of past epochs that stay in memory for the next page of the same listing.
PAST_RESULTS_KEPT_MAX = 4

# Changelog rows between two epochs that are compared: they are in memory, with both rows of each
# changed group, until the page is made.
DIFFERENCE_ROWS_MAX = 200_000

# A request waits this long for a service that has just started to read the job's table.
SETTLE_SECONDS_MAX = 10.0

# How often the service checks for a new version of a table: one lookup of a file name.
INDEX_POLL_SECONDS = 0.02

# The same in object storage, where each check is a request that costs money.
OBJECT_POLL_SECONDS = 0.5

# Followers of a job wake up in so many groups, so that other requests run in between.
WAKE_SHARES = 200

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
# A range of charts begins at most this long ago: years of the calendar's ends cannot be written.
CHARTS_SECONDS_BACK_MAX = 10 * 365 * 86_400
# The size of a table is cached for this long, because reading it scans the log.
STATE_SIZE_SECONDS = 10.0

# --- access ---

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

# Characters of a token, a session id or a ticket that are hashed; ours have about fifty.
TOKEN_CHARACTERS_MAX = 200

# The audit log is rotated at this size. LINES is the limit of one answer.
AUDIT_LOG_BYTES_MAX = 64 * 1024 * 1024
AUDIT_LOG_FILES_MAX = 8
AUDIT_LOG_LINES_MAX = 1_000
