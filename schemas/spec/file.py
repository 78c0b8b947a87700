"""Read a spec from YAML, JSON or a mapping, and report all problems with positions.

text ──► yaml_values ──► values + the position of every key ──► JobSpec
                                     └────────────┬────────────┘
                                         problems: path, reason, line, column
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import WithDefaultSchema

from schemas import limits
from schemas.spec.duration import duration_text
from schemas.spec.job import ECHO, JobSpec
from schemas.spec.source_rows import locate_key
from schemas.spec.unknown_names import (
    describe_unknown_key,
    describe_unknown_word,
    escape_unprintable,
    find_nearest,
    quote_key,
)
from schemas.spec.values import KEYS_TAG, WORD_TAG, ElsewhereError, MisplacedError
from schemas.spec.yaml_values import (
    FLOAT,
    Composer,
    Keys,
    Scalar,
    TextPosition,
    UnreadableError,
    explain_yaml,
    locate_in_scalar,
    position_of,
)
from schemas.types.json_types import JsonObject

Model = TypeVar("Model", bound=BaseModel)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_KEY_ITSELF = "[key]"  # pydantic's mark for a problem of a mapping's key, not of its value


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a spec: the path of the key, the reason, and the position in the file."""

    path: str
    reason: str
    line: int | None = None
    column: int | None = None

    def describe(self, source: str) -> str:
        """Return one line, even if a file name or a key contains line breaks or control codes."""
        position = "" if self.line is None else f":{self.line}:{self.column}"
        parts = (source + position, self.path, self.reason)
        return escape_unprintable(": ".join(part for part in parts if part))


class SpecError(ValueError):
    """The spec is invalid; `problems` lists everything that is wrong with it."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        super().__init__(source, list(problems))
        self.source = source
        self.problems = list(problems)
        self.text: str | None = None  # the file, if messages may show its lines

    def __str__(self) -> str:
        return "\n".join(problem.describe(self.source) for problem in self.problems)


def load_spec(source: Path | str | Mapping[str, Any]) -> JobSpec:
    """Read a job's spec from a file (a Path), from text (a str) or from a mapping.

    A str is never a path, so that text of a user cannot make the caller open files."""
    if isinstance(source, Mapping):
        document = Document("", dict(source))
    else:
        document = read_file(source) if isinstance(source, Path) else read_text(source, "<spec>")
    return validate(JobSpec, document)


class _SpecSchema(GenerateJsonSchema):
    """Write the default of a duration as users do, such as 7d."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        if found.get("type") == "string" and isinstance(found.get("default"), int):
            found["default"] = duration_text(found["default"])
        return found


def spec_schema() -> JsonObject:
    """Return the JSON Schema of a job spec, for editors and for checks before a PUT."""
    schema = JobSpec.model_json_schema(schema_generator=_SpecSchema)
    return {"$schema": _SpecSchema.schema_dialect, **schema, "title": "A job spec of retally"}


def spec_text(spec: JobSpec) -> str:
    """Return the spec as YAML; `load_spec` turns it back into an equal spec."""
    text: str = yaml.dump(spec.document(), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def write_spec(path: Path, spec: JobSpec) -> None:
    """Replace the file atomically, because other processes may read it at any time."""
    fresh = path.with_suffix(".new")
    fresh.write_text(spec_text(spec))
    fresh.replace(path)


# --- from pydantic's problems to the user's --------------------------------------------------


def validate(model: type[Model], document: Document) -> Model:
    """Return the document as a model; raise SpecError with every problem in it."""
    raw: list[ErrorDetails] = []
    try:
        value = model.model_validate(_plain(document.value, document.name, 0))
    except ValidationError as error:
        raw = error.errors(include_url=False)
    if not raw:
        return value
    # Raise outside of the handler: pydantic's error contains the whole input, secrets too.
    known_keys = _KnownKeys(model)
    raw = _drop_echoes(raw, known_keys)
    problems = [_problem(details, known_keys, document) for details in raw[: limits.PROBLEMS_MAX]]
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
    if len(raw) > limits.PROBLEMS_MAX:
        problems.append(Problem("", f"and {len(raw) - limits.PROBLEMS_MAX} more problems"))
    raise SpecError(document.name, problems)


def _plain(value: Any, name: str, depth: int) -> Any:
    """Return mappings as dicts with text keys and sequences as lists; refuse deep nesting."""
    if depth > limits.SPEC_DEPTH_MAX:
        raise SpecError(name, [Problem("", f"is nested deeper than {limits.SPEC_DEPTH_MAX}")])
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, name, depth + 1) for item in value]
    return value


