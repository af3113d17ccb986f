"""What every command shares: the settings it was given, and how an error is reported."""

from __future__ import annotations

import copy
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from edge.option_numbers import read_number
from services.config import Settings, load_settings
from services.errors import LOOK_AT_THE_DISK, ConfigError, HothouseError

__all__ = [
    "CLUSTER_MODULES", "GlobalOptions", "Group", "console", "counting_bar", "errors", "is_new", "need_cluster",
    "need_out", "need_state", "options_of", "print_json", "print_news", "print_notes", "tell_if_new", "utc_minute",
]  # fmt: skip

CLUSTER_MODULES = ("ray", "torch", "mlflow", "fastapi", "pandas", "pyarrow")
console = Console()
errors = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The options that stand before a command's name."""

    config: Path | None = None
    data_dir: Path | None = None
    debug: bool = False
    url: str | None = None
    key_file: Path | None = None

    def settings(self, **overrides: Any) -> Settings:
        """The settings of this command; ``overrides`` (sections as dicts) are its own options."""
        if self.data_dir is not None:
            overrides["data_dir"] = self.data_dir
        return load_settings(self.config, **overrides)


class Group(typer.core.TyperGroup):
    """Reports an error of ours as one sentence and a hint, with its exit code; ``--debug`` shows the traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        is_debug = ctx.find_root().params.get("debug")  # a group in a group has no such option of its own
        try:
            return super().invoke(ctx)
        except HothouseError as error:
            if is_debug:
                raise
            _tell(error)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            raise
        except Exception as error:
            if is_debug or type(error).__module__.startswith(("typer", "click")):
                self._say_where_it_stands(ctx, error)
                raise  # usage errors and exits are Typer's own
            if isinstance(error, OSError) and error.filename is not None and error.strerror:
                _tell(HothouseError(f"{error.filename}: {error.strerror}", LOOK_AT_THE_DISK))
                raise typer.Exit(1) from None
            hint = "This is a fault of Hothouse: `hothouse --debug ...` shows where. Please report it."
            _tell(HothouseError(f"{type(error).__name__}: {error}", hint))
            raise typer.Exit(1) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; options that take a number or a time say so in plain words, and none takes NaN."""
        command: Any = super().get_command(ctx, cmd_name)
        for param in command.params if command is not None else ():
            kind = param.type
            if (words := _NUMBERS.get(kind.name)) is not None:
                param.type = copy.copy(kind)
                param.type.name = words
                param.type.convert = partial(_number, kind)
            elif kind.name == "datetime":
                param.type = copy.copy(kind)
                param.type.convert = partial(_time, kind)
        return command

    def _say_where_it_stands(self, ctx: Any, error: Any) -> None:
        """Of an option that a command lacks, but that may stand before each of them: that it does."""
        name = getattr(error, "option_name", None)  # of a NoSuchOption, a class that Typer keeps to itself
        for option in self.get_params(ctx):
            if name in option.opts and not option.is_eager and error.ctx is not None:  # --version runs no command
                program, _, command = error.ctx.command_path.partition(" ")
                value = "" if getattr(option, "is_flag", False) else " ..."
                error.message += f". It stands before the command: {program} {name}{value} {command}"


_NUMBERS = {"int": "whole number", "int range": "whole number", "float": "number", "float range": "number"}
"""Types of options, by the names that they have in Typer."""


def _number(kind: Any, value: Any, param: Any, ctx: Any) -> float:
    """What an option of a type of Typer was given, or an error that says what it takes."""
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    try:
        return read_number(str(value), low, high, is_whole=kind.name.startswith("int"))
    except ValueError as error:
        raise typer.BadParameter(str(error), ctx=ctx, param=param) from error


