"""Over HTTP: the commands about one job, asked of a running service.

    retally results items --data DIR       the job's tables, read here
    retally results items                  the service answers: RETALLY_SERVICE, or --service URL

What is printed is the same. What takes a while is an operation of the service: it goes on when the
command is interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.explanation import print_explanation
from jobs.cli.group_key import group_key
from jobs.cli.message_file import message_of
from jobs.cli.output import note, print_change, print_json, print_messages, print_table, waiting
from jobs.cli.service_client import service_client
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Plan
from jobs.core.values.json_values import render
from schemas.spec.file import load_spec

Json = dict[str, Any]


def run(options: argparse.Namespace) -> int:
    with service_client(options) as client:
        return _COMMANDS[options.command](client, options) or 0


def _plan(client: Any, job: str) -> Plan:
    return plan_of(load_spec(client.job(job).spec))


def _key(options: argparse.Namespace, plan: Plan) -> Json:
    """The group that is meant, by the same rules as with --data."""
    key = group_key(options.key, plan)
    return {
        named.name: render(value, named.type) for named, value in zip(plan.group, key, strict=True)
    }


# --- reading --------------------------------------------------------------------------------------


def _results(client: Any, options: argparse.Namespace) -> None:
    plan = _plan(client, options.job)
    epoch = client.job(options.job).epoch if options.epoch is None else options.epoch
    at = {} if epoch is None else {"as_of": f"epoch:{epoch}"}
    if options.key is None:
        rows = list(client.results(options.job, **at))
    else:
        rows = []
        with _no_such_group():
            rows = [client.result(options.job, _key(options, plan), **at).row]
    if options.json:
        for row in rows:
            print_json(row)
    else:
        types = {named.name: named.type for named in plan.group} | dict(plan.results)
        columns = [(name, types[name].numeric) for name in plan.output]
        print_table(columns, ([row[name] for name in plan.output] for row in rows))
    if options.key is not None and not rows:
        note(f"there is no such group at epoch {epoch}")
    elif not options.json:
        note(f"{len(rows)} {'group' if len(rows) == 1 else 'groups'} at epoch {epoch}")


def _changes(client: Any, options: argparse.Namespace) -> None:
    newest = client.job(options.job).epoch
    since = options.since or 0
    if not options.follow and (newest is None or since >= newest):
        return
    with suppress(KeyboardInterrupt):  # how a follower ends
        for change in client.changes(options.job, since):
            document = msgspec.to_builtins(change)
            if "op" in document:
                print_change(document, as_json=options.json)
            elif not options.follow and change.epoch >= newest:
                return


def _explain(client: Any, options: argparse.Namespace) -> None:
    key = _key(options, _plan(client, options.job))
    document = msgspec.to_builtins(client.explain(options.job, key))
    if options.json:
        print_json(document)
    else:
        print_explanation(document)


def _quarantine(client: Any, options: argparse.Namespace) -> None:
    if options.replay is not None:
        fixed = None if options.message is None else _text_of(options.message)
        _show(options, _ended(client, client.replay(options.job, options.replay, fixed)))
        return
    found = [msgspec.to_builtins(each) for each in client.quarantine(options.job)]
    if options.json:
        for document in found:
            print_json(document)
        return
    print_messages(found)


def _text_of(named: str) -> str:
    return message_of(named).decode("utf-8", "surrogateescape")


@contextmanager
def _no_such_group() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if getattr(error, "code", None) != "group-unknown":
            raise


# --- keeping and going back ----------------------------------------------------------------------


def _savepoint(client: Any, options: argparse.Namespace) -> None:
    if options.delete is not None:
        client.drop_savepoint(options.job, options.delete)
        note(f"savepoint {options.delete} is gone")
        return
    if options.list:
        found = [msgspec.to_builtins(each) for each in client.savepoints(options.job)]
    else:
        found = [msgspec.to_builtins(client.savepoint(options.job, options.name))]
    if options.json:
        for document in found:
            print_json(document)
        return
    columns = [("savepoint", False), ("epoch", True), ("groups", True), ("committed", False)]
    names = ("name", "epoch", "groups", "committed_at")
    print_table(columns, [[each[name] for name in names] for each in found])


def _rewind(client: Any, options: argparse.Namespace) -> None:
    _show(options, _ended(client, client.rewind(options.job, options.to)))


def _clone(client: Any, options: argparse.Namespace) -> None:
    if options.spec is not None:
        raise UsageError("--spec belongs to --data; put the spec of a clone once it is there")
    _show(options, _ended(client, client.clone(options.job, options.name, options.to)))


def _audit(client: Any, options: argparse.Namespace) -> int:
    done = _ended(client, client.audit(options.job))
    _show(options, done)
    return 0 if (done.result or {}).get("verdict") == "equal" else 1


def _ended(client: Any, operation: Any) -> Any:
    """The operation once it is done; its reason is the command's where it failed."""
    with waiting(f"{operation.kind} of {operation.job} (operation {operation.id})"):
        operation = client.ended(operation)
    if operation.state == "FAILED":
        raise CommandFailed(f"the {operation.kind} of {operation.job} failed: {operation.reason}")
    return operation


def _show(options: argparse.Namespace, operation: Any) -> None:
    result = operation.result or {}
    if options.json:
        print_json(result)
        return
    print(f"{operation.kind} of {operation.job}: done")
    plain = {name: value for name, value in result.items() if not isinstance(value, dict | list)}
    print_table([("", False), ("", False)], [[name, value] for name, value in plain.items()])


_COMMANDS: dict[str, Callable[[Any, argparse.Namespace], int | None]] = {
    "results": _results,
    "changes": _changes,
    "explain": _explain,
    "quarantine": _quarantine,
    "savepoint": _savepoint,
    "rewind": _rewind,
    "clone": _clone,
    "audit": _audit,
}
