"""Kafka connections, schema registries and databases: the operator configures them.

A spec names them.

    connections file (names; secrets by value, environment or file) ──┐
    --brokers, RETALLY_BROKERS ──────────────────────► `default` ─────┴──► Connections
                                                                             │ by name
                     spark_options, librdkafka_options, kafka_python_options ◄┘

Only this module turns a connection into client settings, from closed lists of keys. So a job spec
cannot change a client's security settings, and no repr or error shows a secret.
"""

from __future__ import annotations

import base64
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from pydantic import SecretStr

from schemas import limits
from schemas.failures.catalogue import CodedError
from schemas.spec.connection_entries import (
    ConnectionEntry,
    DatabaseEntry,
    Mechanism,
    PasswordEntry,
    RegistryEntry,
    Security,
    TlsEntry,
    check_bootstrap,
    check_text,
)
from schemas.spec.file import Document, Problem, SpecError, path_text, read_file, validate

DEFAULT = "default"
BROKERS_VARIABLE = "RETALLY_BROKERS"
BROKERS_DEFAULT = "127.0.0.1:9092"

# Spark's default pattern for secrets in logs and pages matches neither JAAS nor PEM keys. Set
# spark.redaction.regex to this in every session that uses spark_options.
SPARK_REDACTION = r"(?i)secret|passw(or)?d|token|credential|access[.]?key|jaas|keystore[.]key"

