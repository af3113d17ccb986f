"""Step 9 of the way of a reading: the rules that a grower writes, in TOML.

A file begins with the rules of its crop; a table under ``rules`` changes one of them, switches it off, or adds another
with a ``kind``. Every mistake is told in one sentence that names its rule.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.alerts.alert_rule import AlertRule
from models.alerts.crop_rules import rules_for
from services.errors import ConfigError

__all__ = ["load_rules", "parse_rules"]

HINT = "docs/alerts.md has the table of rules and an example."
NUMBERS = (
    "limit", "night_limit", "hysteresis", "for_min", "keep_min", "lead_h", "chance", "fruit_mm", "wet_rh_pct", "base_c",
    "per_100_j_cm2",
)  # fmt: skip
OPTIONS = (*NUMBERS, "kind", "severity", "hours", "band_c", "off")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")


def load_rules(path: Path) -> tuple[AlertRule, ...]:
    """The rules of a file; raises :class:`ConfigError`."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return parse_rules(text, str(path))


def parse_rules(text: str, label: str = "the rules") -> tuple[AlertRule, ...]:
    r"""The rules that ``text`` says; raises :class:`ConfigError` that has a sentence for each mistake.

    >>> rules = parse_rules('crop = "lettuce"\n[rules.frost]\nlimit = 4.0\n[rules.heat]\noff = true')
    >>> rules[0].limit, [rule.name for rule in rules][:2]
    (4.0, ['frost', 'condensation'])
    """
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{label}: {error}", HINT) from error
    wrong = [f"{name!r} is not one of crop, stage, rules" for name in said if name not in ("crop", "stage", "rules")]
    words = {name: said.get(name, usual) for name, usual in (("crop", "other"), ("stage", "growing"))}
    wrong += [f"{name} must be a word in quotes" for name, word in words.items() if not isinstance(word, str)]
    if wrong:
        raise ConfigError(f"{label}: " + "; ".join(wrong), HINT)
    try:
        rules = {rule.name: rule for rule in rules_for(**words)}
    except ValueError as error:
        raise ConfigError(f"{label}: {error}", HINT) from error
    tables = said.get("rules", {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{label}: rules must be tables, such as [rules.frost]", HINT)
    for name, table in tables.items():
        if not isinstance(table, dict):
            wrong.append(f"rules.{name} must be a table, such as [rules.{name}]")
            continue
        found, sentences = _options(name, table)
        wrong += sentences
        if sentences:
            continue
        if table.get("off"):
            rules.pop(name, None)
            continue
        before = rules.get(name)
        if before is None and "kind" not in found:
            wrong.append(f'{name}: a rule that the crop has not needs a kind, such as kind = "frost"')
            continue
        try:
            start = before if before and found.get("kind", before.kind) == before.kind else None
            rules[name] = replace(start, **found) if start else AlertRule(name=name, **found)
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError(f"{label}: " + "; ".join(wrong), HINT)
    return tuple(rules.values())


def _options(name: str, table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What a table says, as fields of a rule, and what is wrong with it."""
    found: dict[str, Any] = {}
    wrong = []
    for option, value in table.items():
        if option not in OPTIONS:
            wrong.append(f"{name}: {option!r} is not one of {', '.join(OPTIONS)}")
        elif option in NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int | float):
                wrong.append(f"{name}: {option} is {value!r}; it must be a number")
            else:
                found[option] = float(value)
        elif option == "off":
            if not isinstance(value, bool):
                wrong.append(f"{name}: off is {value!r}; it must be true or false")
        elif option == "hours":
            times = [_minutes(each) for each in value] if isinstance(value, list) else []
            if len(times) != 2 or None in times:
                wrong.append(f'{name}: hours is {value!r}; write two times of a day, such as ["18:00", "07:00"]')
            else:
                found[option] = tuple(times)
        elif option == "band_c":
            if not isinstance(value, list) or len(value) != 2 or not all(_is_number(each) for each in value):
                wrong.append(f"{name}: band_c is {value!r}; write two temperatures, such as [15, 25]")
            else:
                found[option] = (float(value[0]), float(value[1]))
        elif not isinstance(value, str):
            wrong.append(f"{name}: {option} is {value!r}; it must be a word in quotes")
        else:
            found[option] = value
    return found, wrong


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _minutes(value: object) -> int | None:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    return 24 * 60 if match[1] is None else int(match[1]) * 60 + int(match[2])
