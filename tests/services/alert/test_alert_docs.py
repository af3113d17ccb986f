"""docs/alerts.md says what rules there are, and its example is one that is read."""

from __future__ import annotations

import re
from pathlib import Path

from models.alerts.alert_rule import COURSES, STATES
from services.alert.rules_file import OPTIONS, parse_rules

PAGE = (Path(__file__).parents[3] / "docs/alerts.md").read_text()


def test_the_example_is_read() -> None:
    """What the page shows can be copied."""
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    rules = {rule.name: rule for rule in parse_rules(example)}
    assert rules["frost"].limit == 9.0
    assert rules["condensation"].hours == (120, 600)
    assert rules["cool evening"].kind == "frost"
    assert "co2_high" not in rules


def test_every_kind_and_option_has_its_line() -> None:
    """Each in the first column of a table."""
    lines = " ".join(re.findall(r"^\| (`[^|]*) \|", PAGE, re.M))
    assert set(re.findall(r"`(\w+)`", lines)) == {*COURSES, *STATES, *OPTIONS}
