"""Whether there is evidence for an effect, and where it comes from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.effects.effect_artefact import shipped_effects
from models.effects.effect_support import NO_EVIDENCE, WIDEST, Support, vague
from models.effects.plan_change import PlanChange
from models.effects.situation import EFFECT_TARGETS, SEEN, Situation
from models.effects.zone_effect import zone_effect
from models.spec import ForecastSpec
from tests.models.effects.situations import situation

MINUTES = np.arange(30, 1441, 30)
COLDER = PlanChange("sp_heat_c", "add", -1.5, 120, 480)


def judged(*changes: PlanChange, of: Situation | None = None, times: int = 0) -> Support:
    """The support of changes; where there is none there is no number either."""
    found = zone_effect(
        shipped_effects(), of or situation(1), changes, MINUTES, ForecastSpec(()), lambda metric, moved: times
    )
    assert (found.effect is None) == (found.support.level == "none")
    assert (NO_EVIDENCE in found.support.words) == (found.effect is None)
    return found.support


def test_what_only_simulated_houses_saw_is_said_to_be_so() -> None:
    """And what the zone has seen often, too, is said to be known here."""
    assert judged(COLDER).level == "simulated"
    assert judged(COLDER, times=2).level == "simulated"
    here = judged(COLDER, times=5)
    assert here.level == "here"
    assert "sp_heat_c was moved so 5 times" in here.words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (PlanChange("fog_pct", "set", 50, 0, 300), "no house was tried with fog_pct"),
        (PlanChange("vent_lee_pct", "most", 0, 0, 300), "houses were tried with vent_lee_pct only as: at_least"),
        (PlanChange("sp_heat_c", "add", 15, 0, 300), "sp_heat_c would move by 15, houses were tried with -6 to 6"),
        (PlanChange("sp_heat_c", "set", 35, 0, 300), "sp_heat_c would move by 17.5"),
        (PlanChange("out_temp_c", "add", -20, 0, 300), "out_temp_c would move by -20"),
        (PlanChange("sp_heat_c", "add", 1, 0, 10), "sp_heat_c changes for less than 30 minutes"),
        (PlanChange("sp_heat_c", "add", 1, 1430, 2000), "sp_heat_c changes for less than 30 minutes"),
        (PlanChange("sp_lamp_pct", "set", 100, 0, 300), "nobody says what sp_lamp_pct is without the change"),
    ],
)
def test_what_was_never_tried_has_no_support(change: PlanChange, reason: str) -> None:
    """Another metric, way, size or length; a setpoint that nobody says. The reason is said."""
    found = judged(change)
    assert found.level == "none"
    assert reason in found.words


def test_changes_that_were_never_tried_together_have_no_support() -> None:
    """Too many, or two of one metric."""
    assert (
        "4 changes were never tried together"
        in judged(
            *(PlanChange(name, "add", 1, 0, 300) for name in ("sp_heat_c", "sp_vent_c", "sp_rh_pct", "out_temp_c"))
        ).words
    )
    assert "ask for them one by one" in judged(COLDER, PlanChange("sp_heat_c", "add", 1, 600, 700)).words


def without(metric: str, half_hours: int) -> Situation:
    """A zone of which a metric is known for the last half-hours only."""
    made = situation(1)
    day = made.day.copy()
    day[:, : 48 - half_hours, SEEN.index(metric)] = np.nan
    return replace(made, day=day)


def test_a_zone_that_is_hardly_known_has_no_support() -> None:
    """Half a day of air, humidity and weather is needed; so is a forecast."""
    assert judged(COLDER, of=without("air_temp_c", 30)).level == "simulated"
    assert (
        "air_temp_c is known of 3 of the last 24 hours, 12 are needed"
        in judged(COLDER, of=without("air_temp_c", 6)).words
    )
    assert "out_temp_c is known of 0" in judged(COLDER, of=without("out_temp_c", 0)).words
    made = situation(1)
    blind = replace(made, path=np.full_like(made.path, np.nan))
    assert "no forecast of air_temp_c" in judged(COLDER, of=blind).words


def test_a_state_that_no_simulated_house_was_in_has_no_support() -> None:
    """45 °C inside, or 40 °C of frost."""
    assert "air_temp_c lies outside" in judged(COLDER, of=situation(1, air_temp_c=55.0)).words
    assert "out_temp_c lies outside" in judged(COLDER, of=situation(1, out_temp_c=-45.0)).words


def test_an_interval_that_tells_nothing_is_no_answer() -> None:
    """At the edge of what houses were tried with the network may not know: that is said, with a smaller change as the
    way out, and a smaller change is answered.
    """
    bright = situation(1, out_radiation_w_m2=300.0)
    bright = replace(bright, sun=np.full_like(bright.sun, 0.5))
    found = judged(PlanChange("out_radiation_w_m2", "add", -400, 0, 1440), of=bright)
    assert found.level == "none"
    assert "too uncertain to be of use; ask for a smaller or a shorter change" in found.words
    assert judged(PlanChange("out_radiation_w_m2", "add", -40, 0, 120), of=bright).level == "simulated"


@pytest.mark.parametrize("target", sorted(WIDEST))
def test_the_widest_interval_is_the_bound(target: str) -> None:
    """Just within it there is an answer; at one time beyond it there is none, whatever is unknown of other targets."""
    effect = np.full((9, len(EFFECT_TARGETS), 3), np.nan, np.float32)
    at, widest = EFFECT_TARGETS.index(target), WIDEST[target][0]
    effect[:, at] = widest * np.float32([-0.4, 0.0, 0.59])
    assert vague(effect) == []
    effect[4, at, 2] = widest * np.float32(0.61)
    (reason,) = vague(effect)
    assert reason.startswith(f"{target} may change")
