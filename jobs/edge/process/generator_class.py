"""Generator classes: watermark generators of the operator's own, by name.

    watermark: {generator: {class: shop.time:TradingHours}}
        RETALLY_GENERATORS=shop.time:TradingHours,...     the operator's list; no other is loaded
            class TradingHours(Generator)                of(watermark), a partition each

A spec may come over HTTP from somebody who may start jobs and may not run code, so a spec alone
loads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module

from jobs.core.time.watermark_generators import Generator, Own
from schemas.spec.job import GeneratorClass, Watermark

ALLOWED = "RETALLY_GENERATORS"


class GeneratorRefused(Exception):
    """The class may not be used, or is no generator."""


def maker_of(watermark: Watermark) -> Callable[[], Generator] | None:
    """How to make the generator of a partition, where the spec names a class."""
    if not isinstance(watermark.generator, GeneratorClass):
        return None
    path = watermark.generator.path
    allowed = [each.strip() for each in os.environ.get(ALLOWED, "").split(",") if each.strip()]
    if path not in allowed:
        raise GeneratorRefused(
            f"{path} is not among the generators that this machine's operator allows "
            f"({ALLOWED}={','.join(allowed)}); add it there, or use one with a name"
        )
    module, _, name = path.partition(":")
    try:
        made = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise GeneratorRefused(
            f"{path} cannot be loaded: {error}; install its package beside retally, or put its "
            "directory on PYTHONPATH"
        ) from error
    if not isinstance(made, type) or not issubclass(made, Generator):
        raise GeneratorRefused(f"{path} is no subclass of jobs.core.generators.Generator")
    return lambda: Own(made.of(watermark))
