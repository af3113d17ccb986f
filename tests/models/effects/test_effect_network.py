"""The network of effects: what is not changed has no effect; the shipped one is whole, small and physically sound."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from setuptools import Distribution

from models.effects.effect_artefact import SHIPPED_EFFECTS, EffectArtefactError, load_effects, save_effects
from models.effects.effect_inputs import MOVED, STATE, effect_inputs
from models.effects.effect_network import EffectNetwork
from models.effects.plan_change import CHANGEABLE, PlanChange
from models.effects.situation import EFFECT_TARGETS
from models.effects.zone_effect import changed_path, zone_effect
from models.spec import ForecastSpec
from tests.models.effects.situations import USUAL, situation

ROOT = Path(__file__).parents[3]
SPEC = ForecastSpec(())
NETWORK, MANIFEST = load_effects(SHIPPED_EFFECTS)
MINUTES = np.arange(30, 1441, 30)
AIR, RH, CO2, _ = range(len(EFFECT_TARGETS))


def asked(*changes: PlanChange, **metrics: float) -> np.ndarray:
    """What the shipped network says of one zone: ``[T, EFFECT_TARGETS, 3]``."""
    found = zone_effect(NETWORK, situation(1, **metrics), changes, MINUTES, SPEC, lambda metric, moved: 0)
    assert found.effect is not None, found.support
    return found.effect


changes = st.builds(
    lambda metric, value, begin, length: PlanChange(
        metric, CHANGEABLE[metric].hows[0], value * CHANGEABLE[metric].high, begin, begin + length
    ),
    st.sampled_from(sorted(CHANGEABLE)), st.floats(-1, 1), st.floats(0, 1380), st.floats(30, 2000),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(changes, st.integers(0, 2**32 - 1))
def test_nothing_happens_before_a_change_begins(change: PlanChange, seed: int) -> None:
    """In any state, at any time: the effect and both ends of its interval are zero until then."""
    state = np.random.default_rng(seed).normal(0, 3, (len(MINUTES), len(STATE))).astype(np.float32)
    moved, _ = effect_inputs(situation(1, sp_lamp_pct=50, sp_screen_energy_pct=50, sp_screen_black_pct=50,
                                       sp_pipe_min_c=30), [[change]], MINUTES)  # fmt: skip
    said = NETWORK.effect(moved[0], state)
    assert (said[change.begin_min >= MINUTES] == 0).all()
    assert (said[..., 0] <= said[..., 1]).all()
    assert (said[..., 1] <= said[..., 2]).all()
    assert np.isfinite(said).all()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(USUAL.keys() & CHANGEABLE.keys())), st.floats(0, 1200), st.floats(40, 1400))
def test_a_change_that_changes_nothing_has_no_effect(metric: str, begin: float, length: float) -> None:
    """Zero added, or set to what it is anyway."""
    none = PlanChange(metric, "least", 0.0, begin, begin + length)
    if metric != "vent_lee_pct":
        none = PlanChange(metric, "add", 0.0, begin, begin + length)
    moved, state = effect_inputs(situation(1), [[none]], MINUTES)
    assert (NETWORK.effect(moved, state) == 0).all()
    if "set" in CHANGEABLE[metric].hows:
        same = PlanChange(metric, "set", USUAL[metric], begin, begin + length)
        moved, state = effect_inputs(situation(1), [[same]], MINUTES)
        assert (NETWORK.effect(moved, state) == 0).all()


def test_a_heated_zone_follows_its_setpoint_by_night() -> None:
    """1.5 °C less makes it colder by about as much while it lasts, within the interval; more makes it warmer."""
    during = (MINUTES > 240) & (MINUTES <= 480)
    lower = asked(PlanChange("sp_heat_c", "add", -1.5, 120, 480))[:, AIR]
    higher = asked(PlanChange("sp_heat_c", "add", 1.5, 120, 480))[:, AIR]
    assert (lower[during, 1] < -0.5).all()
    assert (lower[during, 1] > -2.5).all()
    assert (higher[during, 1] > 0.5).all()
    assert (np.abs(lower[MINUTES > 1000, 1]) < 0.3).all()


def test_vents_that_stay_open_dry_a_humid_zone_and_let_carbon_dioxide_out() -> None:
    """At 3 °C outside, with vents at least half open."""
    said = asked(PlanChange("vent_lee_pct", "least", 50.0, 60, 600), rh_pct=90.0, co2_ppm=900.0, sp_vent_c=24.0)
    during = (MINUTES > 180) & (MINUTES <= 600)
    assert (said[during, AIR, 1] < 0).all()
    assert (said[during, RH, 1] < -1).all()
    assert (said[during, CO2, 1] < -10).all()


def test_a_colder_night_cools_a_house_without_heating_demand() -> None:
    """8 °C colder outside: the free house is colder, too."""
    said = asked(PlanChange("out_temp_c", "add", -8.0, 0, 720), sp_heat_c=8.0, heat_pipe_low_c=18.0)
    assert (said[(MINUTES > 120) & (MINUTES <= 720), AIR, 1] < -0.3).all()


def test_a_changed_path_has_the_effect_and_a_wider_band() -> None:
    """Its median is moved by the effect; errors of both add up as independent ones do; limits hold."""
    spec = ForecastSpec((), targets=("rh_pct",))
    path = np.broadcast_to(np.float32([90, 94, 97]), (2, 1, 3))
    effect = np.float32([[[0, 0, 0]], [[-3, 3, 12]]])
    changed = changed_path(path, effect, MINUTES[:2], spec)
    np.testing.assert_array_equal(changed[0], path[0])
    np.testing.assert_allclose(changed[1, 0], [97 - np.hypot(4, 6), 97, 100])


@pytest.mark.parametrize(("target", "path", "effect", "limit"), [
    ("rh_pct", (93, 97, 99.5), (8, 10, 12), 100),
    ("rh_pct", (93, 97, 100), (3, 4, 6), 100),
    ("co2_ppm", (20, 30, 60), (-190, -150, -120), 0),
    ("vpd_kpa", (0.01, 0.03, 0.1), (-0.5, -0.4, -0.3), 0),
])  # fmt: skip
def test_a_changed_path_keeps_a_width_at_a_limit(
    target: str, path: tuple[float, ...], effect: tuple[float, ...], limit: float
) -> None:
    """Its median lies there, and p10 < p90."""
    [[[p10, p50, p90]]] = changed_path(
        np.float32([[path]]), np.float32([[effect]]), MINUTES[:1], ForecastSpec((), targets=(target,))
    ).astype(float)
    assert p50 == limit
    assert p10 <= p50 <= p90
    assert p10 < p90


def test_what_is_unknown_of_a_changed_path_is_unknown() -> None:
    """A target of which no effects are known, beside one that has them."""
    path, effect = np.float32([[[18, 20, 22], [93, 97, 99]]]), np.float32([[[np.nan] * 3, [8, 10, 12]]])
    changed = changed_path(path, effect, MINUTES[:1], ForecastSpec((), targets=("leaf_temp_c", "rh_pct")))
    assert np.isnan(changed[0, 0]).all()
    assert np.isfinite(changed[0, 1]).all()


def test_the_artefact_says_what_made_it() -> None:
    """Seed, command, how many houses and pairs, and what it is worth on houses that it never saw."""
    assert MANIFEST["command"].startswith("hothouse pretrain effects --sites ")
    assert MANIFEST["houses"] >= 1500
    assert MANIFEST["pairs"] >= 10_000
    assert MANIFEST["held_back"]["air_temp_c"]["explained"] > 0.75
    assert all(0.75 <= one["held"] <= 0.85 for one in MANIFEST["held_back"].values())


def test_the_artefact_is_small_and_in_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is less than 400 kB; what is built and installed holds every file of it."""
    assert sum(path.stat().st_size for path in SHIPPED_EFFECTS.iterdir()) < 400_000
    monkeypatch.chdir(ROOT)
    package = Distribution()
    package.parse_config_files([str(ROOT / "pyproject.toml")])
    build = package.get_command_obj("build_py")
    build.ensure_finalized()
    build.manifest_files = {}  # what a checkout has besides must not help
    held = {Path(path).name for path in build.find_data_files("models.effects", str(SHIPPED_EFFECTS.parent))}
    assert held == {path.name for path in SHIPPED_EFFECTS.iterdir()}


