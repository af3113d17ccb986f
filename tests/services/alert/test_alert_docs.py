"""docs/alerts.md says what rules there are, and its example is one that is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from models.alerts.alert_rule import COURSES, STATES
from models.alerts.crop_rules import CROPS, rules_for
from models.alerts.rules_document import OPTIONS
from services.alert.rules_file import parse_document
from services.alert.webhook import signature
from services.config import load_settings

PAGE = (Path(__file__).parents[3] / "docs/alerts.md").read_text()

EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.S)


def test_the_settings_that_are_shown_are_settings(tmp_path: Path) -> None:
    """The ways to tell people, as the page sets them up."""
    (tmp_path / "hothouse.toml").write_text(EXAMPLES[2])
    said = load_settings(tmp_path / "hothouse.toml").alerts
    assert (said.webhook_url, said.email_to) == ("https://example.org/hothouse", ("grower@example.org",))


def test_the_check_of_a_signature_that_is_shown_finds_ours() -> None:
    """And no other."""
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    shown: dict[str, Any] = {}
    exec(program, shown)
    headers = {"webhook-id": "a1-2", "webhook-timestamp": "7", "webhook-signature": signature(b"key", "a1-2", 7, b"{}")}
    assert shown["is_ours"](b"key", headers, b"{}")
    assert not shown["is_ours"](b"other", headers, b"{}")


def test_the_example_is_read() -> None:
    """What the page shows can be copied."""
    example = EXAMPLES[0]
    rules = {rule.name: rule for rule in parse_document(example).rules}
    assert rules["frost"].limit == 9.0
    assert rules["condensation"].hours == (120, 600)
    assert rules["cool evening"].kind == "frost"
    assert "co2_high" not in rules


def test_the_example_of_a_zone_means_what_it_says() -> None:
    """What it leaves out is as the site has it; a rule that the site switched off holds there."""
    document = parse_document(EXAMPLES[1])
    rules = {rule.name: rule for rule in document.rules_of("seedlings")}
    assert (rules["frost"].limit, rules["heat"]) == (14.0, rules_for("tomato", "young")[1])
    assert "heat" not in {rule.name for rule in document.rules}


def test_every_kind_and_option_has_its_line() -> None:
    """Each in the first column of a table."""
    lines = " ".join(re.findall(r"^\| (`[^|]*) \|", PAGE, re.M))
    assert set(re.findall(r"`(\w+)`", lines)) == {*COURSES, *STATES, *OPTIONS}


def test_the_table_of_crops_is_that_of_the_code() -> None:
    """Every limit of every crop."""
    told = {row[0]: row[1:] for row in (re.split(r" ?\| ?", line)[1:-1] for line in PAGE.splitlines()) if row[:1]
            and row[0] in CROPS}  # fmt: skip
    wanted = {
        crop: [
            "" if value is None else f"{value:g}"
            for value in (of.cold_c, of.hot_c, of.vpd_low_kpa, of.vpd_high_kpa, of.fruit_mm, of.base_c)
        ]
        for crop, of in CROPS.items()
    }
    assert told == wanted


def test_what_all_crops_share_is_as_the_page_says() -> None:
    """The chance from which rules warn, and how far they look ahead."""
    courses = [rule for rule in rules_for() if rule.is_course]
    assert {rule.chance for rule in courses} == {0.25}
    assert {rule.kind for rule in courses if rule.lead_h == 4} == {"heat", "vpd_low", "vpd_high", "co2_low", "co2_high"}
    assert {rule.lead_h for rule in courses} == {4, 12}
