"""Pages of a job's results: current or past, one group, differences, downloads.

where, order, cursor, as_of (as in REST) ──► the same listing ──► rows with links
column, op, value (from a form) ──► one more `where`, by a redirect
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote, urlencode

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse

from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from schemas.documents.answers import Difference
from schemas.documents.explanation import DifferingGroup
from schemas.limits import CONDITIONS_MAX, CONSOLE_RESULT_ROWS, CONSOLE_SQL_ROWS, PAGE_ROWS_MAX
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import Kind
from service.answers.arrow import encode_batches
from service.answers.difference import read_difference_page
from service.answers.listing import parse_listing
from service.answers.media import Media, encode_csv
from service.answers.results import ResultPage
from service.console.explanations.group_view import GroupView
from service.console.formatting import base_of, parse_moment
from service.console.job_view import JobView, find_followed_job, view_job
from service.console.page import HEADERS, Context, PageRoute, redirect_to, render_page
from service.console.rows import (
    ColumnChange,
    DisplayRow,
    Heading,
    compare_rows,
    encode_key,
    find_numeric_columns,
    label_key,
    list_group_columns,
    make_heading,
    make_row,
)
from service.console.visitor import require_visitor
from service.live.table import LiveTable
from service.problems import Problem
from service.routes.answering import parse_key
from service.runtime import Runtime, runtime_of, view_name

router = APIRouter(include_in_schema=False, route_class=PageRoute)

OPS = {
    "^=": "starts with",
    "=": "is",
    "!=": "is not",
    ">=": "is at least",
    "<=": "is at most",
    ">": "is greater than",
    "<": "is less than",
    "is null": "is NULL",
    "is not null": "is not NULL",
}
_FORMS = {"csv": Media.CSV, "jsonl": Media.NDJSON, "arrow": Media.ARROW}
_SHOWN_ON_PAGE = (410, 422)  # statuses of problems that the page shows beside its filters

Text = Annotated[str | None, Query(max_length=10_000)]
Where = Annotated[list[str] | None, Query(max_length=CONDITIONS_MAX)]
EpochNumber = Annotated[int | None, Query(ge=0, le=2**62)]


@dataclass(frozen=True, slots=True)
class ResultsQuery:
    """The filters, order, epoch and page of a listing."""

    where: tuple[str, ...] = ()
    order: str | None = None
    as_of: str | None = None
    cursor: str | None = None

    def encode(self, **changed: Any) -> str:
        """Return this query, with some parameters changed, for an address."""
        parameters = {name: getattr(self, name) for name in ("where", "order", "as_of", "cursor")}
        parameters |= changed
        pairs = [("where", each) for each in parameters.pop("where")]
        pairs += [(name, value) for name, value in parameters.items() if value]
        return f"?{urlencode(pairs)}" if pairs else "?"

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """Each filter as text, with the query that remains without it."""
        rest = [
            (text, self.encode(where=self.where[:at] + self.where[at + 1 :], cursor=None))
            for at, text in enumerate(self.where)
        ]
        return [(_label_condition(text), query) for text, query in rest]


def _label_condition(condition: str) -> str:
    for op in ("^=", "!=", "<=", ">=", "=", "<", ">"):
        name, found, value = condition.partition(op)
        if found and name.isidentifier():
            return f"{name} {OPS[op]} {value or '(empty)'}"
    return condition


@router.get("/jobs/{name}/results")
async def results_page(
    request: Request,
    name: str,
    where: Where = None,
    order: Text = None,
    as_of: Text = None,
    cursor: Annotated[str | None, Query()] = None,
    column: Text = None,
    op: Text = None,
    value: Text = None,
    epoch: Annotated[str | None, Query(max_length=20)] = None,
    time: Annotated[str | None, Query(max_length=40)] = None,
) -> Response:
    """Show the results of a job."""
    visitor = require_visitor(request)
    query = ResultsQuery(tuple(each for each in where or () if each), order, as_of, cursor)
    if column and op:  # from the form
        added = f"{column} {op}" if op.startswith("is") else f"{column}{op}{value or ''}"
        return redirect_to(
            _results_address(name, query.encode(where=(*query.where, added), cursor=None))
        )
    if time:  # from the form
        moment = datetime.fromtimestamp(parse_moment("time", time) / 1_000, UTC)
        as_of = f"time:{moment:%Y-%m-%dT%H:%M:%SZ}"
        return redirect_to(_results_address(name, query.encode(as_of=as_of, cursor=None)))
    if epoch is not None:
        at = f"epoch:{epoch}" if epoch else None
        return redirect_to(_results_address(name, query.encode(as_of=at, cursor=None)))
    runtime = runtime_of(request)
    live_table, job = await find_followed_job(request, name)
    if job.newest is None:
        return await render_page(
            request, visitor, "results/results_none.html", job=job, tab="results"
        )
    values = await run_in_threadpool(_read_results, runtime, live_table, job, query)
    return await render_page(
        request, visitor, "results/results.html", job=job, tab="results", **values
    )


def _results_address(name: str, query: str) -> str:
    job, _, view = name.partition(".")
    return f"{base_of(job, view)}/results{query}"


def _read_results(
    runtime: Runtime, live_table: LiveTable, job: JobView, query: ResultsQuery
) -> Context:
    shape, refused, found = live_table.shape, None, None
    try:
        wanted = parse_listing(live_table, query.where, query.order, query.as_of)
        found = runtime.results.read_page(
            live_table, wanted, CONSOLE_RESULT_ROWS, query.as_of, query.cursor or None
        )
    except Problem as problem:
        if problem.status not in _SHOWN_ON_PAGE and problem.code != "epoch-unknown":
            raise
        refused = problem
    newest = job.newest
    assert newest is not None
    oldest = runtime.oldest_epochs.read(live_table)
    numeric = find_numeric_columns(shape)
    rows = [] if found is None else [msgspec.json.decode(each) for each in found.documents]
    return {
        "query": query,
        "refused": refused,
        "epoch": newest.epoch if found is None else found.epoch,
        "now": newest.epoch,
        "oldest": min(oldest, newest.epoch),
        "committed_ms": _find_commit_time(
            live_table, newest.epoch if found is None else found.epoch
        ),
        "live": query.as_of is None and not query.cursor,
        "columns": _make_headings(shape, query, numeric),
        "rows": [make_row(shape, numeric, row) for row in rows],
        "next": query.encode(cursor=found.cursor) if found and found.cursor else None,
        "ops": OPS,
        "first_op": _choose_operator(shape),
        "filters": list(shape.columns),
        "hidden": [each for each in list_group_columns(shape) if each not in shape.names],
        "forms": list(_FORMS),
        "export": query.encode(cursor=None),
        "groups": newest.counts.groups,
    }


def _find_commit_time(live_table: LiveTable, epoch: int) -> int | None:
    with live_table.index.take_snapshot() as snapshot:
        found = snapshot.query("SELECT committed_at FROM epochs WHERE epoch = ?", [epoch])
    return found[0][0] if found else None


def _choose_operator(shape: RowShape) -> str:
    """Return the likeliest operator for the first column: a prefix search for text."""
    first = next(iter(shape.columns.values()))
    return "^=" if first.kind is Kind.STRING else "="


def _make_headings(shape: RowShape, query: ResultsQuery, numeric: frozenset[str]) -> list[Heading]:
    def encode(order: str) -> str:
        return query.encode(order=order, cursor=None)

    return [
        make_heading(each, query.order, encode, kind="num" if each in numeric else "")
        for each in shape.names
    ]


# --- differences --------------------------------------------------------------------------------


@router.get("/jobs/{name}/diff")
async def diff_page(
    request: Request,
    name: str,
    first: Annotated[int | None, Query(alias="from", ge=0, le=2**62)] = None,
    to: EpochNumber = None,
    cursor: Annotated[str | None, Query()] = None,
) -> Response:
    """Show the differences of the results of two epochs."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    live_table, job = await find_followed_job(request, name)
    if job.newest is None:
        return await render_page(
            request, visitor, "results/results_none.html", job=job, tab="results"
        )
    last = job.newest.epoch if to is None else to
    begin = max(last - 1, 0) if first is None else first
    values = await run_in_threadpool(_read_diff, runtime, live_table, begin, last, cursor)
    return await render_page(
        request, visitor, "results/diff.html", job=job, tab="results", **values
    )


