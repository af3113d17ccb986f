"""Training of the network of effects: it learns a rule, its intervals hold, and the same seed gives the same bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.effects.effect_inputs import effect_inputs
from models.effects.plan_change import GRID_MIN, PlanChange
from models.pretraining.effect_pairs import EffectPairs
from models.pretraining.effect_trainer import PATH_MIN, EffectTraining, train_effects, with_forecast_errors
from tests.models.effects.situations import situation

CONFIG = EffectTraining(epochs=25, batch_size=256, hidden=24, members=2, dropout=0.0)


def pairs(count: int = 240, seed: int = 0) -> EffectPairs:
    """Houses whose air follows the heating setpoint at once and by half, with some noise; CO₂ is not measured."""
    rng = np.random.default_rng(seed)
    asked, effect = [], np.zeros((count, len(GRID_MIN), 4), np.float32)
    for n in range(count):
        begin, size = float(rng.integers(0, 200) * 5), float(rng.uniform(-4, 4))
        change = PlanChange("sp_heat_c", "add", size, begin, begin + float(rng.integers(12, 80) * 5))
        active = change.active()
        noise = rng.normal(0, 0.1, len(GRID_MIN))
        effect[n, :, 0] = active * (size / 2 + noise)
        effect[n, :, 1] = -2 * effect[n, :, 0]
        asked.append((change,))
    effect[..., 2] = np.nan
    return EffectPairs(situation(count), asked, effect, np.arange(count) // 2)


@pytest.mark.thorough
def test_a_rule_is_learned_and_intervals_hold() -> None:
    """On houses held back the sign is right, most is explained, and four of five truths lie inside."""
    made = train_effects(pairs(), CONFIG)
    air = made.metrics["held_back"]["air_temp_c"]
    assert air["sign_right"] > 0.95
    assert air["explained"] > 0.9
    assert 0.78 <= air["held"] <= 0.82
    assert made.metrics["houses"] + made.metrics["houses_held_back"] == 120
    moved, state = effect_inputs(situation(1), [[PlanChange("sp_heat_c", "add", 2.0, 0, 600)]], PATH_MIN)
    said = made.network.effect(moved[0], state[0])
    assert 0.7 < said[PATH_MIN == 300, 0, 1][0] < 1.3
    assert -2.8 < said[PATH_MIN == 300, 1, 1][0] < -1.2


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Another gives others."""
    short = EffectTraining(epochs=1, batch_size=256, hidden=8, members=2)
    one, again = (train_effects(pairs(60), short).network.arrays for _ in range(2))
    other = train_effects(pairs(60), replace(short, seed=2)).network.arrays
    assert {name: array.tobytes() for name, array in one.items()} == {n: a.tobytes() for n, a in again.items()}
    assert one["weight0"].tobytes() != other["weight0"].tobytes()


def test_paths_are_as_wrong_as_forecasts() -> None:
    """More so further ahead, and no two zones in the same way."""
    made = situation(400)
    off = with_forecast_errors(made, np.random.default_rng(1)).path - made.path
    spread = off.std(axis=0)
    assert spread[0, 0] < 0.4
    assert 0.8 < spread[-1, 0] < 1.8
    assert abs(np.corrcoef(off[0, :, 0], off[1, :, 0])[0, 1]) < 0.9


def test_too_few_houses_are_refused() -> None:
    """With a sentence."""
    with pytest.raises(ValueError, match="5 houses are too few"):
        train_effects(pairs(10), CONFIG)
