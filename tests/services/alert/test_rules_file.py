"""Rules as growers write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.alerts.crop_rules import rules_for
from services.alert.rules_file import load_document, parse_document
from services.errors import ConfigError


def test_a_file_without_rules_has_those_of_its_crop() -> None:
    """Nothing else need be said."""
    assert parse_document('crop = "tomato"\nstage = "fruiting"').rules == rules_for("tomato", "fruiting")
    assert parse_document("").rules == rules_for()


def test_a_table_changes_removes_or_adds_a_rule() -> None:
    """What is left out stays as the crop has it."""
    rules = {
        rule.name: rule
        for rule in parse_document("""
        crop = "tomato"
        [rules.frost]
        limit = 8
        [rules.heat]
        off = true
        [rules."wet fruit before noon"]
        kind = "condensation"
        hours = ["04:00", "12:00"]
        fruit_mm = 70
        """).rules
    }
    usual = {rule.name: rule for rule in rules_for("tomato")}
    assert rules["frost"].limit == 8.0
    assert rules["frost"].lead_h == usual["frost"].lead_h
    assert "heat" not in rules
    assert rules["wet fruit before noon"].hours == (240, 720)
    assert rules["condensation"] == usual["condensation"]


def test_a_zone_may_have_rules_of_its_own() -> None:
    """Another crop, and options over those of the site."""
    document = parse_document("""
    crop = "tomato"
    [rules.frost]
    limit = 8
    [zones.seedlings]
    crop = "lettuce"
    stage = "young"
    [zones."north 2".rules.frost]
    limit = 12
    """)
    limits = {zone: {rule.name: rule.limit for rule in document.rules_of(zone)}["frost"]
              for zone in ("elsewhere", "seedlings", "north 2")}  # fmt: skip
    assert limits == {"elsewhere": 8.0, "seedlings": 8.0, "north 2": 12.0}
    assert document.zones["seedlings"] == {"crop": "lettuce", "stage": "young"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("zones = 3", "zones must be tables, such as \\[zones.north-1\\]"),
        ("[zones]\nz2 = 3", "zones.z2 must be a table, such as \\[zones.z2.rules.frost\\]"),
        ("[zones.z2]\nlimit = 3", "zone z2: 'limit' is not one of crop, stage, rules"),
        ("[zones.z2.changes.frost]\nlimit = 3", "zone z2: 'changes' is not one of crop, stage, rules"),
        ("[zones.z2.rules.frost]\nchance = 3.0", "zone z2: frost: chance is 3; it must be between"),
        ("[zones.z2]\ncrop = 'moss'", "zone z2: crop 'moss' is not one of tomato"),
        ("crops = 1", "'crops' is not one of crop, stage, rules"),
        ('crop = "moss"', "crop 'moss' is not one of tomato"),
        ("stage = 3", "stage must be a word in quotes"),
        ("crop = []", "crop must be a word in quotes"),
        ("rules = 3", "rules must be tables, such as \\[rules.frost\\]"),
        ("rules.frost = 3", "rules.frost must be a table"),
        ("[rules.cold]\nlimit = 3", "cold: a rule that the crop has not needs a kind"),
        ('[rules.frost]\nlimit = "3"', "frost: limit is '3'; it must be a number"),
        ("[rules.frost]\nlimit = true", "frost: limit is True; it must be a number"),
        (f"[rules.frost]\nlimit = 1{'0' * 25}", "frost: limit is too large; it must be a number"),
        ("[rules.frost]\nlimit = inf", "frost: limit is inf; it must be a number"),
        ("[rules.heat]\nlimit = 335.0", "the rules: heat: limit is 335; it must be between -20 and 60 °C"),
        ("[rules.frost]\nlimits = 3", "frost: 'limits' is not one of limit"),
        ("[rules.frost]\nchance = 3.0", "frost: chance is 3; it must be between"),
        ("[rules.frost]\noff = 1", "frost: off is 1; it must be true or false"),
        ('[rules.frost]\nhours = ["6", "7"]', "frost: hours is .*; write two times of a day"),
        ("[rules.botrytis]\nband_c = [15]", "botrytis: band_c is \\[15\\]; write two temperatures"),
        ("[rules.frost]\nseverity = 1", "frost: severity is 1; it must be a word in quotes"),
        ("[rules.frost", "the rules: Expected '\\]' at the end"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(text: str, sentence: str) -> None:
    """It names the rule, what was said, and what is allowed; never a traceback."""
    with pytest.raises(ConfigError, match=sentence):
        parse_document(text)


def test_every_mistake_is_told_at_once() -> None:
    """Nobody has to start three times to hear of three."""
    with pytest.raises(ConfigError) as error:
        parse_document('[rules.frost]\nlimit = "3"\n[rules.heat]\nchance = 7\n[rules.x]\nlimit = 1')
    assert len(error.value.message.split("; ")) >= 3
    assert all(name in error.value.message for name in ("frost", "heat", "x"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With its path; one that can be read is."""
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        load_document(tmp_path / "none.toml")
    (tmp_path / "rules.toml").write_text('crop = "pepper"')
    assert load_document(tmp_path / "rules.toml").rules == rules_for("pepper")