def _drop_echoes(raw: list[ErrorDetails], known_keys: _KnownKeys) -> list[ErrorDetails]:
    """Drop what follows from another mistake.

    Without valid `sources` a job has no source.
    `topic` is missing because it is written `topik`. `2)` is a key because of DECIMAL(10, 2)
    without quotes in braces.
    """
    misspelled = set()
    for each in raw:
        if each["type"] == "extra_forbidden":
            *above, key = map(str, each["loc"])
            misspelled.add((*above, find_nearest(key, known_keys.find(tuple(above)))))

    def echoes(each: ErrorDetails) -> bool:
        keys = tuple(map(str, each["loc"]))
        return (
            each["type"] == ECHO
            or (each["type"] == "missing" and keys in misspelled)
            or any(re.fullmatch(r"\d+\)", key) for key in keys)
        )

    return [each for each in raw if not echoes(each)] or raw


def _problem(details: ErrorDetails, known_keys: _KnownKeys, document: Document) -> Problem:
    keys: Keys = ()
    for part in details["loc"]:
        if part not in (WORD_TAG, KEYS_TAG, _KEY_ITSELF):
            keys = (*keys, known_keys.find_written(keys, str(part)))
    error = details.get("ctx", {}).get("error")
    if isinstance(error, MisplacedError):
        keys += error.below
    elif isinstance(error, ElsewhereError):
        keys = locate_key(error.keys, keys[1] if keys[0] == "sources" else "")
    reason = str(error) if error is not None else _reason(details, keys, known_keys)
    above = details["type"] == "extra_forbidden"  # the reason names the key itself
    return document.problem(keys, reason, path=keys[:-1] if above else keys)


_REASONS = {
    "missing": "is required; add it",
    "string_type": "must be text; put a number or a word such as true in quotes",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_long": "must be at most {max_length} characters",
    "tuple_type": "must be a list, as in [a, b]",
    "model_type": "must be a mapping; its keys are {keys}",
    "dict_type": "must be a mapping, as in {{a: b}}",
}


def _reason(details: ErrorDetails, keys: Keys, known_keys: _KnownKeys) -> str:
    """Return pydantic's problem in our words. Only a word of a closed list quotes the input."""
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return describe_unknown_key(keys[-1], known_keys.find(keys[:-1]))
    if kind == "literal_error":
        return describe_unknown_word(
            details["input"], str(context["expected"]), known_keys.find(keys)
        )
    template = _REASONS.get(kind, details["msg"].replace("{", "{{").replace("}", "}}"))
    return template.format(**context, keys=", ".join(known_keys.find(keys)))


def path_text(keys: Keys) -> str:
    """Return a path with dots between its keys; keys other than plain words are quoted."""
    return ".".join(key if _PLAIN_KEY.fullmatch(key) else quote_key(key) for key in keys)


def list_keys(model: type[BaseModel]) -> tuple[dict[str, Keys], dict[str, Keys]]:
    """Return the keys of each section, and the fixed values of keys; paths have dots."""
    known = _KnownKeys(model)
    sections = {".".join(path): keys for path, keys in known.known.items()}
    return sections, {".".join(path): values for path, values in known.values.items()}


