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

from jobs.core.time.custom_generator import CustomGenerator, Generator, call_class
from jobs.core.time.watermark_generators import PartitionGenerator, make_generator
from schemas.spec.watermark import GeneratorClass, Watermark

ALLOWED = "RETALLY_GENERATORS"


class GeneratorRefused(Exception):
    """The class is not allowed, cannot be loaded, or is not a generator."""


def require_allowed(watermark: Watermark) -> None:
    """Raise GeneratorRefused if a section names a class that the operator does not allow."""
    if not isinstance(watermark.generator, GeneratorClass):
        return
    path = watermark.generator.path
    allowed = [each.strip() for each in os.environ.get(ALLOWED, "").split(",") if each.strip()]
    if path not in allowed:
        raise GeneratorRefused(
            f"{path} is not among the generators that this machine's operator allows "
            f"({ALLOWED}={','.join(allowed)}); add it there, or use a built-in generator"
        )
    _load(path)


def make_allowed(watermark: Watermark) -> PartitionGenerator:
    """Return a new generator of a section that `require_allowed` took, in a task too."""
    if not isinstance(watermark.generator, GeneratorClass):
        return make_generator(watermark)
    return CustomGenerator(call_class(_load(watermark.generator.path).of, watermark))


def _load(path: str) -> type[Generator]:
    module, _, name = path.partition(":")
    try:
        loaded = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise GeneratorRefused(
            f"{path} cannot be loaded: {error}; install its package beside retally, or put its "
            "directory on PYTHONPATH"
        ) from error
    if not isinstance(loaded, type) or not issubclass(loaded, Generator):
        raise GeneratorRefused(
            f"{path} is not a subclass of jobs.core.generators.Generator; derive it from that class"
        )
    return loaded