_LOGIN_MODULES: dict[Mechanism, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


# --- connections -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: Mechanism
    username: str
    password: SecretStr


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; for None the client uses its default. Host names are always verified."""

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


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry with Confluent's REST API."""

    name: str
    url: str
    username: str | None = None
    secret: SecretStr | None = None  # the password of the user; without a user a bearer token
    tls: Tls = Tls()


@dataclass(frozen=True, slots=True)
class Database:
    """A database that Spark reads with a JDBC driver."""

    name: str
    url: str
    username: str | None = None
    password: SecretStr | None = None
    driver: str | None = None  # the class, if it is not the usual one of the URL


class UnknownConnectionError(CodedError, LookupError, code="connection-unknown"):
    """No connection of that name is configured."""


@dataclass(frozen=True, slots=True)
class Connections:
    by_name: Mapping[str, Connection]
    registries: Mapping[str, Registry] = field(default_factory=dict)
    databases: Mapping[str, Database] = field(default_factory=dict)

    def lookup(self, name: str) -> Connection:
        """Return the connection of that name, or raise UnknownConnectionError."""
        return self.by_name.get(name) or _fail_lookup("connection", name, self.by_name)

    def lookup_registry(self, name: str) -> Registry:
        """Return the schema registry of that name, or raise UnknownConnectionError."""
        return self.registries.get(name) or _fail_lookup("schema registry", name, self.registries)

    def lookup_database(self, name: str) -> Database:
        """Return the database of that name, or raise UnknownConnectionError."""
        return self.databases.get(name) or _fail_lookup("database", name, self.databases)

    def registries_of(self, names: Iterable[str | None]) -> dict[str, Registry]:
        """Return these schema registries, or raise UnknownConnectionError."""
        return {name: self.lookup_registry(name) for name in names if name is not None}


def _fail_lookup(kind: str, name: str, known: Iterable[str]) -> NoReturn:
    near = difflib.get_close_matches(name[:80], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "add it to the file of --connections"
    raise UnknownConnectionError(f"no {kind} is called {name[:80]!r}; {hint}")


def load_connections(
    file: Path | None = None,
    brokers: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Connections:
    """Return all connections of this process; raise SpecError with every problem.

    `default` is --brokers, else the file's `default`, RETALLY_BROKERS or 127.0.0.1:9092."""
    environment = os.environ if environment is None else environment
    named = {} if file is None else _read_connections(file, environment)
    registries = {name: each for name, each in named.items() if isinstance(each, Registry)}
    databases = {name: each for name, each in named.items() if isinstance(each, Database)}
    by_name = {name: each for name, each in named.items() if isinstance(each, Connection)}
    if brokers is not None and DEFAULT in by_name:
        reason = "is defined by --brokers as well; remove one of them"
        raise SpecError(str(file), [Problem(DEFAULT, reason)])
    if DEFAULT not in by_name:
        setting, addresses = "--brokers", brokers
        if addresses is None:
            setting, addresses = BROKERS_VARIABLE, environment.get(BROKERS_VARIABLE)
        try:
            bootstrap = tuple(check_bootstrap(addresses or BROKERS_DEFAULT).split(","))
        except ValueError as error:
            raise SpecError(setting, [Problem("", str(error))]) from None
        by_name[DEFAULT] = Connection(DEFAULT, bootstrap)
    return Connections(by_name, registries, databases)


# The drivers of Spark's dialects: without the class Java does not find a driver of --jars.
_DRIVERS = {
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "postgresql": "org.postgresql.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "derby": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
}


# --- client settings -------------------------------------------------------------------------


def spark_options(connection: Connection) -> dict[str, str]:
    """Return the options for Spark's Kafka source.

    They contain the PEM texts, so executors do not need the files. Each call reads the files again,
    so a restarted job uses a renewed certificate."""
    options = {
        "kafka.bootstrap.servers": ",".join(connection.bootstrap),
        "kafka.security.protocol": connection.security,
    }
    if connection.sasl is not None:
        options["kafka.sasl.mechanism"] = connection.sasl.mechanism
        options["kafka.sasl.jaas.config"] = _jaas_config(connection.sasl)
    tls = connection.tls
    if tls.ca is not None:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = _read_certificates(tls.ca)
    if tls.certificate is not None and tls.key is not None:
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = _read_certificates(tls.certificate)
        options["kafka.ssl.keystore.key"] = _read_pkcs8_key(tls.key)
    if tls.key_password is not None:
        options["kafka.ssl.key.password"] = tls.key_password.get_secret_value()
    return options


def jdbc_options(database: Database) -> dict[str, str]:
    """Return the options for Spark's JDBC source; raise UnusableFileError without a driver."""
    _, kind, place = database.url.split(":", 2)
    driver, url = database.driver or _DRIVERS.get(kind), database.url
    if driver is None:
        raise UnusableFileError(f"database {database.name!r} needs driver: the class of its driver")
    options = {"driver": driver, "fetchsize": str(limits.SNAPSHOT_FETCH_ROWS)}
    if kind in ("mysql", "mariadb"):
        # Spark quotes names as MySQL does for this URL only. Without the others the driver holds
        # all rows of a query, and reads TINYINT(1) as true or false.
        options |= {"useCursorFetch": "true", "tinyInt1isBit": "false"}
    if kind == "mariadb":
        url = f"jdbc:mysql:{place}{'&' if '?' in place else '?'}permitMysqlScheme=true"
    if database.username is not None and database.password is not None:
        options |= {"user": database.username, "password": database.password.get_secret_value()}
    return {"url": url, **options}


def librdkafka_options(connection: Connection) -> dict[str, str]:
    """Return the options for confluent-kafka's clients."""
    sasl, tls = connection.sasl, connection.tls
    password = None if tls.key_password is None else tls.key_password.get_secret_value()
    options: dict[str, str | Path | None] = {
        "bootstrap.servers": ",".join(connection.bootstrap),
        "security.protocol": connection.security,
        "sasl.mechanism": None if sasl is None else sasl.mechanism,
        "sasl.username": None if sasl is None else sasl.username,
        "sasl.password": None if sasl is None else sasl.password.get_secret_value(),
        "ssl.ca.location": tls.ca,
        "ssl.certificate.location": tls.certificate,
        "ssl.key.location": tls.key,
        "ssl.key.password": password,
    }
    return {name: str(value) for name, value in options.items() if value is not None}


_KAFKA_PYTHON_NAMES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


def kafka_python_options(connection: Connection | Mapping[str, str]) -> dict[str, Any]:
    """Return the options for kafka-python's clients, of a connection or of librdkafka's options."""
    found = librdkafka_options(connection) if isinstance(connection, Connection) else connection
    options = {ours: found[name] for name, ours in _KAFKA_PYTHON_NAMES.items() if name in found}
    return {"bootstrap_servers": found["bootstrap.servers"].split(","), **options}


def _jaas_config(sasl: Sasl) -> str:
    module = _LOGIN_MODULES[sasl.mechanism]
    username, password = _quote_jaas(sasl.username), _quote_jaas(sasl.password.get_secret_value())
    return f"{module} required username={username} password={password};"


def _quote_jaas(text: str) -> str:
    """Quote a text for Java's StreamTokenizer, with octal escapes of three digits.

    There a quoted string ends at a quote or a line break, and backslashes begin escapes."""
    return '"' + re.sub(r'[\x00-\x1f"\\]', lambda match: f"\\{ord(match[0]):03o}", text) + '"'


class UnusableFileError(ValueError):
    """A PEM file of a connection is unusable; the message does not quote its contents."""


_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_PKCS8 = re.compile(r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----([^-]+)-----END \1?PRIVATE KEY-----")
# By default openssl encrypts with PBES2 (1.2.840.113549.1.5.13). Kafka's Java client cannot decrypt
# it: it asks Java for a cipher of that name, which does not exist.
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
_CONVERT = (
    "convert it with: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in OLD -out NEW "
    "(or with -nocrypt instead of -v1 PBE-SHA1-3DES, in a file that nobody else can read)"
)


def _read_certificates(path: Path) -> str:
    certificates = _CERTIFICATE.findall(_read_pem(path))
    if not certificates:
        raise UnusableFileError(f"{path}: contains no PEM certificate")
    return "\n".join(certificates)


def _read_pkcs8_key(path: Path) -> str:
    match = _PKCS8.search(_read_pem(path))
    if match is None:
        raise UnusableFileError(
            f"{path}: contains no PKCS#8 private key, the only form that Kafka's Java client "
            f"reads; {_CONVERT}"
        )
    if match[1] and _PBES2 in _decode_body(match[2]):
        raise UnusableFileError(
            f"{path}: is encrypted in a way that Kafka's Java client cannot read; {_CONVERT}"
        )
    return match[0]


def _decode_body(body: str) -> bytes:
    try:
        return base64.b64decode(body)
    except ValueError:
        return b""  # not a key; the client reports it


def _read_pem(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(limits.SPEC_BYTES_MAX).decode("ascii", "replace")
    except OSError as error:
        raise UnusableFileError(f"{path}: cannot be read: {error.strerror}") from None


# --- the connections file --------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", re.ASCII)


def _read_connections(
    file: Path, environment: Mapping[str, str]
) -> dict[str, Connection | Registry | Database]:
    document = read_file(file, secret=True)
    if not isinstance(document.value, dict):
        raise SpecError(document.name, [Problem("", "must be a mapping of names to connections")])
    by_name: dict[str, Connection | Registry | Database] = {}
    problems: list[Problem] = []
    for name in document.value:
        below = document.below(name)
        try:
            if _NAME.fullmatch(name) is None:
                reason = "is not a connection name; use up to 63 letters, digits, - and _"
                raise SpecError(document.name, [below.problem((), reason)])
            resolver = _EntryResolver(below, file.parent, environment)
            keys = below.value if isinstance(below.value, dict) else {}
            if "url" in keys:
                by_name[name] = resolver.registry(name)
            elif "jdbc" in keys:
                by_name[name] = resolver.database(name)
            else:
                by_name[name] = resolver.resolve(name)
        except SpecError as error:
            problems += [
                replace(problem, path=".".join(filter(None, (path_text((name,)), problem.path))))
                for problem in error.problems
            ]
    if problems:
        raise SpecError(document.name, problems[: limits.PROBLEMS_MAX])
    return by_name


class _EntryResolver:
    """Turns an entry into a Connection: finds its secrets, and its files relative to `folder`."""

    def __init__(self, document: Document, folder: Path, environment: Mapping[str, str]) -> None:
        self._document = document
        self._folder = folder
        self._environment = environment
        self._problems: list[Problem] = []

    def resolve(self, name: str) -> Connection:
        entry = validate(ConnectionEntry, self._document)
        sasl, tls = None, Tls()
        if entry.sasl is not None:
            password = self._find_password("sasl", entry.sasl)
            # A missing password is a problem, so nobody receives this empty one.
            sasl = Sasl(entry.sasl.mechanism, entry.sasl.username, password or SecretStr(""))
        if entry.ssl is not None:
            tls = self._find_tls(entry.ssl)
        self._require_no_problems()
        return Connection(name, tuple(entry.bootstrap.split(",")), entry.security, sasl, tls)

    def registry(self, name: str) -> Registry:
        entry = validate(RegistryEntry, self._document)
        secret, basic, bearer = None, entry.basic, entry.bearer
        if basic is not None:
            secret = self._find_password("basic", basic)
        elif bearer is not None:
            keys = "bearer", "token"
            secret = self._find_secret(keys, bearer.token, bearer.token_env, bearer.token_file)
        tls = Tls() if entry.ssl is None else self._find_tls(entry.ssl)
        self._require_no_problems()
        username = None if basic is None else basic.username
        return Registry(name, entry.url, username, secret, tls)

    def database(self, name: str) -> Database:
        entry = validate(DatabaseEntry, self._document)
        username, password = None, None
        if entry.login is not None:
            username, password = entry.login.username, self._find_password("login", entry.login)
        self._require_no_problems()
        return Database(name, entry.jdbc, username, password, entry.driver)

    def _require_no_problems(self) -> None:
        if self._problems:
            raise SpecError(self._document.name, self._problems)

    def _find_password(self, section: str, entry: PasswordEntry) -> SecretStr | None:
        keys = section, "password"
        return self._find_secret(keys, entry.password, entry.password_env, entry.password_file)

    def _find_tls(self, entry: TlsEntry) -> Tls:
        return Tls(
            self._find_file(("ssl", "ca"), entry.ca),
            self._find_file(("ssl", "certificate"), entry.certificate),
            self._find_file(("ssl", "key"), entry.key),
            self._find_secret(
                ("ssl", "key_password"),
                entry.key_password,
                entry.key_password_env,
                entry.key_password_file,
            ),
        )

    def _find_file(self, keys: tuple[str, str], name: str | None) -> Path | None:
        if name is None:
            return None
        path = self._folder / name
        if not path.is_file():
            self._add_problem(keys, f"there is no file {path}")
        return path

    def _find_secret(
        self, keys: tuple[str, str], value: SecretStr | None, variable: str | None, file: str | None
    ) -> SecretStr | None:
        section, key = keys
        if variable is not None:
            secret = self._environment.get(variable)
            if not secret:
                self._add_problem((section, f"{key}_env"), "names a variable that is not set")
            return SecretStr(secret or "")
        if file is not None:
            return self._read_secret((section, f"{key}_file"), self._folder / file)
        return value

    def _read_secret(self, keys: tuple[str, str], path: Path) -> SecretStr | None:
        try:
            with path.open(encoding="utf-8") as opened:
                text = opened.read(limits.SPEC_BYTES_MAX)
            # Editors end a file with a line break, which does not belong to the secret.
            return SecretStr(check_text(text.removesuffix("\n")))
        except OSError as error:
            self._add_problem(keys, f"{path} cannot be read: {error.strerror}")
        except ValueError:
            self._add_problem(keys, f"{path} must contain text without a NUL character")
        return None

    def _add_problem(self, keys: tuple[str, str], reason: str) -> None:
        self._problems.append(self._document.problem(keys, reason))
