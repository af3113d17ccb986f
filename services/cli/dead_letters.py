"""``deadletters``: what was kept out, and why; read from the storage, whether the system runs or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from services.cli.base import console, need_state, options_of, print_json
from services.errors import HothouseError

if TYPE_CHECKING:
    from services.store.deadletters import DeadLetterCount
    from services.store.rows import DeadLetter

__all__ = ["register"]

PANEL = "Ask a running system"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse deadletters --reason late --newest 20")(deadletters)


def deadletters(
    ctx: typer.Context,
    reason: Annotated[str | None, typer.Option(help="Only those of one reason, such as late.")] = None,
    newest: Annotated[int, typer.Option(min=0, max=100_000, help="List that many letters instead of counts.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Show what was kept out: late samples, refused messages and values, by reason and topic with their log offset."""
    from services.store.deadletters import count_dead_letters, read_dead_letters
    from services.store.storage import storage_of

    settings = options_of(ctx).settings()
    need_state(settings, "deadletters")
    root = storage_of(settings)
    try:
        letters = read_dead_letters(root, newest, reason) if newest else []
        counts = [] if newest else count_dead_letters(root, reason)
        if not letters and not counts and not as_json:
            others = {found.reason for found in count_dead_letters(root)} if reason else set()
            why = f" as {reason}" if reason else ""
            there = f"; known reasons here are {', '.join(sorted(others))}" if others else ""
            console.print(f"nothing was kept out{why}{there}", markup=False, highlight=False, soft_wrap=True)
        elif newest:
            _show_dead_letters(letters, as_json)
        else:
            _show_counts(counts, as_json)
    except OSError as error:
        raise HothouseError(f"the dead letters in {root.url} cannot be read: {error}") from error


def _show_counts(counts: Sequence[DeadLetterCount], as_json: bool) -> None:
    if as_json:
        print_json([asdict(found) for found in counts])
        return
    table = Table(title="Kept out", title_justify="left", caption=f"{sum(found.count for found in counts)} in all")
    for heading in ("reason", "topic"):
        table.add_column(heading, overflow="fold")
    table.add_column("count", justify="right")
    for heading in ("newest (UTC)", "partition:offset", "the newest one says"):
        table.add_column(heading, overflow="fold")
    for found in counts:
        place = f"{found.partition}:{found.offset}"
        cells = (found.reason, found.topic, str(found.count), _time(found.receive_ms), place, found.detail)
        table.add_row(*map(escape, cells))
    console.print(table)


def _show_dead_letters(dead_letters: Sequence[DeadLetter], as_json: bool) -> None:
    if as_json:
        print_json(
            [{**letter._asdict(), "payload": letter.payload.decode(errors="replace")} for letter in dead_letters]
        )
        return
    table = Table(title="Kept out, newest first", title_justify="left")
    for heading in ("received (UTC)", "partition:offset:item", "reason", "topic", "detail", "payload begins"):
        table.add_column(heading, overflow="fold")
    for letter in dead_letters:
        place = f"{letter.partition}:{letter.offset}:{letter.item}"
        payload = letter.payload[:200].decode(errors="replace")
        cells = (_time(letter.receive_ms), place, letter.reason, letter.topic, letter.detail, payload)
        table.add_row(*map(escape, cells))
    console.print(table)


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