class DifferenceRow(NamedTuple):
    """A group that differs; it has a row if it is not in both epochs."""

    label: str
    link: str
    kind: str
    columns: list[ColumnChange]
    row: DisplayRow | None


def _read_diff(
    runtime: Runtime, live_table: LiveTable, first: int, last: int, cursor: str | None
) -> Context:
    shape, refused = live_table.shape, None
    found = Difference(first, last, [], None)

    def compare(table: TableVersion) -> Difference:
        name = live_table.paths.name
        return read_difference_page(table, shape, name, first, last, CONSOLE_RESULT_ROWS, cursor)

    try:
        found = runtime.table_reads.read(live_table, compare)
    except Problem as problem:
        if problem.status not in _SHOWN_ON_PAGE and problem.code != "epoch-unknown":
            raise
        refused = problem
    more = None
    if found.next_cursor is not None:
        more = urlencode({"from": first, "to": found.to, "cursor": found.next_cursor})
    return {
        "refused": refused,
        "first": first,
        "last": found.to,
        "rows": [_make_difference(shape, each) for each in found.rows],
        "next": more,
        "oldest": runtime.oldest_epochs.read(live_table),
        "follows": cursor is not None,
    }


def _make_difference(shape: RowShape, group: DifferingGroup) -> DifferenceRow:
    before, after = group.before, group.after
    kind = "added" if before is None else "removed" if after is None else "changed"
    only = (after or before or {}) if before is None or after is None else None
    numeric = find_numeric_columns(shape)
    return DifferenceRow(
        label_key(group.key),
        encode_key(group.key),
        kind,
        compare_rows(shape, before, after),
        None if only is None else make_row(shape, numeric, only),
    )


