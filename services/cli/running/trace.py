"""``trace``: the step that a sample belongs to, its trace id, and what the logs of this machine say of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from edge.wire.trace_id import step_end_ms, step_trace_id
from services.cli.base import console, options_of, print_json
from services.errors import ConfigError, HothouseError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    example = "Example: hothouse trace demo 2022-03-01T12:03:10Z"
    app.command(rich_help_panel="Ask a running system", epilog=example)(trace)


def trace(
    ctx: typer.Context,
    site: Annotated[str, typer.Argument(help="The site.")],
    at: Annotated[str, typer.Argument(metavar="TIME", help="The sample's own time: ISO 8601, or its ts in ms.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Follow a sample: the step of its site that it belongs to, the step's trace id, and each line of a log with it.

    Logs are those of this data folder. Lines about rows are there with logs.level = "debug".
    """
    settings = options_of(ctx).settings()
    end_ms = step_end_ms(_time_ms(at), settings.stream.step_s * 1000)
    try:
        end = datetime.fromtimestamp(end_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{at} is no time of a sample", "Write its ts in milliseconds, not in microseconds."
        ) from error
    trace_id = step_trace_id(site, end_ms)
    try:
        lines = sorted(_lines(settings.logs_dir, trace_id))
    except OSError as error:
        raise HothouseError(f"the logs in {settings.logs_dir} cannot be read: {error}") from error
    if as_json:
        told = [{"time": time, "component": component, "line": line} for time, component, line in lines]
        print_json({"site": site, "step": end, "trace_id": trace_id, "lines": told})
        return
    console.print(f"step of {site} that ends {end}: trace_id {trace_id}", markup=False, highlight=False, soft_wrap=True)
    for time, component, line in lines:
        console.print(f"{time} {component}: {line}", markup=False, highlight=False, soft_wrap=True)
    if not lines:
        console.print(f"no line in {settings.logs_dir} has it", markup=False, highlight=False, soft_wrap=True)


def _lines(folder: Path, trace_id: str) -> Iterator[tuple[str, str, str]]:
    """Time, component and words of each line with that id."""
    for path in sorted(folder.glob("*.log*")):
        with path.open(errors="replace") as content:
            for line in content:
                if trace_id in line:
                    yield _parts(line.rstrip("\n"), path.name.partition(".log")[0])


def _parts(line: str, component: str) -> tuple[str, str, str]:
    """Of a line in JSON or in text."""
    try:
        said = json.loads(line)
        return said["time"], component, f"{said['level']} {said['message']}"
    except (ValueError, KeyError, TypeError):
        return line[:23], component, line[24:]


def _time_ms(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text} is no time", "Write it as 2022-03-01T12:03:10Z, or as the sample's ts.") from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
