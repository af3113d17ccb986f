"""What a partition has learned, by parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge.wire.vocabulary import VOCABULARY
from models.spec import ForecastSpec, Place
from services.ingest.learned.learned_parts import LearnedParts
from services.ingest.snapshots.parts import LEARNED
from tests.models.worlds import SPEC

NAMES = {"rings", "past", "forecaster", "scores", "watch", "paths", "seen_changes"}
ZONES = [("a", "z1"), ("a", "z2")]


def made() -> LearnedParts:
    """Of two zones."""
    parts = LearnedParts(SPEC, lambda site: Place("UTC", None, None), SPEC.steps_per_day, fine_tunes=False)
    parts.add_zones(ZONES)
    return parts


def test_each_part_is_in_the_state_and_comes_back() -> None:
    """Under its name; what cannot be read is new, and it is said why."""
    parts, other, missing = made(), made(), {}
    state = parts.state()
    assert set(state) == NAMES
    assert LEARNED > NAMES
    other.load({name: held for name, held in state.items() if name != "paths"}, missing)
    assert missing == {"paths": "it cannot be read"}
    assert (len(other.forecaster), len(other.paths)) == (2, 0)
    other.add_zones(ZONES)
    assert len(other.paths) == 2


@pytest.mark.parametrize(("step_min", "most"), [(1, 140_000), (5, 120_000)])
def test_what_is_learned_of_a_zone_stays_within_its_budget(step_min: int, most: int) -> None:
    """Whatever its step; without rings, whose size is that of their rows, and without plans."""
    spec = ForecastSpec(channels=tuple(VOCABULARY), step_ms=60_000 * step_min)
    parts = LearnedParts(spec, lambda site: Place("UTC"), spec.steps_per_day, fine_tunes=True)
    empty = size(parts.state())
    parts.add_zones(ZONES)
    assert (size(parts.state()) - empty) / len(ZONES) <= most


def size(state: Any) -> int:
    """Bytes of a nested state."""
    if isinstance(state, dict):
        return sum(map(size, state.values()))
    if isinstance(state, list):
        return sum(map(size, state))
    return int(getattr(state, "nbytes", 0))


def test_only_parts_that_are_named_are_taken() -> None:
    """Names of what is the partition's own change nothing."""
    parts, other = made(), made()
    before = {name: getattr(parts, name) for name in NAMES}
    parts.adopt(other, {"watch", "plans", "bases", "alerts"})
    assert {name for name in NAMES if getattr(parts, name) is not before[name]} == {"watch"}
    assert parts.watch is other.watch
    forest = parts.forecaster.forest
    parts.adopt(other, NAMES)
    assert {name for name in NAMES if getattr(parts, name) is getattr(other, name)} == NAMES
    assert parts.forecaster.forest is forest
    assert np.array_equal(parts.state()["rings"]["newest"], other.state()["rings"]["newest"])
