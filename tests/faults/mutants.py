"""Deliberate breaks of the core, each a line of it, with the fast tests that must notice.

A mutant is a file below jobs/core, what stands there, what stands there instead, and the tests that
it concerns. They are the measure of the tests: a mutant that lives shows what nobody looks at.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str  # below jobs/core
    before: str  # occurs exactly once
    after: str
    tests: tuple[str, ...]  # below tests

    @property
    def says(self) -> str:
        return f"{self.file}: {self.after.strip().splitlines()[0] if self.after.strip() else '-'}"


LAWS = ("core/test_laws.py",)
FOLD = ("core/test_aggregate.py", "core/test_accumulators.py", "core/test_program.py")
JUDGED = (*FOLD, "core/test_aggregate_histories.py", "core/test_histories.py")
TIME = ("core/test_fold_time.py", "core/test_window_closing.py")
HISTORIES = ("core/test_consolidate.py", "core/test_histories.py")
DECODE = ("core/test_decode.py", "core/test_values.py")
STATE = ("core/test_state.py", "core/test_order_key.py", "core/test_bucket.py")
DEDUPE = ("core/test_dedupe.py",)
CLOCKS = (
    "core/test_valve.py", "core/test_idleness.py", "core/test_timers.py", "core/test_minibatch.py",
    "core/test_generators.py", "core/test_job_time.py",
)  # fmt: skip
SIMULATION = ("simulation/test_simulation.py",)

MUTANTS = [
    Mutant("laws.py", "if key in seen:", "if False:", LAWS),
    Mutant("laws.py", "    if waiting:\n        raise", "    if False:\n        raise", LAWS),
    Mutant("laws.py", "repr(before) != repr(row)", "False", LAWS),
    Mutant("laws.py", "if read != sum(parts.values()):", "if read < sum(parts.values()):", LAWS),
    Mutant(
        "aggregate.py",
        "            self.changelog.append((Op.UPDATE_BEFORE, key, old.result))\n",
        "",
        FOLD,
    ),
    Mutant("aggregate.py", "if position < delta[FIRST_PLUS]:", "if False:", HISTORIES),
    Mutant(
        "aggregate.py",
        "results.see(argument, changed, largest, smallest, lost)",
        "results.see(argument, changed, smallest, largest, lost)",
        FOLD,
    ),
    Mutant(
        "aggregate.py",
        "self.upserts.multisets += emptied(self.program, self.state, key)",
        "pass",
        FOLD,
    ),
    Mutant("aggregate.py", "if due > self.now_ms:", "if due >= self.now_ms:", TIME),
    Mutant("aggregate.py", "held = UNSHOWN if unshown else WITHHELD", "held = WITHHELD", TIME),
    Mutant("aggregate.py", "if timer is None or timer > due:", "if timer is None:", TIME),
    Mutant(
        "consolidate.py",
        "is_head = np.arange(never) < first_plus[numbers]",
        "is_head = np.zeros(never, bool)",
        HISTORIES,
    ),
    Mutant("consolidate.py", "~(start + before)", "(start + before)", HISTORIES),
    Mutant(
        "consolidate.py",
        "told[np.unique(groups[places], return_index=True)[1]] = True",
        "pass",
        HISTORIES,
    ),
    Mutant("accumulators/sum.py", 'f"if {count} == 0:"', 'f"if {count} < 0:"', JUDGED),
    Mutant("accumulators/sum.py", "{value} * {weight}", "{value}", FOLD),
    Mutant("accumulators/sum.py", "exact_float({value}) * {weight}",
           "exact_float({value})", JUDGED),
    Mutant("accumulators/sum.py", "<= {high}:", "< {high}:", FOLD),
    Mutant("accumulators/sum.py", 'f"elif {value} > 0:"', 'f"elif {value} < 0:"', JUDGED),
    Mutant("accumulators/count.py", "+= {weight}", "+= 1", FOLD),
    Mutant("accumulators/multiset.py", '"ANY_VALUE",\n        "smallest"',
           '"ANY_VALUE",\n        "largest"', (*FOLD, "core/test_aggregate_histories.py")),
    Mutant(
        "rounding.py",
        "(2 * abs(numerator) + abs(denominator))",
        "(2 * abs(numerator))",
        ("core/test_rounding.py",),
    ),
    Mutant("present.py", "if times > 0 and place not in changed:", "if place not in changed:",
           HISTORIES),
    Mutant(
        "present.py",
        "coming[-1] > place if descending else coming[-1] < place",
        "coming[-1] < place if descending else coming[-1] > place",
        (*STATE, "core/test_aggregate_histories.py"),
    ),
    Mutant("present.py", "if times == rank:", "if False:", ("core/test_aggregate_histories.py",)),
    Mutant("order_key.py", "pack_double(v).translate(FLIP)", "pack_double(v)", STATE),
    Mutant("order_key.py", "v.encode().replace(NULL, ESCAPED_NUL) + END",
           "v.encode() + END", STATE),
    Mutant("bucket.py", 'crc32(b"\\x00", hashed)', 'crc32(b"\\x01", hashed)', STATE),
    Mutant("kafka_partition.py", "(murmur2(key) & _POSITIVE)", "murmur2(key)",
           ("core/test_kafka_partition.py",)),
    Mutant("state.py", "        if multiplicity:", "        if multiplicity > 0:", STATE),
    Mutant("decode.py", "if len(old) < len(data):", "if False:", DECODE),
    Mutant("decode.py", "((-1, {self._fields.tuple_code('before')}))",
           "((-1, {self._fields.tuple_code('after')}))", DECODE),
    Mutant("json_text.py", "    if len(value) > bytes_max:\n        raise",
           "    if False:\n        raise", DECODE),
    Mutant("json_text.py", 'return b"[" in brackets', "return False", DECODE),
    Mutant("row_fields.py", " is not int or not {low} <= {value} <= {high}:",
           " is not int:", DECODE),
    Mutant("row_fields.py", "            else value\n", "            else None\n", DECODE),
    Mutant("table_filter.py", "name_matcher(pattern)", 'name_matcher(f"{pattern}.*")', DECODE),
    Mutant("dedupe.py", "position > known[0]", "position < known[0]", DEDUPE),
    Mutant("dedupe.py", "        if before == after:\n            found",
           "        if False:\n            found", DEDUPE),
    Mutant("dedupe.py", "(after is not None) - (before is not None)",
           "(after is not None)", DEDUPE),
    Mutant("valve.py", "watermark <= self.last)", "watermark < self.last)", CLOCKS),
    Mutant("valve.py", "if member.idle or not member.counts:", "if not member.counts:", CLOCKS),
    Mutant("idleness.py", "self._since > self._after", "self._since >= self._after", CLOCKS),
    Mutant("timers.py", "first <= self.time", "first < self.time", CLOCKS),
    Mutant("minibatch.py", "if time < self.next:", "if time <= self.next:", CLOCKS),
    Mutant("window_closing.py", "self.complete_at(key) > watermark",
           "self.complete_at(key) >= watermark", TIME),
    Mutant("window_closing.py", "self.lateness_ms + 2)", "self.lateness_ms + 1)", TIME),
    Mutant("publisher_lines.py", "epoch < expected", "epoch <= expected", SIMULATION),
    Mutant("publisher_lines.py", "self.epoch + 1 if self.complete else self.epoch",
           "self.epoch + 1", SIMULATION),
    Mutant("publisher_lines.py", "self.epoch == epoch and not self.complete",
           "False", SIMULATION),
]  # fmt: skip
