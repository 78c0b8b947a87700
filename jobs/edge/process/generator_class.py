"""Load watermark generators that the operator has written and allowed, by name.

    watermark: {generator: {class: shop.time:TradingHours}}
        RETALLY_GENERATORS=shop.time:TradingHours,...     the operator's list; no other is loaded
            class TradingHours(Generator)                of(watermark), one object per partition

A spec may come over HTTP from a user who may start jobs but not run code, so a spec alone loads
nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TypeVar

from jobs.core.time.custom_generator import CustomGenerator, Generator, call_class
from jobs.core.time.watermark_generators import PartitionGenerator, make_generator
from schemas.spec.operator_classes import GeneratorClass
from schemas.spec.watermark import Watermark

ALLOWED = "RETALLY_GENERATORS"
Base = TypeVar("Base")


class ClassRefused(Exception):
    """The class is not allowed, cannot be loaded, or has another base class than it needs."""


def require_allowed(watermark: Watermark) -> None:
    """Raise ClassRefused if a section names a class that the operator does not allow."""
    if not isinstance(watermark.generator, GeneratorClass):
        return
    load_allowed(watermark.generator.path, ALLOWED, Generator)


def make_allowed(watermark: Watermark) -> PartitionGenerator:
    """Return a new generator of a section that `require_allowed` took, in a task too."""
    if not isinstance(watermark.generator, GeneratorClass):
        return make_generator(watermark)
    return CustomGenerator(call_class(_load(watermark.generator.path, Generator).of, watermark))


def load_allowed(path: str, variable: str, base: type[Base]) -> type[Base]:
    """Return a class of the operator's list; raise ClassRefused if it has no such class."""
    allowed = [each.strip() for each in os.environ.get(variable, "").split(",") if each.strip()]
    if path not in allowed:
        raise ClassRefused(
            f"{path} is not among the classes that this machine's operator allows "
            f"({variable}={','.join(allowed)}); add it there, or use what is built in"
        )
    return _load(path, base)


def _load(path: str, base: type[Base]) -> type[Base]:
    module, _, name = path.partition(":")
    try:
        loaded = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ClassRefused(
            f"{path} cannot be loaded: {error}; install its package beside retally, or put its "
            "directory on PYTHONPATH"
        ) from error
    if not isinstance(loaded, type) or not issubclass(loaded, base):
        right = f"jobs.core.{'generators' if base is Generator else 'functions'}"
        raise ClassRefused(
            f"{path} is not a subclass of {base.__name__}; derive it from what "
            f"`from {right} import {base.__name__}` gives, and from no class of retally_engine.jobs"
        )
    return loaded