class _KnownKeys:
    """The keys that a model allows at each path."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.known: dict[Keys, Keys] = {}  # path -> its keys, for suggestions
        # Pydantic names a missing key by its attribute; this leads back to the key.
        self._written: dict[Keys, str] = {}
        self.values: dict[Keys, Keys] = {}  # of keys whose values are a fixed choice
        self._visit(model, ())

    def find(self, keys: Keys) -> Keys:
        """Return the keys below a path."""
        return self.known.get(_without_places(keys), ())

    def find_written(self, keys: Keys, attribute: str) -> str:
        """Return how a user writes an attribute below a path."""
        return self._written.get((*_without_places(keys), attribute), attribute)

    def _visit(self, section: type[BaseModel], path: Keys) -> None:
        fields = section.model_fields.items()
        self.known[path] = tuple(info.alias or attribute for attribute, info in fields)
        for attribute, info in fields:
            key = info.alias or attribute
            self._written[(*path, attribute)] = key
            if values := tuple(_choices(info.annotation)):
                self.values[(*path, key)] = values
            for below in _sections(info.annotation):
                self._visit(below, (*path, key))


def _choices(annotation: Any) -> Iterator[str]:
    """Yield the fixed values that an annotation allows, as text."""
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    elif get_origin(annotation) in (Annotated, Union, UnionType):
        for argument in get_args(annotation):
            yield from _choices(argument)


def _without_places(keys: Keys) -> Keys:
    """Return a path without the indexes of items in lists, and without names of users."""
    named = keys[:1] in (("views",), ("sources",), ("functions",))
    return tuple(key for at, key in enumerate(keys) if not (key.isdigit() or (named and at == 1)))


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation allows, itself or in a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Annotated, Union, UnionType, tuple, dict):
        for argument in get_args(annotation):
            yield from _sections(argument)


# --- from text to values and positions -------------------------------------------------------


@dataclass(slots=True)
class Document:
    """The value of a text, the position of each of its keys, and where each scalar starts."""

    name: str
    value: Any
    positions: dict[Keys, TextPosition] = field(default_factory=dict)
    scalars: dict[Keys, Scalar] = field(default_factory=dict)
    text: str = ""

    def position(self, keys: Keys) -> TextPosition | None:
        """Return the position of a key, or of the nearest key above it in the text."""
        for end in range(len(keys), -1, -1):
            if keys[:end] in self.positions:
                return self.positions[keys[:end]]
        return None

    def problem(self, keys: Keys, reason: str, *, path: Keys | None = None) -> Problem:
        """Return a problem at the position of `keys`; its message names `path` if given."""
        text = path_text(keys if path is None else path)
        position = self.position(keys)
        if position is None:
            return Problem(text, reason)
        return Problem(text, reason, position.line, position.column)

    def problem_inside(self, keys: Keys, line: int, column: int, reason: str) -> Problem:
        """Return a problem at a position in the text value of a key, counted from 1."""
        scalar = self.scalars.get(keys)
        position = None
        if scalar is not None:
            position = locate_in_scalar(self.text, scalar, line, column)
        if position is None:  # the value is an alias, for example
            return self.problem(keys, f"line {line}, column {column}: {reason}")
        return Problem(path_text(keys), reason, position.line, position.column)

    def below(self, key: str) -> Document:
        """Return the part of the document under one key of a mapping."""
        under = {
            path[1:]: position for path, position in self.positions.items() if path[:1] == (key,)
        }
        return Document(self.name, self.value[key], under)


def read_file(path: Path, *, secret: bool = False) -> Document:
    """Read a YAML or JSON file; see read_text."""
    name = str(path)
    reason = ""
    try:
        with path.open("rb") as file:
            raw = file.read(limits.SPEC_BYTES_MAX + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        # The cut at the limit may split a character; then the size is the problem.
        too_long = len(raw) > limits.SPEC_BYTES_MAX
        reason = _TOO_LONG if too_long else f"is not UTF-8 text: see byte {error.start}"
    if reason:
        raise SpecError(name, [Problem("", reason)])
    return read_text(text, name, secret=secret)


_TOO_LONG = f"is larger than {limits.SPEC_BYTES_MAX} bytes"


def read_text(text: str, name: str, *, secret: bool = False) -> Document:
    """Read YAML or JSON, a subset of it. With `secret`, messages quote nothing of the text."""
    if len(text) > limits.SPEC_BYTES_MAX or len(text.encode("utf-8", "replace")) > (
        limits.SPEC_BYTES_MAX
    ):
        raise SpecError(name, [Problem("", _TOO_LONG)])
    composer = Composer(secret)
    problem: Problem | None = None
    try:
        value = composer.compose(_replace_tabs(text))
    except UnreadableError as error:
        problem = Problem("", str(error), error.position.line, error.position.column)
    except yaml.MarkedYAMLError as error:
        reason, mark = explain_yaml(error, secret=secret)
        position = position_of(mark) if mark else TextPosition(1, 1)
        problem = Problem("", reason, position.line, position.column)
    except yaml.YAMLError as error:  # a forbidden character; this error has no mark
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = Problem("", "contains a character that YAML does not allow", line, column)
    if problem is not None:
        raise SpecError(name, [problem])
    return Document(name, value, composer.positions, composer.scalars, text)


def _replace_tabs(text: str) -> str:
    """Replace the tabs of JSON by blanks, because YAML does not allow indentation with tabs.

    JSON has no raw tab inside a string, so this changes neither a value nor a column."""
    if "\t" not in text or not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


# --- from values to text --------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Quotes all text that our reader or a reader of YAML 1.1 would take for a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"^(?:{FLOAT.pattern})$"), None
)
