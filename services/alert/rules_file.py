"""Step 9 of the way of a reading: the rules that a grower writes, in TOML.

A file begins with the rules of its crop; a table under ``rules`` changes one of them, switches it off, or adds another
with a ``kind``. A table under ``zones`` says what a zone has of its own. Every mistake is told in one sentence that
names its rule, and its zone.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from models.alerts.rules_document import DocumentError, RulesDocument
from services.errors import ConfigError

__all__ = ["load_document", "parse_document"]

HINT = "docs/alerts.md has the table of rules and an example."


def load_document(path: Path) -> RulesDocument:
    """What a file says; raises :class:`ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the rules of alerts in {path} cannot be read: {said}", HINT) from error
    return parse_document(text, str(path))


def parse_document(text: str, label: str = "the rules") -> RulesDocument:
    r"""What ``text`` says; raises :class:`ConfigError` that has a sentence for each mistake.

    >>> rules = parse_document('crop = "lettuce"\n[rules.frost]\nlimit = 4.0\n[rules.heat]\noff = true').rules
    >>> rules[0].limit, [rule.name for rule in rules][:2]
    (4.0, ['frost', 'condensation'])
    """
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{label}: {error}", HINT) from error
    members = ("crop", "stage", "rules", "zones")
    wrong = [f"{name!r} is not one of {', '.join(members)}" for name in said if name not in members]
    zones = said.get("zones", {})
    for zone, own in zones.items() if isinstance(zones, dict) else ():
        foreign = [name for name in own if name not in members[:3]] if isinstance(own, dict) else ()
        wrong += [f"zone {zone}: {name!r} is not one of crop, stage, rules" for name in foreign]
    if wrong:
        raise ConfigError(f"{label}: " + "; ".join(wrong), HINT)
    if isinstance(zones, dict):
        zones = {zone: _document_of(own) if isinstance(own, dict) else own for zone, own in zones.items()}
    try:
        return RulesDocument.of(_document_of(said | {"zones": zones})).checked()
    except DocumentError as error:
        raise ConfigError(f"{label}: {error}", HINT) from error


def _document_of(said: dict[str, Any]) -> dict[str, Any]:
    """A file calls its changes rules."""
    return {"changes" if name == "rules" else name: value for name, value in said.items()}
