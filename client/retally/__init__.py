"""retally: use a running service from Python.

    >>> import retally
    >>> client = retally.connect(url, token=token)
    >>> client.group("items", "a").row
    {'name': 'a', 'total': 1, 'top': 1}
    >>> client.results("items", where="total>=2", order="-total").rows()[0]["total"]
    4
    >>> client.sql("SELECT count(*) AS groups FROM items").rows()
    [{'groups': 3}]

`connect_async` has the same methods as coroutines. A refused request raises `Refused` with the
stable code of the error, a service that does not answer `Unreachable`.
"""

from __future__ import annotations

from retally.blocking import Answer, Client, Results
from retally.client import AsyncClient
from retally.documents import Change, Job, Operation
from retally.errors import Gap, Refused, RetallyError, Unreachable
from retally.following import Columns, Progress, Restarted
from retally.results import AsyncAnswer, AsyncResults

__all__ = [
    "Answer",
    "AsyncAnswer",
    "AsyncClient",
    "AsyncResults",
    "Change",
    "Client",
    "Columns",
    "Gap",
    "Job",
    "Operation",
    "Progress",
    "Refused",
    "Restarted",
    "Results",
    "RetallyError",
    "Unreachable",
    "connect",
    "connect_async",
]


def connect(url: str, token: str | None = None, *, seconds: float = 90.0) -> Client:
    """Return a client of a service, or of those on one data directory, with commas between them.

    The token goes to these addresses only. `seconds` is how long a service may be silent. `with`
    closes the client.
    """
    return Client.connect(url, token, seconds=seconds)


def connect_async(url: str, token: str | None = None, *, seconds: float = 90.0) -> AsyncClient:
    """Return the client whose methods are coroutines; `async with` closes it."""
    return AsyncClient.connect(url, token, seconds=seconds)
