"""The pre-trained network's contract: it fits every schema, and knows no zone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from models.features.inputs import Inputs
from models.features.plans import PLANNED
from models.network.house_features import CONTROLS, HORIZONS_MIN, TARGETS, HouseFeatures, usual_errors
from models.network.pretrained import PretrainedNetwork
from models.network.residual_network import to_tensors
from models.network.training import WindowSet
from models.spec import ForecastSpec, Place
from tests.models.worlds import PLACE, SPEC, START_MS, rows


def inputs_of(spec: ForecastSpec, values: np.ndarray, place: Place = PLACE) -> Inputs:
    """A few dozen."""
    windows = WindowSet(["a", "b"], START_MS, values, [place] * 2, spec)
    return windows.inputs(windows.origins(spec.steps_per_day)[::9])


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    """Of the small world."""
    return inputs_of(SPEC, rows(3))


def wild(spec: ForecastSpec = SPEC, seed: int = 0, size: float = 0.3) -> PretrainedNetwork:
    """A network with random weights everywhere, the head's included."""
    torch.manual_seed(seed)
    network = PretrainedNetwork(spec).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, size)
    return network


def test_new_it_is_its_baseline(inputs: Inputs) -> None:
    """With its head at zero, whatever the baseline is."""
    np.testing.assert_allclose(PretrainedNetwork(SPEC).eval().predict(inputs), inputs.baseline, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [0.05, 1.0, 30.0])
def test_quantiles_never_cross_whatever_the_weights(inputs: Inputs, size: float) -> None:
    """Finite, in order, possible, and no further from the baseline than it may go."""
    forecast = wild(size=size).predict(inputs)
    assert np.isfinite(forecast).all()
    assert (np.diff(forecast, axis=-1) >= 0).all()
    for m, (low, high) in enumerate(SPEC.limits):
        assert (forecast[:, :, m] >= low).all()
        assert (forecast[:, :, m] <= high).all()
    width = inputs.baseline[..., 2] - inputs.baseline[..., 0]
    assert (np.abs(forecast[..., 1] - inputs.baseline[..., 1]) <= 3.001 * width + 1e-3).all()


def test_its_weights_fit_another_schema(inputs: Inputs) -> None:
    """Fewer targets, other horizons, channels in another order: what is asked of both is answered alike."""
    picked = [5, 1, 0, 2, 3, 4]
    other = replace(
        SPEC, channels=tuple(SPEC.channels[i] for i in picked), targets=("rh_pct", "air_temp_c", "vpd_kpa"),
        horizons_min=(15, 60, 360, 1440),
    )  # fmt: skip
    network, there = wild(), PretrainedNetwork(other).eval()
    there.load_arrays(network.arrays())
    moved = inputs_of(other, rows(3)[..., picked])
    order = [SPEC.targets.index(name) for name in other.targets]
    np.testing.assert_allclose(there.predict(moved), network.predict(inputs)[:, :, order], rtol=1e-3, atol=1e-3)
    few = replace(SPEC, targets=("air_temp_c",), horizons_min=(30, 90, 2880))
    alone = PretrainedNetwork(few).eval()
    alone.load_arrays(network.arrays())
    assert np.isfinite(alone.predict(inputs_of(few, rows(5)))).all()


def test_a_target_that_no_house_of_the_fleet_has_is_left_as_it_is() -> None:
    """Its baseline is the answer."""
    spec = replace(SPEC, targets=("air_temp_c", "out_temp_c"))
    inputs = inputs_of(spec, rows(3))
    forecast = wild(spec).predict(inputs)
    np.testing.assert_allclose(forecast[:, :, 1], inputs.baseline[:, :, 1], rtol=1e-5, atol=1e-5)
    assert not np.allclose(forecast[:, :, 0], inputs.baseline[:, :, 0], atol=0.1)


