"""Argparse with a suggestion for a misspelled command, choice or option."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser of `retally` or of one of its commands."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is no command and no choice, and name the nearest."""
        known = None if action.choices is None else list(action.choices)
        if known is not None and value not in known:
            what = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
            raise argparse.ArgumentError(
                None, f"there is no {what} {value!r}; {_suggest(str(value), known)}"
            )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and name the nearest option of the command for an unknown one."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = self._find_command(options)
            known = [name for name in command._option_string_actions if name.startswith("--")]
            word = unknown[0].partition("=")[0]
            if not word.startswith("-"):
                command.error(f"one argument too many: {word!r}")
            command.error(f"there is no option {word}; {_suggest(word, known)}")
        return options

    def _find_command(self, options: argparse.Namespace) -> argparse.ArgumentParser:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return action.choices.get(options.command) or self
        return self

    def error(self, message: str) -> NoReturn:
        """Print one sentence instead of the usage, which has a line for each option."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _suggest(word: str, known: Sequence[str] | Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
