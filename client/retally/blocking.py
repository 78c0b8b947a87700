"""Blocking: the client without an event loop, made from the asynchronous one.

Coroutines on a BlockingConnection never suspend, so one step runs each to its end. The twin of a
class has its methods: a coroutine becomes a function, an asynchronous iterator an iterator.
blocking.pyi has their types, made by setup/client_types.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from retally.client import AsyncClient
from retally.http import BlockingConnection
from retally.leader import LeaderConnection
from retally.results import AsyncAnswer, AsyncResults

_ENTERING = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}


def _finish(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise AssertionError("a blocking connection has suspended")


def _iterate(items: Any) -> Iterator[Any]:
    try:
        while True:
            try:
                item = _finish(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        _finish(items.aclose())


def _make_blocking(method: Any) -> Callable[..., Any]:
    @functools.wraps(method)
    def blocking(self: Any, *arguments: Any, **options: Any) -> Any:
        found = method(self.twin, *arguments, **options)
        if inspect.isasyncgen(found):
            return _iterate(found)
        if inspect.iscoroutine(found):
            found = _finish(found)
        if found is self.twin:
            return self
        return _TWINS[type(found)](found) if type(found) in _TWINS else found

    return blocking


class _Blocking:
    """A twin; its attributes are those of the asynchronous one."""

    def __init__(self, twin: Any) -> None:
        self.twin = twin

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["twin"], name)

    def __repr__(self) -> str:
        return repr(self.twin).replace("<Async", "<")


def _connect(cls: Any, address: str, token: str | None = None, *, seconds: float = 90.0) -> Any:
    connect = functools.partial(BlockingConnection, token=token, seconds=seconds)
    return cls(AsyncClient(LeaderConnection(connect, address)))


def _make_twin(original: type, name: str) -> type:
    methods: dict[str, object] = {
        _ENTERING.get(each, each): _make_blocking(method)
        for each, method in inspect.getmembers(original, inspect.isfunction)
        if each in _ENTERING or not each.startswith("_")
    }
    if original is AsyncClient:
        methods["connect"] = classmethod(_connect)
    about = {"__doc__": original.__doc__, "__module__": __name__}
    return type(name, (_Blocking,), {**methods, **about})


Results = _make_twin(AsyncResults, "Results")
Answer = _make_twin(AsyncAnswer, "Answer")
Client = _make_twin(AsyncClient, "Client")
_TWINS = {AsyncResults: Results, AsyncAnswer: Answer}
