"""The results of a job as pages: now or at an epoch, what differs between two, files of it.

where, order, cursor, as_of (as in REST) ──► the same listing ──► rows with links
column, op, value (a form's) ──► one more `where`, by a redirect
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse

from schemas.limits import CONDITIONS_MAX, CONSOLE_RESULT_ROWS, PAGE_ROWS_MAX
from schemas.types.sql_types import Kind
from service.answers.arrow import result_batches
from service.answers.difference import difference_page
from service.answers.listing import listing
from service.answers.media import Media, csv
from service.answers.results import Page
from service.console.job_view import JobView, followed_job
from service.console.page import HEADERS, PageRoute, elsewhere, page
from service.console.rows import (
    group_names,
    key_label,
    key_part,
    numeric_columns,
    shown_row,
    steps,
)
from service.console.story.extreme_changes import Lately, Retreats
from service.console.story.lookback import Lookback
from service.console.visitor import visitor_of
from service.live.follower import Follower
from service.problems import Problem
from service.routes.answering import read_table
from service.runtime import Runtime, runtime_of
from service.table.job_table import Table
from service.table.row_shape import RowShape

router = APIRouter(include_in_schema=False, route_class=PageRoute)

OPS = {
    "^=": "begins with", "=": "is", "!=": "is not", ">=": "is at least", "<=": "is at most",
    ">": "is greater than", "<": "is less than", "is null": "is NULL",
    "is not null": "is not NULL",
}  # fmt: skip
_FORMS = {"csv": Media.CSV, "jsonl": Media.NDJSON, "arrow": Media.ARROW}
_SHOWN_IN_PLACE = (410, 422)  # refusals that the page tells beside what was asked
_retreats = Retreats()
_lookback = Lookback()

Words = Annotated[str | None, Query(max_length=10_000)]
Where = Annotated[list[str] | None, Query(max_length=CONDITIONS_MAX)]
EpochNumber = Annotated[int | None, Query(ge=0, le=2**62)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a page of results is asked for."""

    where: tuple[str, ...] = ()
    order: str | None = None
    as_of: str | None = None
    cursor: str | None = None

    def query(self, **changed: Any) -> str:
        """The same with something else, as the query of an address."""
        said = {name: getattr(self, name) for name in ("where", "order", "as_of", "cursor")}
        said |= changed
        pairs = [("where", each) for each in said.pop("where")]
        pairs += [(name, value) for name, value in said.items() if value]
        return f"?{urlencode(pairs)}" if pairs else "?"

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """Each condition, with the query that is left without it."""
        rest = [
            (text, self.query(where=self.where[:at] + self.where[at + 1 :], cursor=None))
            for at, text in enumerate(self.where)
        ]
        return [(_told(text), query) for text, query in rest]


def _told(condition: str) -> str:
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
    order: Words = None,
    as_of: Words = None,
    cursor: Annotated[str | None, Query()] = None,
    column: Words = None,
    op: Words = None,
    value: Words = None,
    epoch: Annotated[str | None, Query(max_length=20)] = None,
) -> Response:
    """The results of a job."""
    visitor = visitor_of(request)
    asked = Asked(tuple(each for each in where or () if each), order, as_of, cursor)
    if column and op:  # a form's condition
        added = f"{column} {op}" if op.startswith("is") else f"{column}{op}{value or ''}"
        return elsewhere(_place(name, asked.query(where=(*asked.where, added), cursor=None)))
    if epoch is not None:
        at = f"epoch:{epoch}" if epoch else None
        return elsewhere(_place(name, asked.query(as_of=at, cursor=None)))
    runtime = runtime_of(request)
    follower, job = await followed_job(request, name)
    if job.newest is None:
        return await page(request, visitor, "results_none.html", job=job, tab="results")
    shown = await run_in_threadpool(_results, runtime, follower, job, asked)
    return await page(request, visitor, "results.html", job=job, tab="results", **shown)


def _place(name: str, query: str) -> str:
    return f"/jobs/{name}/results{query}"


def _results(runtime: Runtime, follower: Follower, job: JobView, asked: Asked) -> dict[str, Any]:
    shape, refused, found = follower.shape, None, None
    try:
        wanted = listing(shape, asked.where, asked.order, asked.as_of)
        found = runtime.results.page(
            follower, wanted, CONSOLE_RESULT_ROWS, asked.as_of, asked.cursor or None
        )
    except Problem as problem:
        if problem.status not in _SHOWN_IN_PLACE and problem.code != "epoch-unknown":
            raise
        refused = problem
    newest = job.newest
    assert newest is not None
    oldest = _lookback.oldest(follower)
    numeric = numeric_columns(shape)
    rows = [] if found is None else [msgspec.json.decode(each) for each in found.documents]
    return {
        "asked": asked,
        "refused": refused,
        "epoch": newest.epoch if found is None else found.epoch,
        "now": newest.epoch,
        "oldest": min(oldest, newest.epoch),
        "committed_ms": _committed(follower, newest.epoch if found is None else found.epoch),
        "live": asked.as_of is None and not asked.cursor,
        "columns": _headings(shape, asked, numeric),
        "rows": [shown_row(shape, numeric, row) for row in rows],
        "next": _next(asked, found),
        "ops": OPS,
        "first_op": _first_op(shape),
        "filters": list(shape.columns),
        "hidden": [each for each in group_names(shape) if each not in shape.names],
        "lately": _lately(follower),
        "forms": list(_FORMS),
        "export": asked.query(cursor=None),
        "counted": job.standing["groups"],
    }