def _time(kind: Any, value: Any, param: Any, ctx: Any) -> Any:
    """As :func:`_number`, of times."""
    try:
        return kind.convert(value, param, ctx)
    except typer.BadParameter as error:
        words = f"it takes a day, or a time such as 2022-03-01T00:05, not {str(value)[:40]!r}"
        raise typer.BadParameter(words, ctx=ctx, param=param) from error


def _tell(error: HothouseError) -> None:
    errors.print(Text.assemble(("error: ", "bold red"), error.message), soft_wrap=True)
    if error.hint:
        errors.print(Text(error.hint, style="dim"), soft_wrap=True)


def options_of(ctx: typer.Context) -> GlobalOptions:
    """The options before the command's name."""
    found = ctx.find_root().obj
    return found if isinstance(found, GlobalOptions) else GlobalOptions()


@contextmanager
def need_cluster(command: str) -> Iterator[None]:
    """Around imports of Ray's side: says what to install where the bare edge install lacks it."""
    missing = [name for name in CLUSTER_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"`hothouse {command}` needs the cluster part; missing: {', '.join(missing)}",
            "Install it: make setup, or pip install '.[cluster]', in Hothouse's folder.",
        )
    yield


def need_state(settings: Settings, command: str) -> None:
    """Raises :class:`HothouseError` where no system has run on the data folder: there, nothing is no news."""
    if is_new(settings):
        raise HothouseError(
            f"no Hothouse has run on the data folder {settings.data_dir.absolute()} yet",
            f"Go to the folder where `hothouse up` runs, or name it: hothouse --data-dir DIR {command}",
        )


def need_out(out: Path, what: str, *endings: str) -> None:
    """Raises, before long work is done for it, where ``out`` has none of the ``endings``, if there are any, or no file
    can be there.
    """
    if endings and out.suffix not in endings:
        raise ConfigError(f"{out} cannot hold {what}", f"Name a file that ends in {' or '.join(endings)}.")
    try:
        if out.is_dir():
            raise IsADirectoryError("it is a folder")
        if out.exists() and not out.is_file():
            return  # /dev/stdout, or a pipe: nothing is made beside it
        place = Path(os.path.realpath(out))  # that of /dev/stdout under `> file` is where the file is
        with tempfile.TemporaryFile(dir=next(folder for folder in place.parents if folder.exists())):
            pass
    except OSError as error:
        raise HothouseError(f"{out} cannot be written: {error.strerror or error}", "Name another file.") from error


def tell_if_new(settings: Settings) -> None:
    """Says on standard error that no system has run on the data folder, which may be another one than is meant."""
    if is_new(settings):
        words = f"No Hothouse has run on the data folder {settings.data_dir.absolute()} yet: this holds there alone."
        errors.print(Text(words), soft_wrap=True)


def is_new(settings: Settings) -> bool:
    """Whether no system has made the folder of the storage yet; of a bucket nobody knows."""
    return not settings.storage.url and not settings.storage_folder.is_dir()


def print_news(line: str) -> None:
    """A line of something that runs on, with the moment; brackets in it are no markup, and it is not broken."""
    moment = time.strftime("%H:%M:%S")
    console.print(f"[dim]{moment}[/] [yellow]{escape(line)}[/]", highlight=False, soft_wrap=True)


def print_notes(notes: Iterable[str]) -> None:
    """What a reader of files left out or guessed, a line each on standard error."""
    for note in notes:
        errors.print(Text(note, style="dim"), soft_wrap=True)


@contextmanager
def counting_bar(name: str, amount: ProgressColumn | None = None) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error during long work, with a count or another ``amount`` beside it; gives what takes
    ``(done, total)``.
    """
    columns = (TextColumn(name, markup=False), BarColumn(), amount or MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def utc_minute(ms: float) -> str:
    """A time as tables show it.

    >>> utc_minute(1646092800000)
    '2022-03-01 00:00'
    """
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "minutes")[:16]  # strftime cuts the year 22 short


def print_json(value: Any) -> None:
    """One JSON document on standard output, neither wrapped nor coloured."""
    import json

    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
