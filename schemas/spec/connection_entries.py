"""The entries of the connections file: Kafka connections, schema registries and databases."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from schemas.spec.values import Section, text_like

Security = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})", re.ASCII)
_PORT_MAX = 65_535


def check_bootstrap(text: str) -> str:
    addresses = [address.strip() for address in text.split(",")]
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        # The message does not quote the address, because people write passwords into it.
        if match is None or not 1 <= int(match[1]) <= _PORT_MAX:
            raise ValueError(
                "must be HOST:PORT, as localhost:9092 is, or several separated by commas"
            )
    return ",".join(addresses)


def _check_url(text: str) -> str:
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        valid = False
    if not valid or url.username or url.password or url.query or url.fragment or " " in text:
        raise ValueError("must be like https://registry:8081, without a user and without a query")
    return text.rstrip("/")


# A property of a JDBC URL, the part before @ of an address, or scott/tiger@ of Oracle's.
_SECRET = re.compile(
    r"(?i)[?&;,(](user|uid|username|password|pwd|passwd)=|//[^/?]*@|:[^/:@]+/[^/@]+@"
)


def _check_jdbc(text: str) -> str:
    # The message does not quote the address, because people write passwords into it.
    if re.fullmatch(r"jdbc:[a-z0-9]+:[!-~]+", text) is None or _SECRET.search(text):
        raise ValueError("must be like jdbc:mysql://db:3306/shop, without a user and a password")
    return text


def check_text(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("must not be empty, and must not contain a NUL character")
    return text


def _check_secret(secret: SecretStr) -> SecretStr:
    check_text(secret.get_secret_value())
    return secret


_Text = Annotated[str, AfterValidator(check_text)]
_Secret = Annotated[SecretStr, AfterValidator(_check_secret)]


class PasswordEntry(Section):
    username: _Text
    password: _Secret | None = None
    password_env: _Text | None = None
    password_file: _Text | None = Field(default=None, validate_default=True)

    @field_validator("password_file")
    @classmethod
    def _one_password(cls, file: str | None, info: ValidationInfo) -> str | None:
        return _require_one("password", file, info)


class SaslEntry(PasswordEntry):
    mechanism: Mechanism


class BearerEntry(Section):
    token: _Secret | None = None
    token_env: _Text | None = None
    token_file: _Text | None = Field(default=None, validate_default=True)

    @field_validator("token_file")
    @classmethod
    def _one_token(cls, file: str | None, info: ValidationInfo) -> str | None:
        return _require_one("token", file, info)


def _require_one(key: str, file: str | None, info: ValidationInfo) -> str | None:
    """Return `file`; raise ValueError unless one of the three forms of a secret is given."""
    if {key, f"{key}_env"} <= info.data.keys():
        given = [info.data[key], info.data[f"{key}_env"], file]
        if sum(each is not None for each in given) != 1:
            raise ValueError(f"give exactly one of {key}, {key}_env and {key}_file")
    return file


class TlsEntry(Section):
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
            raise ValueError("must be given together with certificate; give both or neither")
        return key

    @field_validator("key_password_file")
    @classmethod
    def _one_password(cls, file: str | None, info: ValidationInfo) -> str | None:
        passwords = [info.data.get("key_password"), info.data.get("key_password_env"), file]
        given = sum(password is not None for password in passwords)
        if given > 1:
            raise ValueError(
                "give at most one of key_password, key_password_env and key_password_file"
            )
        if given and "key" in info.data and info.data["key"] is None:
            raise ValueError("is the password of a missing key; add key, or remove the password")
        return file


class ConnectionEntry(Section):
    bootstrap: Annotated[str, AfterValidator(check_bootstrap)]
    security: Security = "PLAINTEXT"
    sasl: SaslEntry | None = Field(default=None, validate_default=True)
    ssl: TlsEntry | None = None

    @field_validator("sasl")
    @classmethod
    def _sasl_of_security(cls, sasl: SaslEntry | None, info: ValidationInfo) -> SaslEntry | None:
        security = info.data.get("security")
        if security is not None and security.startswith("SASL") != (sasl is not None):
            need = "is required by" if sasl is None else "has no effect with"
            fix = "add it" if sasl is None else "remove it"
            raise ValueError(f"{need} security: {security}; {fix}, or change security")
        return sasl

    @field_validator("ssl")
    @classmethod
    def _ssl_of_security(cls, ssl: TlsEntry | None, info: ValidationInfo) -> TlsEntry | None:
        security = info.data.get("security")
        if ssl is not None and security is not None and not security.endswith("SSL"):
            raise ValueError(
                f"has no effect with security: {security}; remove it, or change security"
            )
        return ssl


class RegistryEntry(Section):
    url: Annotated[str, AfterValidator(_check_url)]
    basic: PasswordEntry | None = None
    bearer: BearerEntry | None = None
    ssl: TlsEntry | None = None

    @field_validator("bearer")
    @classmethod
    def _one_kind(cls, bearer: BearerEntry | None, info: ValidationInfo) -> BearerEntry | None:
        if bearer is not None and info.data.get("basic") is not None:
            raise ValueError("excludes basic; keep one of them")
        return bearer

    @field_validator("ssl")
    @classmethod
    def _ssl_of_https(cls, ssl: TlsEntry | None, info: ValidationInfo) -> TlsEntry | None:
        if ssl is not None and not info.data.get("url", "https").startswith("https"):
            raise ValueError("has no effect with http; remove it, or write https in url")
        return ssl


class DatabaseEntry(Section):
    jdbc: Annotated[str, AfterValidator(_check_jdbc)]
    login: PasswordEntry | None = None
    driver: Annotated[str, text_like("a class", r"[A-Za-z_$][\w$.]*", "name it in full")] | None = (
        None
    )
