"""A converted query, its source and its sink as job specs.

INSERT ──► Query ──► [a job for each inner GROUP BY ──►] the job of the sink table
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from jobs.core.job.job_plan import plan_of
from jobs.core.job.time_rules import time_problems
from jobs.core.job.window_rules import window_notes, window_problems
from jobs.core.plan.tree import Plan
from jobs.core.sql.dialect import Refusal, parse_select
from jobs.core.sql.problems import QueryError, QueryProblem
from jobs.migrating.connections import FILE_NAME as CONNECTIONS
from jobs.migrating.connections import ConnectionNames
from jobs.migrating.dialect import place
from jobs.migrating.options import Endpoint, read_sink, read_source
from jobs.migrating.problems import Note
from jobs.migrating.queries import QueryConverter
from jobs.migrating.relations import Query
from jobs.migrating.settings import Settings, read_settings
from jobs.migrating.sink_types import cast_results, is_over_bounds, result_types
from jobs.migrating.sources import SourceTable
from jobs.migrating.statements import Insert, SqlFile, TableColumn
from jobs.migrating.yaml_text import Keys, write_yaml
from schemas.limits import JOB_NAME_CHARACTERS_MAX
from schemas.spec.connections import DEFAULT
from schemas.spec.file import SpecError, read_text, validate
from schemas.spec.job import JobSpec, source_sections
from schemas.spec.source_rows import ROW_KEYS, locate_key
from schemas.types.json_types import JsonObject

_INSTANTS = ("TIMESTAMP_LTZ", "TO_TIMESTAMP", "FROM_UNIXTIME", "DATE_FORMAT", "CURRENT_DATE")
_DROPS_EARLY = Note(
    "as Flink; without this line a retraction that comes before its row waits for it, which is "
    "exact in any order of partitions"
)
_TTL_OF_GROUPS = Note(
    "groups expire, and the rows of a join stay; in Flink they expire too", differs=True
)
_ROW_BY_ROW = (
    "Flink folds row by row without mini-batch; here an epoch is a bundle: fewer intermediate "
    "rows, the same final ones"
)


@dataclass(slots=True)
class Draft:
    """A spec before it is written."""

    file_name: str
    document: JsonObject
    notes: dict[Keys, list[Note]] = field(default_factory=dict)
    header: list[str] = field(default_factory=list)
    offset: int = 0

    def note(self, keys: Keys, *notes: Note) -> None:
        self.notes.setdefault(keys, []).extend(notes)

    @property
    def differences(self) -> list[Note]:
        return [note for notes in self.notes.values() for note in notes if note.differs]

    def text(self) -> str:
        return write_yaml(self.document, self.notes, self.header)

    @property
    def spec(self) -> JobSpec:
        """The spec; raise SpecError if it is not valid."""
        return validate(JobSpec, read_text(self.text(), ""))


class Assembler:
    """Makes the drafts of a file's inserts."""

    def __init__(self, file: SqlFile) -> None:
        self._file = file
        self._settings = Settings()  # those before the INSERT
        self.connections = ConnectionNames()
        self._taken: set[str] = set()  # files and topics of other jobs
        self._tables: dict[str, str] = {}  # by the name of its job
        self._inner: dict[str, Draft] = {}  # jobs of views, which several inserts may read

    def drafts(self, insert: Insert) -> list[Draft]:
        """Return the specs of an INSERT, inner jobs first."""
        self._settings = read_settings(self._file.settings)
        target = self._file.tables.get(insert.target)
        if target is None and not insert.shows:
            raise Refusal(f"there is no CREATE TABLE of {insert.target}", insert.offset)
        columns = () if target is None else target.columns
        physical = [each for each in columns if each.expression is None]
        names = list(insert.columns or [each.name for each in physical if not each.metadata])
        file = replace(self._file, views=self._file.views | insert.views)
        converter = QueryConverter(file, insert.query, insert.target)
        query = converter.convert(names)
        drafts = self._inner_drafts(query, insert)
        draft = self._draft(insert.target, query, insert, drafts)
        sink = None if target is None else read_sink(target, windows=query.windowed)
        if target is not None:
            self._cast_results(draft, query, sink, [target.column(name) for name in names])
        if sink is not None:
            self._add_sink(draft, sink)
        else:
            text = f"{insert.target} only shows rows: retally results, retally changes"
            draft.header.append(text)
        drafts.append(draft)
        self._check(draft, query)
        for each in drafts:
            self._require_own(each, insert.offset)
        for each in drafts:
            self._taken |= {each.file_name, _topic(each)}
            self._inner[each.file_name] = each
        return drafts

    def _inner_drafts(self, query: Query, insert: Insert) -> list[Draft]:
        inner = query.relation.inner
        if inner is None:
            return []
        above = self._inner_drafts(inner, insert)
        draft = self._inner_draft(inner, insert, above)
        known = self._inner.get(draft.file_name)
        if known is not None and known.document == draft.document:
            return [*above, known]
        if known is not None:
            inner.name = f"{insert.target}_{inner.name}"
            draft = self._inner_draft(inner, insert, above)
        self._check(draft, inner)
        return [*above, draft]

    def _inner_draft(self, inner: Query, insert: Insert, above: Sequence[Draft]) -> Draft:
        draft = self._draft(inner.name, inner, insert, above)
        draft.document["sink"] = {
            "topic": f"{draft.document['name']}-changes",
            **_connection(source_sections(draft.document)[0]),
            "format": "changelog-json",
        }
        text = "a query has one GROUP BY, so this is a job of its own, whose changelog is read"
        draft.note(("sink",), Note(text, offset=inner.offset))
        return draft

    def _draft(self, name: str, query: Query, insert: Insert, above: Sequence[Draft]) -> Draft:
        settings, relation = self._settings, query.relation
        job, file = self._names(name, insert.offset)
        document: JsonObject = {"name": job}
        draft = Draft(file, document, offset=insert.offset)
        draft.header = list(settings.header)
        if not settings.bundled:
            draft.header.append(_ROW_BY_ROW)
        if relation.joined:
            self._add_sources(draft, relation.sources)
        elif relation.source is None:
            self._add_chain(draft, above[-1])
        else:
            self._add_source(draft, relation.source)
        document["query"] = query.text
        retracts = document.get("source", {}).get("format") not in ("avro", "csv", "json")
        if retracts and not relation.joined:
            document["early_retractions"] = "drop"
            draft.note(("early_retractions",), _DROPS_EARLY)
        draft.note(("query",), *query.notes)
        self._add_emit(draft, query)
        if relation.joined and "state" in settings.sections:
            draft.note(("state", "ttl"), _TTL_OF_GROUPS)
        for key in ("minibatch", "state"):
            closes = key == "state" and query.windowed
            if key in settings.sections and not closes:
                document[key] = dict(settings.sections[key])
        for keys, notes in settings.notes.items():
            if keys[0] in document and (len(keys) == 1 or keys[1] in document[keys[0]]):
                draft.note(keys, *notes)
        return draft

    def _names(self, table: str, offset: int) -> tuple[str, str]:
        """Return the names of a table's job and of its file, which no other table has."""
        job, file = job_name(table), file_name(table, offset)
        suffix = sha256(table.encode()).hexdigest()[:8]
        alike = self._tables.setdefault(job, table) != table
        if alike:  # some file systems do not tell Items.yaml from items.yaml
            file = f"{file.removesuffix('.yaml')}-{suffix}.yaml"
        if alike or len(job) > JOB_NAME_CHARACTERS_MAX:  # long names are often alike at the start
            job = f"{job[: JOB_NAME_CHARACTERS_MAX - len(suffix) - 1].rstrip('-')}-{suffix}"
        return job, file

    # --- parts of a spec --------------------------------------------------------------------

    def _add_chain(self, draft: Draft, first: Draft) -> None:
        """Read the changelog of the job before."""
        sink, types = first.document["sink"], result_types(plan_of(first.spec))
        draft.document["source"] = {
            "topic": sink["topic"], **_connection(sink), "format": "changelog-json",
            "start": "earliest",
        }  # fmt: skip
        draft.document["columns"] = {name: str(kind) for name, kind in types.items()}

    def _add_sources(self, draft: Draft, tables: Sequence[SourceTable]) -> None:
        """Add the tables of a join, each under its name."""
        sources = draft.document["sources"] = {}
        for each in tables:
            alone = Draft(draft.file_name, {}, offset=draft.offset)
            self._add_source(alone, each)
            name, own = each.table.name, alone.document
            section = own.pop("source")
            sources[name] = section | {key: own.pop(key) for key in ROW_KEYS if key in own}
            draft.document |= own
            for keys, notes in alone.notes.items():
                of_source = keys[0] in ("source", *ROW_KEYS)
                at = draft.notes.setdefault(locate_key(keys, name if of_source else ""), [])
                texts = {note.text for note in at}
                at += [note for note in notes if note.text not in texts]

    def _add_source(self, draft: Draft, source: SourceTable) -> None:
        document, endpoint = draft.document, read_source(source.table)
        section = self._connect(endpoint)
        if section["format"] == "json" and source.paths:
            section.setdefault("json", {})["paths"] = source.paths
        elif source.paths:
            reason = (
                f"nested columns can be read from the format json, not from {section['format']}"
            )
            raise Refusal(reason, source.table.offset)
        decimals = any(kind.startswith("DECIMAL") for kind in source.columns.values())
        if section["format"] == "debezium-json" and decimals:
            section["debezium"] = {"decimal_handling_mode": "string"}
            text = "Flink reads a DECIMAL as a number, not as bytes"
            draft.note(("source", "debezium"), Note(text))
        if section["format"] == "canal-json" and "BINARY" in source.columns.values():
            section["canal"] = {"binary": "base64"}
            text = "Flink reads BYTES as base64; canal itself writes ISO-8859-1, which is latin1"
            draft.note(("source", "canal"), Note(text))
        document |= {"source": section, "columns": dict(source.columns)}
        document |= endpoint.top
        if self._settings.duplicates and source.table.primary_key and "dedupe" not in document:
            document |= {"primary_key": list(source.table.primary_key), "dedupe": "pk"}
        for key, notes in endpoint.notes.items():
            keys = (key[1:],) if key.startswith("/") else ("source", key)
            draft.note(keys, *notes)
        for name, kind in source.omitted.items():
            draft.note(("columns",), Note(f"without {name}, which is {kind} and not used"))
        self._add_watermark(draft, source, endpoint)

    def _connect(self, endpoint: Endpoint) -> JsonObject:
        """Name the connection and the schema registry of an endpoint; return its section."""
        section, offset = dict(endpoint.section), endpoint.table.offset
        if "files" not in section:
            name = self.connections.add(endpoint.connection, offset)
            section |= {} if name == DEFAULT else {"connection": name}
        if endpoint.registry:
            section |= self.connections.add_registry(endpoint.registry, offset)
        return section

    def _add_watermark(self, draft: Draft, source: SourceTable, endpoint: Endpoint) -> None:
        times, settings = source.times, self._settings
        if times is None:
            return
        if times.timestamp_format == "iso":
            draft.document["timestamp_format"] = "iso"
        section = dict(times.section) | endpoint.watermark
        if "idle_after" not in section and settings.idle_after is not None:
            section["idle_after"] = settings.idle_after
        if settings.emit_every is not None:
            section["emit_every"] = settings.emit_every
        draft.document["watermark"] = section
        for key, note in times.notes.items():
            keys = ("columns", times.column or "") if key == "column" else ("watermark", key)
            draft.note(keys, note)

    def _add_emit(self, draft: Draft, query: Query) -> None:
        if not query.windowed:
            return
        settings, document = self._settings, draft.document
        document["emit"] = "changes" if settings.early else "final"
        draft.note(("emit",), Note("late rows are stored with their place; Flink drops them"))
        if settings.allowed_lateness is not None or settings.early:
            document["allowed_lateness"] = settings.allowed_lateness or "0s"

    def _note_time_zone(self, draft: Draft, source: SourceTable) -> None:
        zone = self._settings.time_zone
        if zone is None:
            return
        words = {*(str(kind) for kind in source.columns.values()), draft.document["query"]}
        meets = any(word in text for text in words for word in _INSTANTS)
        text = f"the time zone is UTC, not {zone.value}"
        draft.note(("query",), Note(text, meets, zone.offset))

    def _cast_results(
        self,
        draft: Draft,
        query: Query,
        sink: Endpoint | None,
        columns: Sequence[TableColumn | None],
    ) -> None:
        """Give the results the types of the sink's columns."""
        try:
            plan = plan_of(draft.spec)
        except (SpecError, QueryError):
            return  # `_check` refuses it, at its place
        keyed = sink is not None and sink.section["format"] in ("upsert-json", "upsert-avro")
        draft.note(("query",), *cast_results(query, plan, columns, keyed=keyed))
        draft.document["query"] = query.text

    def _add_sink(self, draft: Draft, sink: Endpoint) -> None:
        try:
            group = plan_of(draft.spec).group
        except (SpecError, QueryError):
            group = ()  # `_check` refuses it, at its place
        draft.document["sink"], target = self._connect(sink), sink.table
        for name, notes in sink.notes.items():
            draft.note(("sink", name), *notes)
        names = [named.name for named in group]
        bounds = {named.name for named in group if is_over_bounds(named)}
        for what, key, offset in (("PRIMARY KEY", target.primary_key, target.offset), sink.key):
            # One bound of a window stands for both.
            given = {*key} | (bounds if bounds & {*key} else set())
            if key and group and given != {*names}:
                text = (
                    f"the key is the group ({', '.join(names)}), not the sink's {what} "
                    f"({', '.join(key)})"
                )
                draft.note(("sink", "format"), Note(text, True, offset))

    def _require_own(self, draft: Draft, offset: int) -> None:
        """Refuse a job whose file or topic another INSERT has; a job of a view may be shared."""
        shared = self._inner.get(draft.file_name) is draft
        for name in () if shared else (draft.file_name, _topic(draft)):
            if name in self._taken:
                reason = f"another INSERT has the sink {name} already; give each one its own"
                raise Refusal(reason, offset)

    # --- checks -----------------------------------------------------------------------------

    def _check(self, draft: Draft, query: Query) -> None:
        """Refuse a draft that is not valid, at the place of its query."""
        try:
            spec = draft.spec
            problems = [
                str(error.problems[0].message)
                for alone in spec.source_specs.values()
                for _, error in time_problems(alone)
            ]
            plan = plan_of(spec)
            if plan.relation is None:
                problems += window_problems(spec, plan).values()
        except SpecError as error:
            mistake = error.problems[0]
            reason = ": ".join(filter(None, (mistake.path, mistake.reason)))
            raise Refusal(f"the spec of it is refused: {reason}", query.offset) from None
        except QueryError as error:
            first = error.problems[0]
            raise Refusal(first.message, _locate(first, query), first.hint) from None
        if problems:
            raise Refusal(problems[0], query.offset)
        for source in query.relation.sources:
            self._note_time_zone(draft, source)
        for keys, text in window_notes(spec).items():
            draft.note(keys, Note(text))
        self._note_decimals(draft, spec, plan)
        line = self._file.sql.count("\n", 0, draft.offset) + 1
        statement = "SELECT" if self._file.inserts[0].shows else "INSERT"
        draft.header.insert(0, f"Made by `retally from-flink` from the {statement} in line {line}.")

    def _note_decimals(self, draft: Draft, spec: JobSpec, plan: Plan) -> None:
        if spec.sink is None or spec.sink.format != "upsert-json":
            return
        kinds = [str(named.expression.type) for named in plan.group]
        kinds += [str(kind) for _, kind in plan.results]
        if any(kind.startswith("DECIMAL") for kind in kinds):
            text = "a DECIMAL is text in JSON, so that no reader rounds it; Flink writes a number"
            draft.note(("sink", "format"), Note(text))


