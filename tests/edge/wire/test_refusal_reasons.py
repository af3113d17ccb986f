"""The reasons for which something is kept out are listed, as each is a series that begins at 0."""

from __future__ import annotations

import re
from pathlib import Path

from edge.log.kafka.record import FOREIGN_RECORD
from edge.wire.refusal_reasons import PLAN_METRIC_REASONS, PLAN_REASONS, SAMPLE_REASONS, VALUE_REASONS

ROOT = Path(__file__).parents[3]
GIVEN = re.compile(r"""(?:_?refused|refuse|Refusal|_RefusedError|wrong\.append)\(+"(\w+)"|return "(\w+)", "the plan""")
LISTED = {*PLAN_METRIC_REASONS, *PLAN_REASONS, *SAMPLE_REASONS, *VALUE_REASONS}


def test_each_reason_that_the_edge_gives_is_listed() -> None:
    """Whatever the edge's code refuses something for; and none is listed that nobody gives."""
    texts = [path.read_text() for path in (ROOT / "edge").rglob("*.py")]
    given = {reason for text in texts for found in GIVEN.findall(text) for reason in found if reason}
    assert given | {FOREIGN_RECORD} == LISTED


def test_each_reason_is_in_the_documentation() -> None:
    """docs/operations.md has those of samples and values, docs/plans.md those of plans."""
    for page, reasons in (
        ("operations.md", (*SAMPLE_REASONS, *VALUE_REASONS)),
        ("plans.md", {*PLAN_REASONS, *PLAN_METRIC_REASONS} - {"unknown_topic"}),
    ):
        text = (ROOT / "docs" / page).read_text()
        assert [reason for reason in reasons if f"`{reason}`" not in text] == []
