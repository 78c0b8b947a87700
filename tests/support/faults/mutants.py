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


LAWS = ("core/fold/test_laws.py",)
FOLD = (
    "core/fold/test_fold.py",
    "core/aggregates/test_accumulators.py",
    "core/fold/test_program.py",
)
JUDGED = (*FOLD, "core/aggregates/test_aggregate_histories.py", "core/fold/test_histories.py")
TIME = ("core/fold/test_fold_time.py", "core/fold/test_window_closing.py")
HISTORIES = ("core/rows/test_consolidate.py", "core/fold/test_histories.py")
DECODE = ("core/formats/test_canal.py", "core/values/test_json_values.py")
STATE = ("core/fold/test_state.py", "core/values/test_order_key.py", "core/plan/test_bucket.py")
DEDUPE = ("core/rows/test_dedupe.py",)
CLOCKS = (
    "core/time/test_combine.py",
    "core/time/test_idleness.py",
    "core/fold/test_timers.py",
    "core/time/test_bundle_clocks.py",
    "core/time/test_watermark_generators.py",
    "core/time/test_job_time.py",
)
SIMULATION = ("simulation/test_simulation.py",)

MUTANTS = [
    Mutant("fold/laws.py", "if key in seen:", "if False:", LAWS),
    Mutant("fold/laws.py", "    if waiting:\n        raise", "    if False:\n        raise", LAWS),
    Mutant("fold/laws.py", "repr(before) != repr(row)", "False", LAWS),
    Mutant(
        "fold/laws.py",
        "if read != sum(parts.values()):",
        "if read < sum(parts.values()):",
        LAWS,
    ),
    Mutant(
        "fold/fold.py",
        "            self.changelog.append((Op.UPDATE_BEFORE, key, old.result))\n",
        "",
        FOLD,
    ),
    Mutant("fold/fold.py", "if position < delta[FIRST_PLUS]:", "if False:", HISTORIES),
    Mutant(
        "fold/fold.py",
        "results.see(argument, changed, largest, smallest, lost)",
        "results.see(argument, changed, smallest, largest, lost)",
        FOLD,
    ),
    Mutant(
        "fold/fold.py",
        "self.upserts.multisets += emptied(self.program, self.state, key)",
        "pass",
        FOLD,
    ),
    Mutant("fold/fold.py", "if due > self.now_ms:", "if due >= self.now_ms:", TIME),
    Mutant("fold/fold.py", "held = UNSHOWN if unshown else WITHHELD", "held = WITHHELD", TIME),
    Mutant("fold/fold.py", "if timer is None or timer > due:", "if timer is None:", TIME),
    Mutant(
        "rows/consolidate.py",
        "is_head = np.arange(never) < first_plus[numbers]",
        "is_head = np.zeros(never, bool)",
        HISTORIES,
    ),
    Mutant("rows/consolidate.py", "~(start + before)", "(start + before)", HISTORIES),
    Mutant(
        "rows/consolidate.py",
        "told[np.unique(groups[places], return_index=True)[1]] = True",
        "pass",
        HISTORIES,
    ),
    Mutant("aggregates/sum.py", 'f"if {count} == 0:"', 'f"if {count} < 0:"', JUDGED),
    Mutant("aggregates/sum.py", "{value} * {weight}", "{value}", FOLD),
    Mutant("aggregates/sum.py", "exact_float({value}) * {weight}", "exact_float({value})", JUDGED),
    Mutant("aggregates/sum.py", "<= {high}:", "< {high}:", FOLD),
    Mutant("aggregates/sum.py", 'f"elif {value} > 0:"', 'f"elif {value} < 0:"', JUDGED),
    Mutant("aggregates/count.py", "+= {weight}", "+= 1", FOLD),
    Mutant(
        "aggregates/multiset.py",
        '"ANY_VALUE",\n        "smallest"',
        '"ANY_VALUE",\n        "largest"',
        (*FOLD, "core/aggregates/test_aggregate_histories.py"),
    ),
    Mutant(
        "values/rounding.py",
        "(2 * abs(numerator) + abs(denominator))",
        "(2 * abs(numerator))",
        ("core/values/test_rounding.py",),
    ),
    Mutant(
        "aggregates/present_values.py",
        "if times > 0 and place not in changed:",
        "if place not in changed:",
        HISTORIES,
    ),
    Mutant(
        "aggregates/present_values.py",
        "coming[-1] > place if descending else coming[-1] < place",
        "coming[-1] < place if descending else coming[-1] > place",
        (*STATE, "core/aggregates/test_aggregate_histories.py"),
    ),
    Mutant(
        "aggregates/present_values.py",
        "if times == rank:",
        "if False:",
        ("core/aggregates/test_aggregate_histories.py",),
    ),
    Mutant("values/order_key.py", "pack_double(v).translate(FLIP)", "pack_double(v)", STATE),
    Mutant(
        "values/order_key.py",
        "v.encode().replace(NULL, ESCAPED_NUL) + END",
        "v.encode() + END",
        STATE,
    ),
    Mutant("plan/bucket.py", 'crc32(b"\\x00", hashed)', 'crc32(b"\\x01", hashed)', STATE),
    Mutant(
        "publish/kafka_partition.py",
        "(murmur2(key) & _POSITIVE)",
        "murmur2(key)",
        ("core/publish/test_kafka_partition.py",),
    ),
    Mutant("fold/state.py", "        if multiplicity:", "        if multiplicity > 0:", STATE),
    Mutant("formats/canal.py", "if len(old) < len(data):", "if False:", DECODE),
    Mutant(
        "formats/canal.py",
        "((-1, {self._fields.tuple_code('before')}))",
        "((-1, {self._fields.tuple_code('after')}))",
        DECODE,
    ),
    Mutant(
        "values/json_text.py",
        "    if len(value) > bytes_max:\n        raise",
        "    if False:\n        raise",
        DECODE,
    ),
    Mutant("values/json_text.py", 'return b"[" in brackets', "return False", DECODE),
    Mutant(
        "formats/row_fields.py",
        " is not int or not {low} <= {value} <= {high}:",
        " is not int:",
        DECODE,
    ),
    Mutant("formats/row_fields.py", "            else value\n", "            else None\n", DECODE),
    Mutant(
        "formats/table_filter.py",
        "name_matcher(pattern)",
        'name_matcher(f"{pattern}.*")',
        DECODE,
    ),
    Mutant("rows/dedupe.py", "position > known[0]", "position < known[0]", DEDUPE),
    Mutant(
        "rows/dedupe.py",
        "        if before == after:\n            found",
        "        if False:\n            found",
        DEDUPE,
    ),
    Mutant(
        "rows/dedupe.py",
        "(after is not None) - (before is not None)",
        "(after is not None)",
        DEDUPE,
    ),
    Mutant("time/combine.py", "watermark <= self.last)", "watermark < self.last)", CLOCKS),
    Mutant(
        "time/combine.py",
        "if member.idle or not member.counts:",
        "if not member.counts:",
        CLOCKS,
    ),
    Mutant("time/idleness.py", "self._since > self._after", "self._since >= self._after", CLOCKS),
    Mutant("fold/timers.py", "first <= self.time", "first < self.time", CLOCKS),
    Mutant("time/bundle_clocks.py", "if time < self.next:", "if time <= self.next:", CLOCKS),
    Mutant(
        "fold/window_closing.py",
        "self.complete_at(key) > watermark",
        "self.complete_at(key) >= watermark",
        TIME,
    ),
    Mutant("fold/window_closing.py", "self.lateness_ms + 2)", "self.lateness_ms + 1)", TIME),
    Mutant("publish/protocol.py", "epoch < expected", "epoch <= expected", SIMULATION),
    Mutant(
        "publish/protocol.py",
        "self.epoch + 1 if self.complete else self.epoch",
        "self.epoch + 1",
        SIMULATION,
    ),
    Mutant("publish/protocol.py", "self.epoch == epoch and not self.complete", "False", SIMULATION),
]