# --- downloads ----------------------------------------------------------------------------------


@router.get("/jobs/{name}/export/{form}")
async def export(
    request: Request,
    name: str,
    form: str,
    where: Where = None,
    order: Text = None,
    as_of: Text = None,
) -> Response:
    """Return all rows of a listing as a file; all rows are of one epoch."""
    require_visitor(request)
    media = _FORMS.get(form)
    if media is None:
        raise Problem("not-found", f"results can be downloaded as {', '.join(_FORMS)}")
    runtime = runtime_of(request)
    live_table = await runtime.wait_until_ready(name)
    query = ResultsQuery(tuple(where or ()), order or None, as_of or None)
    wanted = parse_listing(live_table, query.where, query.order, query.as_of)

    def read_page(cursor: str | None) -> ResultPage:
        return runtime.results.read_page(live_table, wanted, PAGE_ROWS_MAX, query.as_of, cursor)

    first = await run_in_threadpool(read_page, None)

    def read_pages() -> Iterator[ResultPage]:
        found = first
        yield found
        while found.cursor is not None:
            found = read_page(found.cursor)
            yield found

    disposition = f'attachment; filename="{name}-epoch-{first.epoch}.{form}"'
    headers = HEADERS | {"Content-Disposition": disposition, "X-Epoch": str(first.epoch)}
    return StreamingResponse(
        _encode_pages(live_table.shape, media, read_pages()), 200, headers, str(media)
    )


def _encode_pages(shape: RowShape, media: Media, pages: Iterator[ResultPage]) -> Iterator[bytes]:
    if media is Media.ARROW:
        yield from encode_batches(shape.types, (found.documents for found in pages))
        return
    for number, found in enumerate(pages):
        if media is Media.NDJSON:
            yield b"".join(document + b"\n" for document in found.documents)
        else:
            yield encode_csv(shape.names, found.documents, head=number == 0, spreadsheet=True)


@router.get("/jobs/{name}/results/{key}")
async def group_page(
    request: Request,
    name: str,
    key: str,
    epoch: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """Show one group of a job; `epoch` is highlighted."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    live_table, job = await find_followed_job(request, name)
    group = parse_key(live_table, key)
    snapshot = await run_in_threadpool(runtime.group_snapshots.read, live_table, group)
    view = GroupView(live_table.shape, snapshot, epoch)
    named = live_table.shape.key(group)
    return await render_page(
        request,
        visitor,
        "results/group.html",
        job=job,
        tab="results",
        view=view,
        document=snapshot.document,
        label=label_key(named),
        part=encode_key(named),
        key=unquote(encode_key(named)),
        highlighted=epoch,
    )


@router.get("/sql")
async def sql_page(request: Request, q: str = "") -> Response:
    """Show the form of the statement `q`; assets/sql.js sends it to `POST /v1/sql`."""
    visitor = require_visitor(request)
    tables = await run_in_threadpool(_list_tables, runtime_of(request))
    return await render_page(
        request, visitor, "sql.html", tables=tables, rows_max=CONSOLE_SQL_ROWS, statement=q
    )


def _list_tables(runtime: Runtime) -> list[JsonObject]:
    """Return each job or view that has results, with the columns of its table."""
    views = [
        view_job(runtime, record, view)
        for record in runtime.jobs.list_records()
        for view in runtime.jobs.parse_spec(record).view_specs
    ]
    return [
        {
            "name": view_name(view.name, view.view),
            "epoch": view.newest.epoch,
            "columns": {name: str(kind) for name, kind in view.live_table.shape.types.items()},
        }
        for view in views
        if view.live_table is not None and view.newest is not None
    ]
