"""The command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typer.testing import CliRunner, Result

from services.cli import app


def hothouse(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, list(arguments))


def commands() -> list[list[str]]:
    """Every command, with its group."""
    found = []
    for info in app.registered_commands:
        assert info.callback is not None
        found.append([info.name or info.callback.__name__])
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for info in group.typer_instance.registered_commands:
            assert info.callback is not None
            found.append([group.name or "", info.name or info.callback.__name__])
    return found


def in_turn(answers: list[Any]) -> Callable[[], Any]:
    """Gives one answer after the other, and raises those that are errors."""

    def answer() -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return answer