def test_a_place_that_is_unknown_and_rows_that_are_missing_are_answered(inputs: Inputs) -> None:
    """Without sun, and with no row but one, there is a forecast as long as the baseline has one."""
    dark = inputs_of(SPEC, rows(3), Place())
    assert np.isfinite(wild().predict(dark)).all()
    parts = {name: getattr(inputs, name).copy() for name in Inputs.__slots__}
    parts["window"][:, :-1], parts["yesterday"][:] = np.nan, np.nan
    parts["now"][0], parts["window"][0] = np.nan, np.nan
    parts["baseline"][1, 2, 0, 1] = np.nan
    forecast = wild().predict(Inputs(**parts))
    assert np.isnan(forecast[1, 2, 0]).all()
    assert np.isfinite(np.delete(forecast, 1, axis=0)).all()


def test_nothing_foreseen_is_no_plans(inputs: Inputs) -> None:
    """Plans that say nothing are as none; those that say something change the forecast."""
    shape = (*inputs.baseline.shape[:2], 3 * len(PLANNED))
    parts = {name: getattr(inputs, name) for name in Inputs.__slots__}
    silent = Inputs(**parts | {"future": np.full(shape, np.nan, np.float32)})
    told = Inputs(**parts | {"future": np.ones(shape, np.float32)})
    network = wild()
    np.testing.assert_array_equal(network.predict(silent), network.predict(inputs))
    assert not np.allclose(network.predict(told), network.predict(inputs), atol=0.1)


def test_sources_fall_silent_in_training_only(inputs: Inputs) -> None:
    """The same input is answered otherwise each time while it trains; gradients stay finite."""
    network, arguments = wild(), to_tensors(inputs)
    network.train()
    assert not torch.equal(network(*arguments), network(*arguments))
    network(*arguments).nansum().backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    network.eval()
    assert torch.equal(network(*arguments), network(*arguments))


def test_every_number_has_a_source(inputs: Inputs) -> None:
    """Of each channel alone: where it is lost, what falls silent is what is said to come from it."""
    features = HouseFeatures(SPEC)
    whole = features(*inputs.arrays())
    for channel in ("out_temp_c", "lamp_pct", "co2_ppm"):
        values = rows(3)
        values[..., SPEC.channels.index(channel)] = np.nan
        lost = features(*inputs_of(SPEC, values).arrays())
        for before, after, groups in zip(whole, lost, (features.groups, features.ahead_groups), strict=True):
            known = [np.isfinite(x).reshape(-1, x.shape[-1]).any(axis=0) for x in (before, after)]
            gone = known[0] & ~known[1]
            mine = groups == features.sources.index(channel)
            assert not (gone & ~mine).any()
            assert gone.any()
    assert whole[0].shape[1] == features.width == len(features.groups)
    assert whole[1].shape[2] == features.ahead_width == len(features.ahead_groups)


def test_what_it_looks_at_is_what_the_rows_say() -> None:
    """On a course that rises by 1 degree an hour: differences from an hour, half a day and a day ago."""
    values = rows(2, zones=2, missing=0)
    hours = np.arange(values.shape[1]) * SPEC.step_ms / 3_600_000
    values[..., 0] = hours
    inputs = inputs_of(SPEC, values)
    origin, ahead = HouseFeatures(SPEC)(*inputs.arrays())
    width = len(TARGETS)
    lags = origin[:, : 10 * width : width]  # air temperature
    shown = [1, 2, 3, 4, 5, 6]  # 15 and 30 min, and 1, 2, 3 and 6 h
    np.testing.assert_allclose(lags[-1, shown], [0.25, 0.5, 1, 2, 3, 6], atol=0.2)
    assert (lags[:, [7, 9]] == 8).all()  # 12 h and the day's mean: cut
    then = ahead[-1, :, 0]  # the same time of the day before, off now
    np.testing.assert_allclose(then, [-8, -8, -8, 0], atol=0.2)


def test_units_are_told_of_every_control_and_horizon() -> None:
    """What lies between two horizons lies between their usual errors, and theirs are the table's."""
    errors = usual_errors(replace(SPEC, horizons_min=(*HORIZONS_MIN[:4], 45)))
    assert errors.shape == (5, len(TARGETS))
    assert (errors[4] > errors[3]).all()
    np.testing.assert_allclose(errors[0], [0.15, 0.55, 3.12, 0.0195], rtol=1e-3)
    assert all(unit > 0 for unit in CONTROLS.values())
