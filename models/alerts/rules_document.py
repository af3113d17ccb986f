"""Step 9 of the way of a reading: rules as people write them, in a file or over the API, and the rules that they mean.

A document names the crop and its stage, and then, by rule, only the options that are different. ``off`` takes a rule
away, a ``kind`` adds one. A zone may have another crop or stage, and options of its own, over those of the site. Each
mistake is one sentence that names its rule, and its zone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from models.alerts.alert_rule import AlertRule
from models.alerts.crop_rules import rules_for

__all__ = ["OPTIONS", "DocumentError", "RulesDocument", "clock_time"]

NUMBERS = (
    "limit", "night_limit", "hysteresis", "for_min", "keep_min", "lead_h", "chance", "fruit_mm", "wet_rh_pct", "base_c",
    "per_100_j_cm2",
)  # fmt: skip
OPTIONS = (*NUMBERS, "kind", "severity", "hours", "band_c", "off")
MOST_RULES, LONGEST_NAME = 100, 64
MOST_ZONES = 1000
LARGEST = 1e9
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class DocumentError(ValueError):
    """What is wrong with a document: ``mistakes`` are (rule or member, sentence); those of a zone begin with
    ``zones.`` and its name.
    """

    def __init__(self, mistakes: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(sentence for _, sentence in mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class RulesDocument:
    """Made by :meth:`of`; ``rules`` are what it means, ``changes`` the options of each rule that were written.
    ``zones`` are the crop, stage and changes that zones have of their own, ``zone_rules`` what that means there.

    >>> document = RulesDocument.of({
    ...     "crop": "lettuce", "changes": {"frost": {"limit": 4}, "heat": {"off": True}},
    ...     "zones": {"seedlings": {"changes": {"frost": {"limit": 8}}}},
    ... })
    >>> document.rules[0].limit, [rule.name for rule in document.rules][:2]
    (4.0, ['frost', 'condensation'])
    >>> document.rules_of("seedlings")[0].limit, document.rules_of("elsewhere")[0].limit
    (8.0, 4.0)
    """

    crop: str = "other"
    stage: str = "growing"
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rules: tuple[AlertRule, ...] = rules_for()
    zones: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    zone_rules: Mapping[str, tuple[AlertRule, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> RulesDocument:
        """From ``crop``, ``stage``, ``changes`` and ``zones``, each of which may be missing; raises
        :class:`DocumentError`.
        """
        wrong = [(name, f"{name!r} is not one of {', '.join(_MEMBERS)}") for name in said if name not in _MEMBERS]
        words = {name: said.get(name, usual) for name, usual in (("crop", "other"), ("stage", "growing"))}
        wrong += [(n, f"{n} must be a word in quotes") for n, word in words.items() if not isinstance(word, str)]
        changes = said.get("changes", {})
        if not isinstance(changes, Mapping):
            wrong.append(("changes", "rules must be tables, such as [rules.frost]"))
        elif len(changes) > MOST_RULES:
            wrong.append(("changes", f"{len(changes)} rules are named; {MOST_RULES} is the most"))
        zones = said.get("zones", {})
        if not isinstance(zones, Mapping):
            wrong.append(("zones", "zones must be tables, such as [zones.north-1]"))
        elif len(zones) > MOST_ZONES:
            wrong.append(("zones", f"{len(zones)} zones are named; {MOST_ZONES} is the most"))
        if wrong:
            raise DocumentError(wrong)
        try:
            usual = rules_for(**words)
        except ValueError as error:
            raise DocumentError([(str(error).split(" ", 1)[0], str(error))]) from error
        rules = {rule.name: rule for rule in usual}
        for name, table in changes.items():
            try:
                _change(rules, name, table)
            except DocumentError as error:
                wrong += error.mistakes
        if wrong:
            raise DocumentError(wrong)
        of_site = cls(
            **words, changes={name: dict(table) for name, table in changes.items()}, rules=tuple(rules.values())
        )
        return of_site._with_zones(zones) if zones else of_site

    def checked(self, before: RulesDocument | None = None) -> RulesDocument:
        """The same, for who has just written it: raises :class:`DocumentError` where a number makes no sense. Rules
        that are as they were ``before`` hold.
        """
        kept = set(before.rules if before else ())
        wrong = [
            (rule.name, f"{rule.name}: {words}") for rule in self.rules if rule not in kept for words in rule.beyond()
        ]
        for zone, rules in self.zone_rules.items():
            kept = {*self.rules, *(before.rules_of(zone) if before else ())}
            for rule in [rule for rule in rules if rule not in kept]:
                at, whose = f"zones.{zone}.{rule.name}", f"zone {zone}: {rule.name}"
                wrong += [(at, f"{whose}: {words}") for words in rule.beyond()]
        if wrong:
            raise DocumentError(wrong)
        return self

    def merged(self, patch: Mapping[str, Any]) -> RulesDocument:
        """With what ``patch`` says; ``None`` takes back an option, all that was changed of a rule, or all changes.

        >>> RulesDocument.of({"changes": {"frost": {"limit": 9}}}).merged({"changes": {"frost": None}}).changes
        {}
        """
        zones: dict[str, Any] = {name: dict(own) for name, own in self.zones.items()}
        given = patch.get("zones", {})
        if not isinstance(given, Mapping):
            raise DocumentError([("zones", "zones must be tables, such as [zones.north-1]")])
        for name, own in given.items():
            if isinstance(own, Mapping) and isinstance(own.get("changes", {}), Mapping | None):
                before = zones.get(name, {})
                zones[name] = {**before, **own, "changes": _merged(before.get("changes", {}), own.get("changes", {}))}
            else:
                zones[name] = own
        changes = _merged(self.changes, patch.get("changes", {}))
        return RulesDocument.of({"crop": self.crop, "stage": self.stage, **patch, "changes": changes, "zones": zones})

    def with_zone(self, zone: str, said: Mapping[str, Any], *, merge: bool = False) -> RulesDocument:
        """With ``said`` as all that a zone has of its own, or with that merged; raises :class:`DocumentError`."""
        if merge:
            return self.merged({"zones": {zone: said}})
        return RulesDocument.of({**self.as_dict(), "zones": {**self.zones, zone: said}})

    def rules_of(self, zone: str) -> tuple[AlertRule, ...]:
        """The rules that hold in a zone."""
        return self.zone_rules.get(zone, self.rules)

    def of_zone(self, zone: str) -> RulesDocument:
        """A document whose rules are those of a zone, as if it were a site of its own."""
        return RulesDocument.of({"crop": self.crop, "stage": self.stage, "changes": self.changes}).merged(
            self.zones.get(zone, {})
        )

    def as_dict(self) -> dict[str, Any]:
        """What :meth:`of` takes."""
        said = {"crop": self.crop, "stage": self.stage, "changes": {n: dict(t) for n, t in self.changes.items()}}
        return said | {"zones": {name: dict(own) for name, own in self.zones.items()}} if self.zones else said

    def as_toml(self) -> str:
        """The same as a file of rules."""
        lines = [f"crop = {_toml(self.crop)}", f"stage = {_toml(self.stage)}", *_tables("", self.changes)]
        for zone, own in self.zones.items():
            lines += ["", f"[zones.{_key(zone)}]"]
            lines += [f"{name} = {_toml(own[name])}" for name in ("crop", "stage") if name in own]
            lines += _tables(f"zones.{_key(zone)}.", own.get("changes", {}))
        return "\n".join(lines) + "\n"

    def _with_zones(self, zones: Mapping[str, Any]) -> RulesDocument:
        """The document of a site with what its zones have of their own."""
        wrong: list[tuple[str, str]] = []
        kept: dict[str, dict[str, Any]] = {}
        rules = {}
        for zone, said in zones.items():
            if not 0 < len(zone) <= LONGEST_NAME:
                wrong.append(("zones", f"the name of a zone has 1 to {LONGEST_NAME} characters"))
                continue
            if said is None:
                continue
            if not isinstance(said, Mapping):
                wrong.append((f"zones.{zone}", f"zones.{zone} must be a table, such as [zones.{zone}.rules.frost]"))
                continue
            own = {name: value for name, value in said.items() if value is not None}
            try:
                if "zones" in own:
                    raise DocumentError([("zones", "'zones' is not one of crop, stage, changes")])
                own["changes"] = _merged({}, own.get("changes", {}))
                rules[zone] = self.merged(own).rules
            except DocumentError as error:
                wrong += [(f"zones.{zone}.{where}", f"zone {zone}: {sentence}") for where, sentence in error.mistakes]
                continue
            if not own["changes"]:
                del own["changes"]
            if own:
                kept[zone] = own
            else:
                del rules[zone]
        if wrong:
            raise DocumentError(wrong)
        return replace(self, zones=kept, zone_rules=rules)


_MEMBERS = ("crop", "stage", "changes", "zones")


def _merged(before: Mapping[str, Mapping[str, Any]], given: object) -> dict[str, Any]:
    """The changes with what is given; ``None`` takes back an option, all that was changed of a rule, or all of them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise DocumentError([("changes", "rules must be tables, such as [rules.frost]")])
    changes: dict[str, Any] = {name: dict(table) for name, table in before.items()}
    for name, table in given.items():
        if table is None:
            changes.pop(name, None)
        elif isinstance(table, Mapping):
            kept = {**changes.get(name, {}), **table}
            changes[name] = {option: value for option, value in kept.items() if value is not None}
            if not changes[name]:
                del changes[name]
        else:
            changes[name] = table
    return changes


