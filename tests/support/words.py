"""House words that no page, name or first line of a docstring uses, and the industry's words."""

from __future__ import annotations

import re

CODE = re.compile(r"`[^`]*`")
ADDRESS = re.compile(r"\]\([^)]*\)|https?:\S+")

# A house word, and the word that everyone knows.
WORDS = {
    r"trails?": "audit log",
    r"(the )?course of": "history",
    r"retreats?|went the other way": "MAX decreased, MIN increased",
    r"the way of (a|an|the) \w+": "dataflow",
    r"set back|name this moment": "restore, savepoint",
    r"(is|are|it is) going on": "active",
    r"foremost|hindmost": "leader, behind",
    r"told|heard": "emit, return, read, observe, report",
    r"stands? still|stood still|lets? go of|let go of|leaves word": "pause, release, report",
    r"look(s|ed)? (at|through)": "scan, inspect, check",
    r"agenda|what is due": "due work, timers",
    r"made of \d+ rows|of which this": "as of epoch N, N live rows",
    r"nursery": "reader spawner",
    r"in passing|outgrown|parted|let out": "a verb that names the action",
    r"one that is|those that are|that of (it|them)|of before": "a noun",
    r"without a word|says so with|in silence": "the event that is or is not emitted",
    r"(it|what|who) (is|are) asked for|asked of (it|them)": "request, operator",
}

# Parts of names: `told_by`, `_Told`, `toldAt`; and what to write instead.
NAME_WORDS = {
    "tell tells told say says said hear hears heard": "emit, return, read, observe, report",
    "ask asks asked": "request, query, read",
    "trail course agenda nursery": "audit log, history, due work, spawner",
    "turn turns retreat retreats": "extreme change",
    "way ways": "path, format, reason, or what it is",
    "stand stands stood standing": "status, position, or what it is",
    "foremost hindmost outgrown parted": "leader, behind",
    "gone grown lasting": "removed, unmatched, missing, or what it is",
    "begun began": "started",
    "carried remembered made": "a verb for what acts, a noun for the result",
    "settle settles settled unsettled": "merged, committed, stable: each has its own word",
    "look looks looked": "read, scan, check",
    "hopeless": "fatal",
    "tally touched": "count, changed",
}
_HTTP = "HTTP's word for what no longer exists (410 Gone)"
_FIELD = "a field of the REST interface"
ALLOWED = {
    **dict.fromkeys(("ColumnGone", "HistoryGone", "LateRowsGone", "TableFileGone"), _HTTP),
    "on_gone": _HTTP,
    **dict.fromkeys(("asked_by", "began_at"), _FIELD),
    "ParentGone": "a process whose parent has ended",
    "wait_for_turn": "the turn of a request in its queue",
    "_set_in_turn": "one after the other",
    "_in_turn": "one after the other",
    "inlined": "a decorator that says what its function is",
    "connection_made": "a method of asyncio.Protocol",
}


def words_of(line: str) -> str:
    """Return a line without code and addresses."""
    return ADDRESS.sub("]", CODE.sub("``", line))
