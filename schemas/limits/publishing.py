"""Limits of publishing the changelog."""

from __future__ import annotations

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

# Publishers of a job. Each is a process of 70 MiB that reads all rows of an epoch and renders all
# keys, so that with more of them little is gained.
PUBLISHERS_MAX = 8

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
