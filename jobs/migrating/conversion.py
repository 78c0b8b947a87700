"""A file of Flink SQL as job specs: the whole way.

text ──► statements ──► settings, tables, views so far ──► at INSERT: query, source, sink ──► spec
            └──────────── Problem(reason, offset) ◄──────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.core.sql.dialect import Refusal
from jobs.migrating.assembly import Assembler, Draft
from jobs.migrating.problems import Problem
from jobs.migrating.statements import SqlFile, read_inserts


@dataclass(frozen=True, slots=True)
class Conversion:
    """The specs of a file, what differs from Flink, and what is not supported."""

    sql: str
    drafts: Sequence[Draft]
    connections: str | None
    problems: Sequence[Problem]

    def describe(self, name: str) -> Iterator[str]:
        """Yield a line for each problem and each difference, with its position."""
        for problem in sorted(self.problems, key=lambda each: each.offset):
            yield f"{self.position(name, problem.offset)}: not supported: {problem.reason}"
        for draft in self.drafts:
            for note in draft.differences:
                position = self.position(name, note.offset or draft.offset)
                yield f"{position}: differs: {draft.file_name}: {note.text}"

    def position(self, name: str, offset: int) -> str:
        """Return FILE:LINE:COLUMN of an offset."""
        line = self.sql.count("\n", 0, offset) + 1
        return f"{name}:{line}:{offset - (self.sql.rfind(chr(10), 0, offset) + 1) + 1}"

    @property
    def differs(self) -> bool:
        return any(draft.differences for draft in self.drafts)


def convert(sql: str) -> Conversion:
    """Return the job specs of a file of Flink SQL; it never raises for what the file has."""
    file, problems = SqlFile(sql), list[Problem]()
    assembler = Assembler(file)
    drafts: list[Draft] = []
    for insert in read_inserts(file):
        try:
            drafts += [draft for draft in assembler.drafts(insert) if draft not in drafts]
        except Refusal as error:
            problems.append(Problem.of(error))
        except RecursionError:
            problems.append(Problem("the query is nested too deeply", insert.offset))
    problems = [*dict.fromkeys(file.problems + problems)]
    if not file.inserts and not problems:
        problems.append(Problem("the file has no INSERT INTO and no SELECT, so there is no job", 0))
    known = assembler.connections
    text = known.text() if drafts and known.entries else None
    return Conversion(sql, drafts, text, problems)