def _locate(problem: QueryProblem, query: Query) -> int:
    """Return the offset in the file of a problem in a written query: both have the same tree."""
    lines = query.text.split("\n")
    at = sum(len(line) + 1 for line in lines[: problem.line - 1]) + problem.column - 1
    try:
        written = parse_select(query.text)
    except Refusal:
        return query.offset
    for theirs, ours in zip(written.walk(), query.select.walk(), strict=False):
        if theirs.meta.get("start") == at:
            return place(ours)
    return query.offset


def _topic(draft: Draft) -> str:
    """Return the topic of a job's sink, or the name of its file, which is its own."""
    sink = draft.document.get("sink")
    return draft.file_name if sink is None else str(sink["topic"])


def _connection(section: JsonObject) -> JsonObject:
    return {"connection": section["connection"]} if "connection" in section else {}


def file_name(table: str, offset: int) -> str:
    """Return the name of a spec's file, which never leaves its folder."""
    name = re.sub(r"[^\w-]+", "-", table).strip("-") + ".yaml"
    if name.lower() == CONNECTIONS:
        raise Refusal(f"{CONNECTIONS} is the file of the connections; rename this", offset)
    return name


def job_name(table: str) -> str:
    """Return the name of a job for a table, which may be too long, or another table's too."""
    words = re.sub(r"[^a-z0-9_]+", "-", table.lower()).strip("_-")
    return words if words[:1].isalpha() else f"job-{words}".strip("-")
