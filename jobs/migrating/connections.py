"""The clients' properties of tables as named connections; passwords stay out of specs.

properties.bootstrap.servers, properties.sasl.jaas.config, ..  ──►  connections.yaml
avro-confluent.url, avro-confluent.basic-auth.user-info, ..    ──►
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from jobs.core.sql.dialect import Refusal
from jobs.migrating.statements import Option
from jobs.migrating.yaml_text import scalar
from schemas.spec.connections import DEFAULT
from schemas.types.json_types import JsonObject

FILE_NAME = "connections.yaml"
_PREFIX = "properties."
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CREDENTIAL = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))""")
_READ = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.jaas.config")


@dataclass(slots=True)
class Entry:
    """One connection: its keys in the file, and remarks for whoever completes it."""

    document: JsonObject
    remarks: list[str] = field(default_factory=list)


class ConnectionNames:
    """The connections of a file, by name. A single one is the default."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def add(self, options: Mapping[str, Option], offset: int) -> str:
        """Return the name of the connection that a table's options describe."""
        entry, stem = _read_entry(options, offset), DEFAULT
        if DEFAULT in self.entries:
            host = re.split(r"[:.,]", entry.document["bootstrap"])[0]
            stem = re.sub(r"[^A-Za-z0-9-]+", "-", host).strip("-") or "kafka"
        return self._add(entry, stem)

    def add_registry(self, options: Mapping[str, Option], offset: int) -> JsonObject:
        """Return the keys of a section whose format has these options of a schema registry."""
        return {"schema_registry": self._add(_read_registry(options, offset), "registry")}

    def _add(self, entry: Entry, stem: str) -> str:
        for name, known in self.entries.items():
            if known.document == entry.document:
                return name
        name, number = stem, 2
        while name in self.entries:
            name, number = f"{stem}-{number}", number + 1
        self.entries[name] = entry
        return name

    def text(self) -> str:
        """Return the connections file."""
        return "".join(line + "\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"# The connections of the specs beside this file: --connections {FILE_NAME}"
        for name, entry in self.entries.items():
            yield f"{name}:"
            for key, value in entry.document.items():
                if isinstance(value, dict):
                    yield f"  {key}:"
                    yield from (f"    {each}: {scalar(inner)}" for each, inner in value.items())
                else:
                    yield f"  {key}: {scalar(value)}"
            yield from (f"  # {remark}" for remark in entry.remarks)


def _read_entry(options: Mapping[str, Option], offset: int) -> Entry:
    properties = {
        key.removeprefix(_PREFIX): option
        for key, option in options.items()
        if key.startswith(_PREFIX)
    }
    servers = properties.get("bootstrap.servers")
    if servers is None:
        raise Refusal("properties.bootstrap.servers is missing", offset)
    document: JsonObject = {"bootstrap": servers.value.replace(" ", "")}
    security = properties.get("security.protocol")
    if security is not None and security.value != "PLAINTEXT":
        document["security"] = security.value
    if security is not None and security.value.startswith("SASL"):
        document["sasl"] = _read_sasl(properties, security.offset)
    return Entry(document, _remarks(properties))


def _remarks(keys: Iterable[str]) -> list[str]:
    return [
        f"{key} of the Flink table: give PEM files as ssl: {{ca: .., certificate: .., key: ..}}"
        for key in keys
        if key.startswith("ssl.") and "password" not in key
    ]


def _read_registry(options: Mapping[str, Option], offset: int) -> Entry:
    url = options.get("url")
    if url is None:
        raise Refusal("the option 'url' of the format's schema registry is missing", offset)
    document: JsonObject = {"url": url.value}
    if "basic-auth.user-info" in options:
        username, _, password = options["basic-auth.user-info"].value.partition(":")
        document["basic"] = {"username": username, "password": password}
    elif "bearer-auth.token" in options:
        document["bearer"] = {"token": options["bearer-auth.token"].value}
    return Entry(document, _remarks(options))


def _read_sasl(properties: Mapping[str, Option], offset: int) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanism")
    jaas = properties.get("sasl.jaas.config")
    if mechanism is None or mechanism.value not in _MECHANISMS:
        at = mechanism.offset if mechanism else offset
        raise Refusal(f"sasl.mechanism must be one of {', '.join(_MECHANISMS)}", at)
    found = {
        each[1]: re.sub(r"\\(.)", r"\1", each[2]) if each[2] is not None else each[3]
        for each in _CREDENTIAL.finditer(jaas.value if jaas else "")
    }
    if set(found) != {"username", "password"}:
        at = jaas.offset if jaas else mechanism.offset
        raise Refusal("sasl.jaas.config has no username and password", at)
    return {"mechanism": mechanism.value, **{key: found[key] for key in ("username", "password")}}


def is_client_property(key: str) -> bool:
    """Return whether an option is one that a connection has."""
    name = key.removeprefix(_PREFIX)
    return key.startswith(_PREFIX) and (name in _READ or name.startswith("ssl."))