def _tables(prefix: str, changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for name, table in changes.items():
        lines += ["", f"[{prefix}rules.{_key(name)}]"]
        lines += [f"{option} = {_toml(value)}" for option, value in table.items()]
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml(name)


def _toml(value: object) -> str:
    r"""JSON's values are TOML's, but for two things: TOML has no surrogates, and no bare DEL.

    >>> print(_toml(["18:00", "\x7f"]))
    ["18:00", "\u007f"]
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def clock_time(minute: int) -> str:
    """A minute of the day as options write it.

    >>> clock_time(450)
    '07:30'
    """
    return f"{minute // 60:02d}:{minute % 60:02d}"


def _change(rules: dict[str, AlertRule], name: str, table: object) -> None:
    if not isinstance(table, Mapping):
        raise DocumentError([(name, f"rules.{name} must be a table, such as [rules.{name}]")])
    if not 0 < len(name) <= LONGEST_NAME:
        raise DocumentError([(name[:LONGEST_NAME], f"the name of a rule has 1 to {LONGEST_NAME} characters")])
    if not _is_text(name):
        raise DocumentError([(name, f"{name!r}: the name of a rule must be Unicode text")])
    found, sentences = _options(name, table)
    if sentences:
        raise DocumentError([(name, sentence) for sentence in sentences])
    if table.get("off"):
        rules.pop(name, None)
        return
    before = rules.get(name)
    if before is None and "kind" not in found:
        sentence = f'{name}: a rule that the crop has not needs a kind, such as kind = "frost"'
        raise DocumentError([(name, sentence)])
    try:
        start = before if before and found.get("kind", before.kind) == before.kind else None
        rules[name] = replace(start, **found) if start else AlertRule(name=name, **found)
    except ValueError as error:
        raise DocumentError([(name, str(error))]) from error


def _options(name: str, table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What a table says, as fields of a rule, and what is wrong with it."""
    found: dict[str, Any] = {}
    wrong = []
    for option, value in table.items():
        if option not in OPTIONS:
            wrong.append(f"{name}: {option!r} is not one of {', '.join(OPTIONS)}")
            continue
        try:
            found[option] = _field(option, value)
        except ValueError as error:
            wrong.append(f"{name}: {option} is {error}")
    found.pop("off", None)  # of no rule a field
    return found, wrong


def _field(option: str, value: Any) -> object:
    """The field that an option's value makes; raises ``ValueError`` with that value, and what it must be."""
    if option in NUMBERS:
        if not _is_number(value):
            raise ValueError(f"{_short(value)}; it must be a number")
        return float(value)
    if option == "off":
        if not isinstance(value, bool):
            raise ValueError(f"{value!r}; it must be true or false")
        return value
    if option == "hours":
        times = [_minutes(each) for each in value] if isinstance(value, list) else []
        if len(times) != 2 or None in times:
            raise ValueError(f'{value!r}; write two times of a day, such as ["18:00", "07:00"]')
        return tuple(times)
    if option == "band_c":
        if not isinstance(value, list) or len(value) != 2 or not all(_is_number(each) for each in value):
            raise ValueError(f"{value!r}; write two temperatures, such as [15, 25]")
        return float(value[0]), float(value[1])
    if not isinstance(value, str):
        raise ValueError(f"{value!r}; it must be a word in quotes")
    return value


def _is_text(name: str) -> bool:
    """Whether it can be written down: JSON may hold half of a surrogate pair, which no file can."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _is_number(value: object) -> bool:
    """Whether it is one that every format can hold: TOML and JSON know whole numbers of any length."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _short(value: object) -> str:
    """A value for a sentence; a whole number of thousands of digits has no text."""
    huge = isinstance(value, int) and abs(value) > LARGEST
    return "too large" if huge else repr(value)[:LONGEST_NAME]


def _minutes(value: object) -> int | None:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    return 24 * 60 if match[1] is None else int(match[1]) * 60 + int(match[2])