def saved(folder: Path) -> Path:
    """The shipped network, saved anew."""
    golden = (np.zeros((2, len(MOVED)), np.float32), np.zeros((2, len(STATE)), np.float32))
    save_effects(folder, NETWORK, golden, {"seed": 3})
    return folder


def test_a_saved_network_answers_the_same(tmp_path: Path) -> None:
    """Byte for byte; and its folder is never written over."""
    network, manifest = load_effects(saved(tmp_path / "one"))
    moved, state = effect_inputs(situation(1), [[PlanChange("sp_heat_c", "add", -1.5, 0, 300)]], MINUTES)
    assert network.effect(moved, state).tobytes() == NETWORK.effect(moved, state).tobytes()
    assert manifest["seed"] == 3
    with pytest.raises(FileExistsError):
        saved(tmp_path / "one")


def test_a_network_that_is_torn_altered_or_of_another_release_is_refused(tmp_path: Path) -> None:
    """Each with a sentence that says what to do."""
    folder = saved(tmp_path / "one")
    weights, manifest = folder / "weights.safetensors", folder / "manifest.json"
    whole, said = weights.read_bytes(), json.loads(manifest.read_text())
    weights.write_bytes(whole[:-1] + b"x")
    with pytest.raises(EffectArtefactError, match="torn or altered; install the package again"):
        load_effects(folder)
    weights.write_bytes(whole)
    manifest.write_text(json.dumps({**said, "format": 99}))
    with pytest.raises(EffectArtefactError, match="format 99, this release reads 1: make it again with hothouse"):
        load_effects(folder)
    weights.unlink()
    with pytest.raises(EffectArtefactError, match="cannot be read"):
        load_effects(folder)
    with pytest.raises(ValueError, match="this is no network of effects"):
        EffectNetwork({"weight0": np.zeros((2, 2))})
