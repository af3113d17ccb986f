"""Each line of docs/security.md names tests; they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_each_attack_has_a_test_that_is_there() -> None:
    """By file and name, so that one that is renamed or removed is missed."""
    attacks = PAGE.partition("## What attacks it")[2].partition("## What listens")[0]
    rows = [line for line in attacks.splitlines() if line.startswith("| ") and not line.startswith("| attack")]
    assert len(rows) > 20
    for row in rows:
        assert NAMED.search(row), f"no test in: {row}"
    for file, name in NAMED.findall(PAGE):
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file} has no {name}"
