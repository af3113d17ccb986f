"""What is wrong in a configuration, in the words of whoever wrote it: one sentence, and what to do next."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

__all__ = ["of_toml", "of_values"]


_WORDS = {
    "int_parsing int_type int_from_float int_parsing_size": "must be a whole number",
    "float_parsing float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing bool_type": "must be true or false",
    "string_type path_type": "must be text, in quotes",
    "model_type model_attributes_type": "must be a section: its name in brackets, its settings below it",
    "dict_type": 'must be a table, such as {{ name = "value" }}',
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have a length of at least {min_length}",
    "string_too_long": "must have a length of at most {max_length}",
    "literal_error": "must be {expected}",
    "missing": "must be given",
}
"""What pydantic calls a mistake -> what is wrong, for who wrote it; in braces what it tells of the mistake."""


def of_toml(error: tomllib.TOMLDecodeError | UnicodeDecodeError, source: Path) -> tuple[str, str]:
    """A sentence on a file that is not TOML, and what to do."""
    twice = re.match(r"Cannot declare \((.+)\) twice \(at line (\d+)", str(error))
    if twice:
        name = ".".join(re.findall(r"'([^']*)'", twice[1]))
        return f"{source} has [{name}] twice, again at line {twice[2]}", "Write its settings below the first one."
    if isinstance(error, UnicodeDecodeError):
        return f"{source} is no text in UTF-8", "Save it as UTF-8, or start again with `hothouse init`."
    return f"{source} is not valid TOML: {error}", "Fix that line, or start again with `hothouse init`."


def of_values(
    error: ValidationError, kind: type[BaseModel], source: Path, masked: Collection[str], sites: object = None
) -> str:
    """A sentence on what is wrong in settings of ``kind``; the values of those in ``masked`` are not told. ``sites``
    are the blocks of the file, for their names.
    """
    lines = []
    for problem in error.errors(include_url=False):
        name = _place(problem["loc"], sites)
        given = problem.get("input")
        if problem["type"] == "extra_forbidden":
            lines.append(f"{name} is not a setting{_meant(kind, [str(part) for part in problem['loc']])}")
        elif name.partition(" (")[0] == "sites" and problem["type"] in ("tuple_type", "model_type"):
            lines.append("sites must be blocks, one a site: write [[sites]], with a line name = ... below it")
        else:
            as_written = str(given).lower() if isinstance(given, bool) else repr(given)
            shown = "" if name in masked or isinstance(given, (dict, BaseModel)) else f" is {as_written}:"
            lines.append(f"{name}{shown} {_message(problem)}".lstrip())
    return f"{'; '.join(dict.fromkeys(lines))} (in {source} or the environment)"


def _place(loc: Sequence[str | int], sites: object = None) -> str:
    """A setting; which one of a list's entries by a number that begins with 1, of sites by the name.

    >>> _place(["sites", 1, "latitude"], [{"name": "south"}, {"name": "north"}]), _place(["kafka", "servers", 0])
    ('sites.latitude (site north)', 'kafka.servers (entry 1)')
    """
    which = [f"entry {part + 1}" for part in loc if isinstance(part, int)]
    if which and loc[0] == "sites" and isinstance(loc[1], int):
        block = sites[loc[1]] if isinstance(sites, list) and loc[1] < len(sites) else None
        name = block.get("name") if isinstance(block, dict) else None
        which[0] = f"site {name}" if isinstance(name, str) and name else f"site number {loc[1] + 1}"
    names = [part for part in loc if isinstance(part, str) and part != "[key]"]  # so pydantic marks what names a value
    return ".".join(names) + (f" ({', '.join(which)})" if which else "")


def _message(problem: Any) -> str:
    if problem["type"] == "tuple_type":
        return 'must be a list, such as ["a", "b"] or [1, 2]'
    words = next((words for kinds, words in _WORDS.items() if problem["type"] in kinds.split()), None)
    if words is not None:
        told = problem.get("ctx", {})
        return words.format(**{name: f"{one:.12g}" if isinstance(one, float) else one for name, one in told.items()})
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]


def _meant(kind: type[BaseModel], place: list[str]) -> str:
    """What a name that is no setting may have been meant for: one like it at its place, or its own in a section."""
    section = ".".join(part for part in place[:-1] if not part.isdigit())
    names = list(_names(kind))
    at_its_place = [name for name in names if name.rpartition(".")[0] == section]
    own = place[-1].lower()
    near = get_close_matches(own, [name.rpartition(".")[2] for name in at_its_place], 1)
    found = [f"{section}.{near[0]}".lstrip(".")] if near else [n for n in names if n.rpartition(".")[2] == own]
    return f"; did you mean {' or '.join(found)}?" if 0 < len(found) <= 3 else ""


def _names(kind: type[BaseModel], before: str = "") -> Iterator[str]:
    """Sections and settings, as `mqtt` and `mqtt.port`; of a list of blocks, as `sites.name`."""
    for name, field in kind.model_fields.items():
        yield before + name
        inner = _inner(field.annotation)
        if inner is not None:
            yield from _names(inner, f"{before}{name}.")


def _inner(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (tuple, Union, UnionType):
        return next((found for part in get_args(annotation) if (found := _inner(part)) is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
