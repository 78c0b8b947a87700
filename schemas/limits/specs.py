"""Limits of job specs and queries."""

from __future__ import annotations

# Identifiers of retally and of users: letters, digits and underscores.
IDENTIFIER_CHARACTERS_MAX = 63
JOB_NAME_CHARACTERS_MAX = 40
LABELS_MAX = 16  # of a job

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

# Windows of HOP or CUMULATE of one row. Each adds a row to the epoch, so max_rows is multiplied by
# this at most. 288 is a day that slides by five minutes.
WINDOWS_OF_A_ROW_MAX = 288

# A change of a group reads k entries of TOP_K.
TOP_K_MAX = 1_000
# Characters of one value of STRING_AGG, ARRAY_AGG and TOP_K: at four bytes each it fits a Kafka
# record of 1 MiB. Longer values become NULL and are counted.
LIST_CHARACTERS_MAX = 250_000
LIST_VALUES_MAX = 50_000

# Timers of an operator's class that fire in one group when its value is computed, from its first
# row on: a timer each minute of two months. More are taken for a timer that sets itself for ever.
CLASS_TIMERS_MAX = 100_000

# Characters that LPAD, RPAD and REPEAT return for one value: small beside the message.
TEXT_CHARACTERS_MAX = 10_000
# A job spec or a connections file: a thousand columns take 30 KB, and the worst case parses in
# about a second. Nodes are counted with aliases expanded.
SPEC_BYTES_MAX = 256 * 1024
SPEC_DEPTH_MAX = 32
SPEC_NODES_MAX = 20_000

# The path of a directory of files: a job uses it as the name of a topic, in every epoch row.
FILES_PATH_CHARACTERS_MAX = 500

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

# Queries over one source, each with a publication of its own in the transaction of an epoch.
VIEWS_MAX = 32
# Sources of a job, and joins of a query: each join keeps the rows of both of its sides as state.
SOURCES_MAX = 8
JOINS_MAX = 6

# Characters of the path of a snapshot, and the parts of one: each is an epoch.
PATH_CHARACTERS_MAX = 1_000
SNAPSHOT_PARTS_MAX = 10_000
