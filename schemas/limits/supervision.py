"""Limits of the jobs and operations of a service."""

from __future__ import annotations

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

# What a job needs of its process at least. A Spark JVM has up to DESCRIPTORS files open, most of
# them jars, and ended at its start with 256. It reserves ADDRESS bytes, of which it uses little.
JOB_DESCRIPTORS_MIN = 512
JOB_ADDRESS_BYTES_MIN = 4 * 1024 * 1024 * 1024

# Jobs of one shared Spark JVM (`retally serve --jobs-per-driver`): its end is the end of all.
JOBS_PER_DRIVER_MAX = 16
# The start of a shared JVM, on a busy machine.
DRIVER_START_SECONDS_MAX = 120.0
# A shared JVM without a job ends after this; a job that restarts needs it again within a second.
DRIVER_IDLE_SECONDS_MAX = 10.0
# A shared JVM that does not answer for so long is killed, so that its jobs start again: the longest
# pause of a heap of one gigabyte is a few seconds, on a busy machine too.
DRIVER_SILENT_SECONDS_MAX = 30.0
# Its log is truncated at this size.
DRIVER_LOG_BYTES_MAX = 4 * 1024 * 1024

# Niceness of a job's processes: on a busy machine the job gets a tenth of the service's CPU time.
JOB_NICENESS = 10

# Commands that the service runs as operations: a replay or an audit reads a whole topic.
OPERATION_SECONDS_MAX = 24 * 3_600.0
# A broker's answer to a request for end offsets.
LAG_ANSWER_MS_MAX = 5_000
# Commands that a request waits for, such as those on offsets.
SHORT_COMMAND_SECONDS_MAX = 120.0
OPERATIONS_AT_ONCE_MAX = 2
OPERATIONS_WAITING_MAX = 100
OPERATION_OUTPUT_BYTES_MAX = 4 * 1024 * 1024
# Messages of the quarantine that one operation resends: each is read, sent and confirmed by itself.
RESENT_AT_ONCE_MAX = 1_000

# Groups with differences that an audit reports; the others are only counted.
DIFFERENCES_SHOWN_MAX = 20

# Services on one data directory: how often the leader says that it is alive, and a standby looks.
# After SILENT seconds without a sign the leader has lost its term: so long a pause of the whole
# process is a hang, and a start of a service takes some three seconds more.
LEADER_BEAT_SECONDS = 2.0
LEADER_WATCH_SECONDS = 0.5
LEADER_SILENT_SECONDS_MAX = 8.0
# How long a standby waits for the very first start of the leader, and the longest address that one
# may note in its lock's file.
FIRST_START_SECONDS_MAX = 60.0
ADDRESS_CHARACTERS_MAX = 200
# How often a service that only reads looks for new, changed and deleted jobs.
REGISTER_POLL_SECONDS = 0.5

# Trials of a user's spec or query: each has its own process, which is killed at these limits. The
# largest spec takes three seconds. Beyond WAITING further trials are refused.
ATTEMPT_SECONDS_MAX = 10.0
ATTEMPT_BYTES_MAX = 512 * 1024 * 1024
ATTEMPTS_AT_ONCE_MAX = 2
ATTEMPTS_WAITING_MAX = 20
# The start of such a process, on a busy machine.
ATTEMPT_START_SECONDS_MAX = 5.0
