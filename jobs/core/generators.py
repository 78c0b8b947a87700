"""The base class of users' own watermark generators, under the name that their code imports."""

from jobs.core.time.custom_generator import Generator

__all__ = ["Generator"]
