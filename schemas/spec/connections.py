"""Kafka connections: what the operator configures, and a spec only names.

    connections file (names; secrets by value, environment or file) ──┐
    --brokers, RETALLY_BROKERS ──────────────────────► `default` ─────┴──► Connections
                                                                             │ by name
                     spark_options, librdkafka_options, kafka_python_options ◄┘

A connection becomes client settings here and nowhere else, by closed lists of keys: nothing that
a job spec says can reach a client's security settings, and no secret shows in a repr or an error.
"""

from __future__ import annotations

import base64
import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from schemas import limits
from schemas.spec.file import Document, Problem, SpecError, path_text, read_file, validated
from schemas.spec.values import Section

DEFAULT = "default"
BROKERS_VARIABLE = "RETALLY_BROKERS"
BROKERS_DEFAULT = "127.0.0.1:9092"

# Spark's own pattern for what it hides in logs and pages knows neither JAAS nor PEM keys; set
# spark.redaction.regex to this wherever spark_options are used.
SPARK_REDACTION = r"(?i)secret|passw(or)?d|token|credential|access[.]?key|jaas|keystore[.]key"

Security = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_LOGIN_MODULES: dict[Mechanism, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


# --- what everyone else uses -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: Mechanism
    username: str
    password: SecretStr


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; what is absent is the client's default. Host names are always checked."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: SecretStr | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    name: str
    bootstrap: tuple[str, ...]
    security: Security = "PLAINTEXT"
    sasl: Sasl | None = None
    tls: Tls = Tls()


class UnknownConnectionError(LookupError):
    """A spec names a connection that the operator has not configured."""


@dataclass(frozen=True, slots=True)
class Connections:
    by_name: Mapping[str, Connection]

    def named(self, name: str) -> Connection:
        connection = self.by_name.get(name)
        if connection is not None:
            return connection
        near = difflib.get_close_matches(name[:80], self.by_name, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "name it in the file of --connections"
        raise UnknownConnectionError(f"no connection is called {name[:80]!r}; {hint}")


def load_connections(
    file: Path | None = None,
    brokers: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Connections:
    """All connections of this process. `default` is --brokers; without it the file's own
    `default`, then RETALLY_BROKERS, then 127.0.0.1:9092. A SpecError has every problem."""
    environment = os.environ if environment is None else environment
    by_name = {} if file is None else _read(file, environment)
    if brokers is not None and DEFAULT in by_name:
        reason = "is what --brokers names as well; remove one of them"
        raise SpecError(str(file), [Problem(DEFAULT, reason)])
    if DEFAULT not in by_name:
        named_by, addresses = "--brokers", brokers
        if addresses is None:
            named_by, addresses = BROKERS_VARIABLE, environment.get(BROKERS_VARIABLE)
        try:
            bootstrap = tuple(_bootstrap(addresses or BROKERS_DEFAULT).split(","))
        except ValueError as error:
            raise SpecError(named_by, [Problem("", str(error))]) from None
        by_name[DEFAULT] = Connection(DEFAULT, bootstrap)
    return Connections(by_name)


# --- client settings -------------------------------------------------------------------------


def spark_options(connection: Connection) -> dict[str, str]:
    """For Spark's Kafka source. PEM contents travel in the options themselves, so that executors
    need none of the files. Read anew at each call: a renewed certificate counts at a restart."""
    options = {
        "kafka.bootstrap.servers": ",".join(connection.bootstrap),
        "kafka.security.protocol": connection.security,
    }
    if connection.sasl is not None:
        options["kafka.sasl.mechanism"] = connection.sasl.mechanism
        options["kafka.sasl.jaas.config"] = _jaas(connection.sasl)
    tls = connection.tls
    if tls.ca is not None:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = _certificates(tls.ca)
    if tls.certificate is not None and tls.key is not None:
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = _certificates(tls.certificate)
        options["kafka.ssl.keystore.key"] = _pkcs8_key(tls.key)
    if tls.key_password is not None:
        options["kafka.ssl.key.password"] = tls.key_password.get_secret_value()
    return options


def librdkafka_options(connection: Connection) -> dict[str, str]:
    """For confluent-kafka's clients."""
    options = {
        "bootstrap.servers": ",".join(connection.bootstrap),
        "security.protocol": connection.security,
    }
    if connection.sasl is not None:
        options["sasl.mechanism"] = connection.sasl.mechanism
        options["sasl.username"] = connection.sasl.username
        options["sasl.password"] = connection.sasl.password.get_secret_value()
    return options | _files(
        connection.tls,
        ca="ssl.ca.location",
        certificate="ssl.certificate.location",
        key="ssl.key.location",
        password="ssl.key.password",
    )


def kafka_python_options(connection: Connection) -> dict[str, str | list[str]]:
    """For kafka-python's consumers, producers and admin clients."""
    options: dict[str, str | list[str]] = {
        "bootstrap_servers": list(connection.bootstrap),
        "security_protocol": connection.security,
    }
    if connection.sasl is not None:
        options["sasl_mechanism"] = connection.sasl.mechanism
        options["sasl_plain_username"] = connection.sasl.username
        options["sasl_plain_password"] = connection.sasl.password.get_secret_value()
    return options | _files(
        connection.tls,
        ca="ssl_cafile",
        certificate="ssl_certfile",
        key="ssl_keyfile",
        password="ssl_password",
    )


def _files(tls: Tls, *, ca: str, certificate: str, key: str, password: str) -> dict[str, str]:
    options = {
        name: str(path)
        for name, path in ((ca, tls.ca), (certificate, tls.certificate), (key, tls.key))
        if path is not None
    }
    if tls.key_password is not None:
        options[password] = tls.key_password.get_secret_value()
    return options


def _jaas(sasl: Sasl) -> str:
    module = _LOGIN_MODULES[sasl.mechanism]
    username, password = _jaas_quoted(sasl.username), _jaas_quoted(sasl.password.get_secret_value())
    return f"{module} required username={username} password={password};"


def _jaas_quoted(text: str) -> str:
    """A quoted string as Java's StreamTokenizer reads it: it ends at a quote or a line break, and
    knows backslash escapes, octal ones among them, always of three digits here."""
    return '"' + re.sub(r'[\x00-\x1f"\\]', lambda found: f"\\{ord(found[0]):03o}", text) + '"'


class UnusableFileError(ValueError):
    """A PEM file of a connection does not hold what it should; its contents are not quoted."""


_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_PKCS8 = re.compile(r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----([^-]+)-----END \1?PRIVATE KEY-----")
# What openssl encrypts with by default (PBES2, 1.2.840.113549.1.5.13), which Kafka's Java client
# cannot undo; it asks Java for a cipher of that name, and there is none.
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
_CONVERT = (
    "convert it with: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in OLD -out NEW "
    "(or -nocrypt in place of -v1 and its word, in a file that nobody else can read)"
)


def _certificates(path: Path) -> str:
    found = _CERTIFICATE.findall(_pem(path))
    if not found:
        raise UnusableFileError(f"{path}: holds no PEM certificate")
    return "\n".join(found)


def _pkcs8_key(path: Path) -> str:
    found = _PKCS8.search(_pem(path))
    if found is None:
        raise UnusableFileError(
            f"{path}: holds no PKCS#8 private key, the only form that Kafka's Java client reads; "
            + _CONVERT
        )
    if found[1] and _PBES2 in _decoded(found[2]):
        raise UnusableFileError(
            f"{path}: is encrypted in a way that Kafka's Java client cannot read; {_CONVERT}"
        )
    return found[0]


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode(body)
    except ValueError:
        return b""  # no key at all; the client says so


def _pem(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(limits.SPEC_BYTES_MAX).decode("ascii", "replace")
    except OSError as error:
        raise UnusableFileError(f"{path}: cannot be read: {error.strerror}") from None


# --- the connections file --------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", re.ASCII)
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})", re.ASCII)
_PORT_MAX = 65_535


def _bootstrap(text: str) -> str:
    addresses = [address.strip() for address in text.split(",")]
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        # Not quoted: people write passwords into addresses.
        if match is None or not 1 <= int(match[1]) <= _PORT_MAX:
            raise ValueError("must be HOST:PORT, or several of them with commas between")
    return ",".join(addresses)


def _no_nul(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("must not be empty, and not hold a NUL character")
    return text


def _no_nul_secret(secret: SecretStr) -> SecretStr:
    _no_nul(secret.get_secret_value())
    return secret


_Text = Annotated[str, AfterValidator(_no_nul)]
_Secret = Annotated[SecretStr, AfterValidator(_no_nul_secret)]


class _SaslEntry(Section):
    mechanism: Mechanism
    username: _Text
    password: _Secret | None = None
    password_env: _Text | None = None
    password_file: _Text | None = Field(default=None, validate_default=True)

    @field_validator("password_file")
    @classmethod
    def _one_password(cls, file: str | None, info: ValidationInfo) -> str | None:
        if not {"password", "password_env"} <= info.data.keys():
            return file
        given = [info.data["password"], info.data["password_env"], file]
        if sum(way is not None for way in given) != 1:
            raise ValueError("give exactly one of password, password_env and password_file")
        return file


class _TlsEntry(Section):
    ca: _Text | None = None
    certificate: _Text | None = None
    key: _Text | None = Field(default=None, validate_default=True)
    key_password: _Secret | None = None
    key_password_env: _Text | None = None
    key_password_file: _Text | None = Field(default=None, validate_default=True)

    @field_validator("key")
    @classmethod
    def _with_certificate(cls, key: str | None, info: ValidationInfo) -> str | None:
        if "certificate" in info.data and (info.data["certificate"] is None) != (key is None):
            raise ValueError("certificate and key go together; give both or neither")
        return key

    @field_validator("key_password_file")
    @classmethod
    def _one_password(cls, file: str | None, info: ValidationInfo) -> str | None:
        given = [info.data.get("key_password"), info.data.get("key_password_env"), file]
        ways = sum(way is not None for way in given)
        if ways > 1:
            raise ValueError(
                "give at most one of key_password, key_password_env and key_password_file"
            )
        if ways and "key" in info.data and info.data["key"] is None:
            raise ValueError("a key's password is given, but no key; add key or remove it")
        return file


class _Entry(Section):
    bootstrap: Annotated[str, AfterValidator(_bootstrap)]
    security: Security = "PLAINTEXT"
    sasl: _SaslEntry | None = Field(default=None, validate_default=True)
    ssl: _TlsEntry | None = None

    @field_validator("sasl")
    @classmethod
    def _sasl_of_security(cls, sasl: _SaslEntry | None, info: ValidationInfo) -> _SaslEntry | None:
        security = info.data.get("security")
        if security is not None and security.startswith("SASL") != (sasl is not None):
            need = "needs it; add it" if sasl is None else "does not use it; remove it"
            raise ValueError(f"security: {security} {need}, or change security")
        return sasl

    @field_validator("ssl")
    @classmethod
    def _ssl_of_security(cls, ssl: _TlsEntry | None, info: ValidationInfo) -> _TlsEntry | None:
        security = info.data.get("security")
        if ssl is not None and security is not None and not security.endswith("SSL"):
            raise ValueError(f"security: {security} does not use it; remove it, or change security")
        return ssl


def _read(file: Path, environment: Mapping[str, str]) -> dict[str, Connection]:
    document = read_file(file, secret=True)
    if not isinstance(document.value, dict):
        raise SpecError(document.name, [Problem("", "must be a mapping of names to connections")])
    by_name: dict[str, Connection] = {}
    problems: list[Problem] = []
    for name in document.value:
        below = document.below(name)
        try:
            if _NAME.fullmatch(name) is None:
                reason = "is not a connection's name; use up to 63 letters, digits, - and _"
                raise SpecError(document.name, [below.problem((), reason)])
            by_name[name] = _Resolver(below, file.parent, environment).connection(name)
        except SpecError as error:
            problems += [
                replace(problem, path=".".join(filter(None, (path_text((name,)), problem.path))))
                for problem in error.problems
            ]
    if problems:
        raise SpecError(document.name, problems[: limits.PROBLEMS_MAX])
    return by_name


class _Resolver:
    """Turns an entry into a Connection: looks up secrets, and files beside the entry's own."""

    def __init__(self, document: Document, beside: Path, environment: Mapping[str, str]) -> None:
        self._document = document
        self._beside = beside
        self._environment = environment
        self._problems: list[Problem] = []

    def connection(self, name: str) -> Connection:
        entry = validated(_Entry, self._document)
        sasl, tls = None, Tls()
        if entry.sasl is not None:
            password = self._secret(
                ("sasl", "password"),
                entry.sasl.password,
                entry.sasl.password_env,
                entry.sasl.password_file,
            )
            # Without a password there is a problem, so this value goes nowhere.
            sasl = Sasl(entry.sasl.mechanism, entry.sasl.username, password or SecretStr(""))
        if entry.ssl is not None:
            tls = Tls(
                self._file(("ssl", "ca"), entry.ssl.ca),
                self._file(("ssl", "certificate"), entry.ssl.certificate),
                self._file(("ssl", "key"), entry.ssl.key),
                self._secret(
                    ("ssl", "key_password"),
                    entry.ssl.key_password,
                    entry.ssl.key_password_env,
                    entry.ssl.key_password_file,
                ),
            )
        if self._problems:
            raise SpecError(self._document.name, self._problems)
        return Connection(name, tuple(entry.bootstrap.split(",")), entry.security, sasl, tls)

    def _file(self, keys: tuple[str, str], name: str | None) -> Path | None:
        if name is None:
            return None
        path = self._beside / name
        if not path.is_file():
            self._wrong(keys, f"there is no file {path}")
        return path

    def _secret(
        self, keys: tuple[str, str], value: SecretStr | None, variable: str | None, file: str | None
    ) -> SecretStr | None:
        section, key = keys
        if variable is not None:
            found = self._environment.get(variable)
            if not found:
                self._wrong((section, f"{key}_env"), "names a variable that is not set")
            return SecretStr(found or "")
        if file is not None:
            return self._secret_of_file((section, f"{key}_file"), self._beside / file)
        return value

    def _secret_of_file(self, keys: tuple[str, str], path: Path) -> SecretStr | None:
        try:
            with path.open(encoding="utf-8") as opened:
                text = opened.read(limits.SPEC_BYTES_MAX)
            # Editors end a file with a line break; it is no part of the secret.
            return SecretStr(_no_nul(text.removesuffix("\n")))
        except OSError as error:
            self._wrong(keys, f"{path} cannot be read: {error.strerror}")
        except ValueError:
            self._wrong(keys, f"{path} must hold text, not be empty, and hold no NUL character")
        return None

    def _wrong(self, keys: tuple[str, str], reason: str) -> None:
        self._problems.append(self._document.problem(keys, reason))
