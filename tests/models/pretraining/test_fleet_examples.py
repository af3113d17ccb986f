"""Examples of a fleet: where they are drawn, what they know, and that they are what the network is asked with."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from edge.wire.vocabulary import VOCABULARY
from models.features.inputs import Inputs, targets_of
from models.network.house_features import HouseFeatures
from models.pretraining.fleet_chunk import FleetChunk
from models.pretraining.fleet_examples import FleetExamples, draw_examples
from models.spec import ForecastSpec
from tests.models.pretraining.fleets import DRAWING, arrays, chunk

pytestmark = pytest.mark.thorough

SPEC = ForecastSpec(tuple(VOCABULARY))


@pytest.fixture(scope="module")
def drawn() -> tuple[FleetExamples, Inputs]:
    """Of four sites."""
    return draw_examples(chunk(), SPEC, DRAWING)


def same(one: FleetExamples, other: FleetExamples) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name), equal_nan=True) for f in fields(one))


def test_the_same_seed_draws_the_same_and_another_others() -> None:
    """Byte for byte; each file of a fleet has draws of its own."""
    day = replace(DRAWING, days=1)
    examples, again = (draw_examples(chunk(), SPEC, day)[0] for _ in range(2))
    assert same(examples, again)
    assert not same(examples, draw_examples(chunk(), SPEC, replace(day, seed=3))[0])
    other_file = draw_examples(chunk(), SPEC, day, number=1)[0]
    assert not np.array_equal(examples.origin, other_file.origin, equal_nan=True)


def test_most_are_of_a_zones_first_days(drawn: tuple[FleetExamples, Inputs]) -> None:
    """None of its first hour; no more zones of a site than asked, and no more origins."""
    examples, _ = drawn
    assert examples.day.min() > 1 / 24
    assert examples.day.max() <= DRAWING.days
    assert (examples.day <= 1).mean() > DRAWING.young
    zones, count = np.unique(examples.zone, return_counts=True)
    assert count.max() <= DRAWING.origins_each
    site = chunk().arrays["zone_site"][zones]
    assert np.bincount(site).max() <= DRAWING.zones_each


def test_nothing_that_came_later_is_known() -> None:
    """Other rows from the third day on change truths only: features and forecasts until then stay, byte for byte."""
    later = {name: array.copy() for name, array in arrays().items()}
    later["values"][:, 3 * 288 :] += 7
    changed = FleetChunk(later, chunk().layout, 300_000)
    one, other = (draw_examples(c, SPEC, replace(DRAWING, origins_each=30))[0] for c in (chunk(), changed))
    assert np.array_equal(one.origin, other.origin, equal_nan=True)
    assert np.array_equal(one.ahead, other.ahead, equal_nan=True)
    assert np.array_equal(one.baseline, other.baseline, equal_nan=True)
    assert not np.array_equal(one.truth, other.truth, equal_nan=True)


def test_truths_are_the_rows_that_came_and_the_baseline_is_the_online_layers(
    drawn: tuple[FleetExamples, Inputs],
) -> None:
    """Better than what is now, at a day ahead; quantiles in order; every truth among the zone's rows."""
    examples, inputs = drawn
    known = np.isfinite(examples.baseline).all(-1)
    assert known.mean() > 0.8
    assert (np.diff(examples.baseline[known], axis=-1) >= 0).all()
    targets = targets_of(chunk().rows(SPEC.channels), SPEC)
    for zone in np.unique(examples.zone):
        came = examples.truth[examples.zone == zone][:, :, 0]
        assert np.isin(came[np.isfinite(came)], targets[zone, :, 0]).all()
    assert inputs.future.shape[-1] > 0


def test_features_are_made_of_what_a_network_is_given(drawn: tuple[FleetExamples, Inputs]) -> None:
    """The handful of inputs that is kept gives features that are among the examples."""
    examples, inputs = drawn
    origin, _ = HouseFeatures(SPEC)(*inputs.arrays())
    for row in origin.astype(np.float16):
        assert any(np.array_equal(row, held, equal_nan=True) for held in examples.origin)


def test_recordings_that_are_too_short_or_of_another_step_are_refused() -> None:
    """In a sentence."""
    with pytest.raises(ValueError, match="need recordings of 7 days or more"):
        draw_examples(chunk(), SPEC, replace(DRAWING, days=4))
    with pytest.raises(ValueError, match="300000 ms long, this schema wants 900000"):
        draw_examples(chunk(), replace(SPEC, step_ms=900_000), DRAWING)