def _lately(follower: Follower) -> Lately:
    return _retreats.of(follower)


def _committed(follower: Follower, epoch: int) -> int | None:
    with follower.index.reading() as reading:
        found = reading.rows("SELECT committed_at FROM epochs WHERE epoch = ?", [epoch])
    return found[0][0] if found else None


def _next(asked: Asked, found: Page | None) -> str | None:
    return None if found is None or found.cursor is None else asked.query(cursor=found.cursor)


def _first_op(shape: RowShape) -> str:
    """What somebody who looks for a group most likely asks of the first column."""
    first = next(iter(shape.columns.values()))
    return "^=" if first.kind is Kind.STRING else "="


def _headings(shape: RowShape, asked: Asked, numeric: frozenset[str]) -> list[dict[str, Any]]:
    """Each column with what a click on it asks for: up, down, and as it was."""
    found = []
    for name in shape.names:
        sort, turned = "none", name if name not in numeric else f"-{name}"
        if asked.order in (name, f"-{name}"):
            descending = asked.order.startswith("-")
            sort = "descending" if descending else "ascending"
            first = descending == (name in numeric)
            turned = (name if descending else f"-{name}") if first else ""
        query = asked.query(order=turned, cursor=None)
        numbers = name in numeric
        found.append({"name": name, "sort": sort, "query": query, "num": numbers})
    return found


# --- what differs -------------------------------------------------------------------------------


@router.get("/jobs/{name}/diff")
async def diff_page(
    request: Request,
    name: str,
    first: Annotated[int | None, Query(alias="from", ge=0, le=2**62)] = None,
    to: EpochNumber = None,
    cursor: Annotated[str | None, Query()] = None,
) -> Response:
    """What changed from one epoch to another."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    follower, job = await followed_job(request, name)
    if job.newest is None:
        return await page(request, visitor, "results_none.html", job=job, tab="results")
    last = job.newest.epoch if to is None else to
    begin = max(last - 1, 0) if first is None else first
    shown = await run_in_threadpool(_diff, runtime, follower, begin, last, cursor)
    return await page(request, visitor, "diff.html", job=job, tab="results", **shown)


def _diff(
    runtime: Runtime, follower: Follower, first: int, last: int, cursor: str | None
) -> dict[str, Any]:
    shape, refused = follower.shape, None
    found: dict[str, Any] = {"from": first, "to": last, "rows": [], "next_cursor": None}

    def look(table: Table) -> dict[str, Any]:
        name = follower.places.name
        return difference_page(table, shape, name, first, last, CONSOLE_RESULT_ROWS, cursor)

    try:
        found = read_table(runtime, follower, look)
    except Problem as problem:
        if problem.status not in _SHOWN_IN_PLACE and problem.code != "epoch-unknown":
            raise
        refused = problem
    numeric = numeric_columns(shape)
    rows = [
        {
            "label": key_label(each["key"]),
            "link": key_part(each["key"]),
            "kind": _kind(each),
            "steps": steps(shape, each["before"], each["after"]),
            "row": None
            if each["before"] is not None and each["after"] is not None
            else shown_row(shape, numeric, each["after"] or each["before"]),
        }
        for each in found["rows"]
    ]
    more = None
    if found["next_cursor"] is not None:
        more = urlencode({"from": first, "to": found["to"], "cursor": found["next_cursor"]})
    return {
        "refused": refused,
        "first": first,
        "last": found["to"],
        "rows": rows,
        "next": more,
        "oldest": _lookback.oldest(follower),
        "follows": cursor is not None,
    }


def _kind(each: dict[str, Any]) -> str:
    if each["before"] is None:
        return "came"
    return "went" if each["after"] is None else "changed"


# --- files --------------------------------------------------------------------------------------


@router.get("/jobs/{name}/export/{form}")
async def export(
    request: Request,
    name: str,
    form: str,
    where: Where = None,
    order: Words = None,
    as_of: Words = None,
) -> Response:
    """All rows that a page of results has a part of, as a file; all of one epoch."""
    visitor_of(request)
    media = _FORMS.get(form)
    if media is None:
        raise Problem("not-found", 404, f"results are written as {', '.join(_FORMS)}")
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    asked = Asked(tuple(where or ()), order or None, as_of or None)
    wanted = listing(follower.shape, asked.where, asked.order, asked.as_of)

    def read(cursor: str | None) -> Page:
        return runtime.results.page(follower, wanted, PAGE_ROWS_MAX, asked.as_of, cursor)

    first = await run_in_threadpool(read, None)

    def pages() -> Iterator[Page]:
        found = first
        yield found
        while found.cursor is not None:
            found = read(found.cursor)
            yield found

    told = f'attachment; filename="{name}-epoch-{first.epoch}.{form}"'
    headers = HEADERS | {"Content-Disposition": told, "X-Epoch": str(first.epoch)}
    return StreamingResponse(_pieces(follower.shape, media, pages()), 200, headers, str(media))


def _pieces(shape: RowShape, media: Media, pages: Iterator[Page]) -> Iterator[bytes]:
    if media is Media.ARROW:
        yield from result_batches(shape.types, (found.documents for found in pages))
        return
    for number, found in enumerate(pages):
        if media is Media.NDJSON:
            yield b"".join(document + b"\n" for document in found.documents)
        else:
            yield csv(shape.names, found.documents, head=number == 0, spreadsheet=True)
