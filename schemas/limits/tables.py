"""Limits of the Delta table: files, merges, and requests to object storage."""

from __future__ import annotations

# Commits between two checkpoints of the Delta log, and live files from which compaction is overdue:
# commits stayed at 4 ms with these numbers.
CHECKPOINT_EVERY_COMMITS = 100
LIVE_FILES_MAX = 300

# Log entries before the newest checkpoint that stay, however young they are: each commit lists the
# log, and 14,000 entries take 90 ms. Delta also removes those older than an hour.
LOG_ENTRIES_MAX = 1_000

# Attempts of one commit, before the writer stops: object storage may fail a few times in a row.
COMMIT_TRIES_MAX = 5
# Attempts of a start to commit before the older driver does. One takes some requests to the storage
# and an epoch some fifteen, so each succeeds in about half of the cases or more.
CLAIM_TRIES_MAX = 30

# Epoch files that compaction merges into one file of the next tier.
COMPACTION_FAN_IN = 32
# Files of epochs that never committed are deleted once they are older than this.
ORPHAN_AGE_SECONDS_MIN = 3_600
# A shadow job of an interrupted evolve that no command has continued for this long is deleted: a
# week, as the history of a table by default.
SHADOW_UNUSED_SECONDS_MAX = 7 * 86_400
# Epochs whose multiset files stay apart, so that explanations tell values apart that came and went:
# at least MIN, and an hour of them up to MAX, which an explanation reads.
EXPLAINED_EPOCHS_MIN = 1_024
EXPLAINED_EPOCHS_MAX = 4_096
# Joined rows that an explanation of a group has; join keys that it reads for them, and rows of each
# side, of which a million pairs are joined in a second. Of sides with more stored rows than these
# it has none: reading them takes seconds.
EXPLAINED_ROWS_MAX = 100
EXPLAINED_KEYS_MAX = 1_000
EXPLAINED_SIDE_ROWS_MAX = 1_000
EXPLAINED_STORED_ROWS_MAX = 4_000_000
EXPLAINED_SCAN_ROWS = 65_536  # at once
# Rows of one compacted file; a merge with more writes several files.
COMPACTED_ROWS_MAX = 5_000_000

# A file of changelog, epochs or quarantine of this size is not merged again: it would gain nothing.
COMPACTED_BYTES_MAX = 256 * 1024 * 1024

# The first rows of a file, which say whether a dictionary suits a column.
ENCODING_SAMPLE_ROWS = 1_000

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
# Sooner after a start: a job that fails again and again leaves files at each attempt.
FIRST_SWEEP_SECONDS = 30.0
# How often the results mirror is refreshed without the key `mirror`: dashboards look each minute.
MIRROR_DEFAULT_MS = 60_000
# With more groups a job has a mirror only if its spec says so: the first copy takes long.
MIRROR_DEFAULT_GROUPS_MAX = 1_000_000
# What refreshing the mirrors of a job may take of the job's processor time, or of one core if that
# is more: a job that does little disturbs nobody. And of the time, so that 99 of 100 changes wait
# for no refresh.
MIRROR_SHARE_MAX = 0.05
MIRROR_CORE_SHARE = 0.01
MIRROR_TIME_SHARE_MAX = 0.01
# How often a mirror that is due asks whether it has rested enough.
MIRROR_CHECK_SECONDS = 5.0
# How long files of the mirror that a refresh has replaced stay, for readers of an older version.
MIRROR_REPLACED_SECONDS = 3_600.0

# Object storage: a wait for the first byte of an answer, and for a whole request.
OBJECT_CONNECT_SECONDS_MAX = 5.0
OBJECT_REQUEST_SECONDS_MAX = 30.0

# An object up to this size is read in one request, even if only some columns are needed.
OBJECT_WHOLE_BYTES_MAX = 8 * 1024 * 1024

# Concurrent requests of one process to object storage, when it needs many objects.
OBJECT_REQUESTS_AT_ONCE = 16
# Rows of a table that a reader of its results holds at once.
TABLE_BATCH_ROWS = 20_000
# Changelog rows that `retally changes` converts to Python objects at once.
CHANGES_SLICE_ROWS = 8_192
# Attempts to read the newest version of a table, while the job deletes files of older versions.
TABLE_READ_TRIES_MAX = 5
# Attempts to save an epoch whose files are all there: merges replace files meanwhile.
SAVEPOINT_TRIES_MAX = 5
