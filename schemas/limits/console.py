"""Limits of the console's pages."""

from __future__ import annotations

# Lines and entries on pages that refresh every two seconds; the REST API returns more.
CONSOLE_LOG_LINES = 100
CONSOLE_AUDIT_LOG_LINES = 200
CONSOLE_PARTITIONS = 100
CONSOLE_SAVEPOINTS = 50
CONSOLE_AUDITS = 100
CONSOLE_FAILURES = FAILURES_KEPT = 100  # of each job, with their stacks
CONSOLE_SQL_ROWS = 500
CONSOLE_NEWEST_CHANGES = 10  # of all jobs together
CONSOLE_NEWEST_EPOCHS = 50  # of each job, in which they are looked for
CONSOLE_DISK_FREE_SHARE_MIN = 0.1  # as the alert RetallyDiskAlmostFull
BROKERS_ASKED_AT_ONCE_MAX = 16  # by the page about health, for SAMPLE_SECONDS_MAX

# Sample messages of a topic, for the spec editor and suggestions. A longer message is cut; older
# messages that exceed BYTES together are left out. They are cached for KEPT seconds.
SAMPLE_MESSAGES_MAX = 10
SAMPLE_BYTES_MAX = 1024 * 1024
SAMPLE_KEY_BYTES_MAX = 16 * 1024
SAMPLE_SECONDS_MAX = 5.0
SAMPLE_PARTITIONS_MAX = 32
TOPICS_SHOWN_MAX = 200  # of a connection, by name
SAMPLE_KEPT_SECONDS = 30.0
SAMPLES_KEPT_MAX = 16  # topics whose samples are cached: at most 16 MiB
# Bytes that a request for samples fetches from a partition at once, before they are unpacked.
SAMPLE_FETCH_BYTES = 4 * SAMPLE_BYTES_MAX
# A suggestion groups by texts up to this length, and reads so much of MySQL's name of a type, whose
# parts of interest come first.
LABEL_CHARACTERS_MAX = 64
TYPE_CHARACTERS_MAX = 100
# MySQL has at most 16 columns in a key, and 64 characters in the name of a table.
KEY_COLUMNS_MAX = 16
TABLE_CHARACTERS_MAX = 64
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
GROUP_SNAPSHOTS_KEPT = 4
CONSOLE_CHANGES_BEFORE = 200
