"""Mutants of the rules: deliberate errors of one line, with the fast tests that must fail.

A mutant is a file, a text in it, the replacement, and the tests of this code. They
measure the tests: a mutant that survives shows code that no test checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str  # below jobs/core; one that begins with edge/ is below jobs
    before: str  # occurs exactly once
    after: str
    tests: tuple[str, ...]  # below tests

    @property
    def path(self) -> Path:
        return Path("jobs", *(() if self.file.startswith("edge/") else ("core",)), self.file)

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
EVENTS = ("core/formats/test_format_vectors.py", "core/formats/test_format_properties.py")
INTERLEAVED = ("core/fold/test_interleavings.py",)
STATE = ("core/fold/test_state.py", "core/values/test_order_key.py", "core/plan/test_bucket.py")
PLAIN_KEYS = ("core/rows/test_plain_keys.py",)
DEDUPE = ("core/rows/test_dedupe.py",)
SOURCE_ORDER = ("core/rows/test_source_order.py",)
KEY_RANGES = ("core/rows/test_key_ranges.py",)
METADATA = ("core/job/test_metadata_rules.py",)
TRUNCATE = ("core/rows/test_truncations.py",)
JOINS = ("edge/rows/test_join_scripts.py", "edge/rows/test_joined_rows.py")
JOIN_TREES = ("core/sql/test_joins.py",)
CLOCKS = (
    "core/time/test_combine.py",
    "core/time/test_idleness.py",
    "core/fold/test_timers.py",
    "core/time/test_bundle_clocks.py",
    "core/time/test_watermark_generators.py",
    "core/time/test_job_time.py",
)
SCRIPTS = ("core/fold/test_change_scripts.py",)
CLASSES = ("jobs/offline/test_aggregate_classes.py",)
SETS = ("jobs/offline/test_grouping_sets.py",)
HOMES = ("core/test_homes.py",)
SIMULATION = ("simulation/test_simulation.py",)
SHARES = ("core/publish/test_shares.py",)

MUTANTS = [
    Mutant("publish/shares.py", "reached = min(positions[", "reached = max(positions[", SHARES),
    Mutant(
        "publish/shares.py",
        "max(owner.position, ahead.get(partition, NOTHING))",
        "owner.position",
        SHARES,
    ),
    Mutant("publish/shares.py", "if reached >= epoch:", "if reached > epoch:", SHARES),
    Mutant("publish/shares.py", "EVERYTHING if reached > epoch else seq", "seq", SHARES),
    Mutant("publish/shares.py", "if at[:2] > (epoch + 1, -1)", "if at[0] > epoch + 1", SHARES),
    Mutant("fold/laws.py", "if key in seen:", "if False:", LAWS),
    Mutant("fold/laws.py", "    if waiting:\n        raise", "    if False:\n        raise", LAWS),
    Mutant("fold/laws.py", "repr(before) != repr(row)", "False", LAWS),
    Mutant(
        "fold/laws.py", "if read != sum(parts.values()):", "if read < sum(parts.values()):", LAWS
    ),
    Mutant("fold/emission.py", "(Op.UPDATE_BEFORE, Op.UPDATE_AFTER)", "(Op.UPDATE_AFTER,)", FOLD),
    Mutant("fold/program.py", "if position < delta[FIRST_PLUS]:", "if False:", HISTORIES),
    Mutant(
        "time/due_work.py",
        "self._by_watermark = timers == Clock.EVENT or closing is not None",
        "self._by_watermark = closing is not None",
        ("core/time/test_due_work.py",),
    ),
    Mutant("aggregates/operator_class.py", "clock, at - 1)", "clock, at)", CLASSES),
    Mutant("aggregates/operator_class.py", "self._registered.discard(time)", "pass", CLASSES),
    Mutant("aggregates/operator_class.py", "clock.see(time)", "pass", CLASSES),
    Mutant("fold/group_results.py", "if old.written is None or old.withheld:", "if True:", CLASSES),
    Mutant(
        "time/due_work.py",
        "if not (self._by_clock and",
        "if not (False and",
        ("core/time/test_due_work.py",),
    ),
    Mutant("fold/fold.py", "CLASS: class_timers,", "CLASS: {},", CLASSES),
    Mutant("fold/fold.py", "if any(cells) or any(", "if any(", INTERLEAVED),
    Mutant(
        "fold/fold.py",
        "return cells[0] != 0 if self.rules.drop_early else cells[0] > 0",
        "return cells[0] != 0",
        FOLD,
    ),
    Mutant("fold/fold.py", "if is_below != self._is_below_zero(key, old):", "if is_below:", FOLD),
    Mutant(
        "fold/fold.py",
        "if cells[0] != 0 or key in self.program.plan.empty_keys:",
        "if cells[0] != 0:",
        SCRIPTS,
    ),
    Mutant("fold/fold.py", "replace(context.rules, withhold=False)", "context.rules", TIME),
    Mutant("job/job_plan.py", "if not members and (", "if (", SETS),
    Mutant(
        "fold/fold.py",
        "change = update_multiset(delta, counts, *extremes)",
        "change = update_multiset(delta, counts, *extremes[::-1])",
        FOLD,
    ),
    Mutant(
        "fold/fold.py",
        "self.upserts.multisets += empty_multisets(self.program, self.state, key)",
        "pass",
        FOLD,
    ),
    Mutant("fold/fold.py", "if due > self.now_ms:", "if due >= self.now_ms:", TIME),
    Mutant(
        "fold/visibility.py",
        "(None, Action.WITHHOLD): Visibility.UNSHOWN",
        "(None, Action.WITHHOLD): Visibility.WITHHELD",
        TIME,
    ),
    Mutant("fold/fold.py", "if timer is None or timer > due:", "if timer is None:", TIME),
    Mutant(
        "rows/consolidate.py",
        "is_head = np.arange(never) < first_plus[numbers]",
        "is_head = np.zeros(never, bool)",
        HISTORIES,
    ),
    Mutant("rows/consolidate.py", "~(start + before)", "(start + before)", HISTORIES),
    Mutant("rows/consolidate.py", "kept[_find_firsts(groups[indexes])] = True", "pass", HISTORIES),
    Mutant("edge/rows/joined_rows.py", "return some * others", "return some", JOINS),
    Mutant("edge/rows/arranged_rows.py", "if has_key.all():", "if True:", JOINS),
    Mutant("edge/rows/arranged_rows.py", "ends[wrong] = starts[wrong]", "pass", JOINS),
    Mutant("edge/rows/joined_rows.py", "were_there != are_there", "are_there & ~were_there", JOINS),
    Mutant("edge/rows/joined_rows.py", "yield from self._pair_up(left, right)", "pass", JOINS),
    Mutant("join/pairing.py", "(before + changes != 0)", "(before + changes > 0)", JOINS),
    Mutant("plan/relations.py", "if not relation.keeps_right and", "if", JOIN_TREES),
    Mutant("aggregates/sum.py", 'f"if {count} == 0:"', 'f"if {count} < 0:"', JUDGED),
    Mutant("aggregates/sum.py", "{value} * {weight}", "{value}", FOLD),
    Mutant(
        "aggregates/sum.py", "float_to_units({value}) * {weight}", "float_to_units({value})", JUDGED
    ),
    Mutant("aggregates/sum.py", "<= {high}:", "< {high}:", FOLD),
    Mutant("aggregates/sum.py", 'f"elif {value} > 0:"', 'f"elif {value} < 0:"', JUDGED),
    Mutant("aggregates/count.py", "+= {weight}", "+= 1", FOLD),
    Mutant(
        "aggregates/extremes.py",
        '"ANY_VALUE",\n        "smallest"',
        '"ANY_VALUE",\n        "largest"',
        (*FOLD, "core/aggregates/test_aggregate_histories.py"),
    ),
    Mutant(
        "values/exact_numbers.py",
        "(2 * abs(total) + abs(count))",
        "(2 * abs(total))",
        ("core/values/test_rounding.py",),
    ),
    Mutant(
        "aggregates/present_values.py",
        "if times > 0 and key not in changed:",
        "if key not in changed:",
        HISTORIES,
    ),
    Mutant(
        "aggregates/present_values.py",
        "coming[-1] > key if descending else coming[-1] < key",
        "coming[-1] < key if descending else coming[-1] > key",
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
    Mutant("plan/bucket.py", 'b"\\x00" if value', 'b"\\x01" if value', STATE),
    Mutant("fold/state.py", "        if multiplicity:", "        if multiplicity > 0:", STATE),
    Mutant("formats/canal.py", "if len(old) < len(data):", "if False:", DECODE),
    Mutant(
        "formats/canal.py",
        "changes.append((-1, {before}))",
        "changes.append((-1, {after}))",
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
    Mutant("formats/json_events.py", "if step < len(node)", "if step <= len(node)", EVENTS),
    Mutant(
        "formats/json_events.py",
        "            if node is None:\n",
        "            if False:\n",
        EVENTS,
    ),
    Mutant(
        "formats/json_events.py",
        "    return None if _overlaps(root) else root",
        "    return root",
        EVENTS,
    ),
    Mutant(
        "formats/mysql_values.py", "number < 1 << len(names)", "number <= 1 << len(names)", EVENTS
    ),
    Mutant("formats/mysql_values.py", "number <= len(names)", "True", EVENTS),
    Mutant("formats/mysql_values.py", "names[number - 1]", "names[number - 2]", EVENTS),
    Mutant("formats/metadata.py", "_ES: decoded.es", "_ES: decoded.ts", EVENTS),
    Mutant("formats/csv_events.py", "if len(fields) != len(self._names):", "if False:", EVENTS),
    Mutant(
        "formats/csv_events.py", "None if field == self._rules.csv.null_literal else ", "", EVENTS
    ),
    Mutant(
        "formats/csv_events.py",
        "            elif _LINE_ENDS.search(bare):",
        "            elif False:",
        EVENTS,
    ),
    Mutant("formats/row_fields.py", "            else value\n", "            else None\n", DECODE),
    Mutant(
        "formats/table_filter.py", "name_matcher(pattern)", 'name_matcher(f"{pattern}.*")', DECODE
    ),
    Mutant("rows/dedupe.py", ", change.position))", ", -change.position))", DEDUPE),
    Mutant(
        "rows/dedupe.py",
        "    if old == new:\n        found",
        "    if False:\n        found",
        DEDUPE,
    ),
    Mutant("rows/dedupe.py", "(new is not None) - (old is not None)", "(new is not None)", DEDUPE),
    Mutant("rows/key_ranges.py", "high - low + 1", "high - low + 2 * tasks", KEY_RANGES),
    Mutant("rows/key_ranges.py", " OR {key} IS NULL", "", KEY_RANGES),
    Mutant("rows/key_ranges.py", "{key} <= ", "{key} < ", KEY_RANGES),
    Mutant("rows/key_ranges.py", "if first or last or start < end", "if start < end", KEY_RANGES),
    Mutant("rows/plain_keys.py", " & ~keys.arrives", "", PLAIN_KEYS),
    Mutant("rows/plain_keys.py", "(kinds == Kind.LEAVE) | ", "", PLAIN_KEYS),
    Mutant(
        "rows/source_order.py", "es + SOURCE_ES_BACK_MS_MAX < latest", "es < latest", SOURCE_ORDER
    ),
    Mutant("rows/source_order.py", " & ~ahead", "", SOURCE_ORDER),
    Mutant("rows/source_order.py", "repeats -= memory.counted", "pass", SOURCE_ORDER),
    Mutant("rows/dedupe.py", "if column.name not in MESSAGE_TIMES", "", METADATA),
    Mutant("rows/truncations.py", "time <= each.until", "time < each.until", TRUNCATE),
    Mutant("rows/truncations.py", "position < each.position", "position <= 0", TRUNCATE),
    Mutant("time/combine.py", "watermark <= self.last)", "watermark < self.last)", CLOCKS),
    Mutant(
        "time/combine.py", "if member.idle or not member.counts:", "if not member.counts:", CLOCKS
    ),
    Mutant("time/idleness.py", "self._since > self._after", "self._since >= self._after", CLOCKS),
    Mutant("fold/state.py", "(time + 1,)", "(time,)", CLOCKS),
    Mutant(
        "time/bundle_clocks.py",
        "if time < min(self.next, END_OF_TIME):",
        "if time <= min(self.next, END_OF_TIME):",
        CLOCKS,
    ),
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
    Mutant("homes.py", "share + (rank < larger)", "share + (rank <= larger)", HOMES),
    Mutant(
        "homes.py", "key=lambda slot: -len(held[slot])", "key=lambda slot: len(held[slot])", HOMES
    ),
    Mutant("homes.py", "own[: shares[slot]]", "own[-shares[slot] :]", HOMES),
    Mutant("homes.py", "+ 1 if tasks == 1 else 0", "+ 1", HOMES),
    Mutant("homes.py", "len(self._executors or ()) < 2", "not self._executors", HOMES),
]
