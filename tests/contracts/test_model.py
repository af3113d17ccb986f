"""What every online model of zones must keep: purity, bounded memory, batch equals stream, independence of clones."""

import numpy as np
import pytest

from tests.models.online.online_worlds import DAY, SPEC, flat, forecaster, rows, run, same, sun


def finite_after(values, out):
    """Whether every forecast is finite once its target was seen, for targets that are channels."""
    seen = np.isfinite(values[:, :, :2]).cumsum(axis=1) > 0
    return np.isfinite(out[..., :2, :]).all(axis=(2, 4))[seen].all()


@pytest.mark.thorough
def test_purity():
    """Learning alters nothing that it was given, and the same rows give the same bytes."""
    values = rows(3)
    before = values.copy()
    first, second = run(forecaster(2), values), run(forecaster(2), values)
    assert np.array_equal(values, before, equal_nan=True)
    assert first.tobytes() == second.tobytes()


@pytest.mark.thorough
def test_asking_again_gives_the_same_answer():
    """A forecast does not depend on how often it was asked for, nor does anything after it."""
    values = rows(3)
    once, often = forecaster(2), forecaster(2)
    zones = np.arange(2)
    for step in range(values.shape[1]):
        one, other = (
            made.learn(zones, step, values[:, step], np.full(2, step % DAY), sun(step, 2)) for made in (once, often)
        )
        answers = [often.predict(other) for _ in range(3)]
        assert all(np.array_equal(once.predict(one), answer, equal_nan=True) for answer in answers)
    assert same(once.state_dict(), often.state_dict())


@pytest.mark.thorough
def test_a_forecast_may_come_late():
    """A network that answers some steps later is learned from as if it had answered at once."""
    values = rows(4, missing=0)
    zones, lag = np.arange(2), 7
    prompt, late = forecaster(2), forecaster(2)
    waiting = []
    for step in range(values.shape[1]):
        for made in (prompt, late):
            learned = made.learn(zones, step, values[:, step], np.full(2, step % DAY), sun(step, 2))
            if made is prompt:
                made.predict(learned, learned.baseline + 1)
            else:
                waiting.append(learned)
        if len(waiting) > lag:
            oldest = waiting.pop(0)
            late.predict(oldest, oldest.baseline + 1)
    short, day = 0, len(SPEC.horizon_steps) - 1
    assert SPEC.horizon_steps[short] < lag < SPEC.horizon_steps[day]
    assert np.allclose(prompt.mixture.weights[day], late.mixture.weights[day], atol=0.05)
    assert late.mixture.weights[short, :, -1].max() <= prompt.mixture.weights[short, :, -1].max() + 0.05


@pytest.mark.thorough
def test_no_forecast_uses_what_came_after_it():
    """Altering every row after an origin leaves the bytes of all forecasts up to it, whatever matured later."""
    values = rows(5)
    at = 3 * DAY + 17
    altered = values.copy()
    altered[:, at + 1 :] = np.nan_to_num(altered[:, at + 1 :]) * 2 - 40
    before, after = run(forecaster(2), values), run(forecaster(2), altered)
    assert before[:, : at + 1].tobytes() == after[:, : at + 1].tobytes()
    assert before[:, at + 1 :].tobytes() != after[:, at + 1 :].tobytes()


@pytest.mark.thorough
def test_memory_is_bounded():
    """The state is as large after four days as at the start, and a zone's does not grow with other zones."""
    fresh, old = forecaster(2), forecaster(2)
    run(old, rows(4))
    sizes = [{name: (array.shape, array.dtype) for name, array in flat(made.state_dict()).items()}
             for made in (fresh, old)]  # fmt: skip
    assert sizes[0] == sizes[1]


@pytest.mark.thorough
def test_a_stream_may_be_cut_anywhere():
    """Saving and loading between two steps changes nothing that comes after: batch equals stream."""
    values = rows(4)
    whole = run(forecaster(2), values)
    first = forecaster(2)
    cut = 2 * DAY + 5
    run(first, values, stop=cut)
    second = forecaster(0, capacity=5)
    second.load_state_dict(first.state_dict())
    assert run(second, values, start=cut).tobytes() == whole[:, cut:].tobytes()
    assert len(second) == 2


def test_clones_are_independent():
    """What a clone learns does not reach the one that it was made from."""
    values = rows(3)
    first = forecaster(2)
    run(first, values, stop=2 * DAY)
    state = first.state_dict()
    clone = forecaster(0)
    clone.load_state_dict(state)
    run(clone, values, start=2 * DAY)
    assert same(first.state_dict(), state)


def test_a_state_that_does_not_fit_is_refused():
    """A state of another schema is named, not taken over."""
    state = forecaster(1).state_dict()
    state["pooled"]["moment"] = state["pooled"]["moment"][..., 1:, 1:]
    with pytest.raises(ValueError, match="wanted"):
        forecaster(0).load_state_dict(state)


@pytest.mark.parametrize("missing", [[2], [3, 4, 5], [1]], ids=["no co2", "no weather, no lamps", "no humidity"])
@pytest.mark.thorough
def test_missing_channels(missing):
    """A channel that never comes leaves the forecasts of the others finite."""
    values = rows(4)
    values[:, :, missing] = np.nan
    out = run(forecaster(2), values)
    assert np.isfinite(out[:, DAY:, :, 0]).all()
    assert np.isfinite(out[:, DAY:, :, 1]).all() == (1 not in missing)


@pytest.mark.thorough
def test_an_all_nan_zone_harms_no_other():
    """Beside a zone that never says a number the others forecast, finite and nearly as without it."""
    values = rows(5, zones=3)
    alone = run(forecaster(2), values[:2])
    values[2] = np.nan
    together = run(forecaster(3), values)
    assert np.isnan(together[2]).all()
    assert finite_after(values[:2], together[:2])
    assert np.nanmean(np.abs(together[:2, 4 * DAY :] - alone[:, 4 * DAY :])) < 0.1


@pytest.mark.thorough
def test_a_zone_born_late_profits_from_the_others():
    """A zone that joins on day 6 forecasts from its first row, better than by persistence on its second day."""
    values = rows(9, zones=3, missing=0)
    made = forecaster(2)
    run(made, values, stop=6 * DAY, zones=[0, 1])
    made.add_zones()
    out = run(made, values, start=6 * DAY)
    assert np.isfinite(out[2]).all()
    t = np.arange(DAY, 2 * DAY)
    for h, steps in enumerate(SPEC.horizon_steps[:3]):
        truth = values[2, 6 * DAY + t + steps, 0]
        error = np.abs(out[2, t, h, 0, 1] - truth).mean()
        assert error < np.abs(values[2, 6 * DAY + t, 0] - truth).mean()


@pytest.mark.thorough
def test_a_zone_that_disappears_and_comes_back():
    """After days of silence, or of not being there at all, a zone goes on, and the others never noticed."""
    values = rows(8, zones=2, missing=0)
    left_out = forecaster(2)
    run(left_out, values, stop=4 * DAY)
    run(left_out, values, start=4 * DAY, stop=6 * DAY, zones=[0])
    out = run(left_out, values, start=6 * DAY)
    assert np.isfinite(out).all()
    silent = values.copy()
    silent[1, 4 * DAY : 6 * DAY] = np.nan
    assert np.isfinite(run(forecaster(2), silent)).all()


def infinite(state, name=""):
    """The names of arrays that hold something infinite."""
    for inner, held in state.items():
        if isinstance(held, dict):
            yield from infinite(held, f"{name}/{inner}")
        elif isinstance(held, np.ndarray) and held.dtype.kind == "f" and np.isinf(held).any():
            yield f"{name}/{inner}"


def test_quantiles_never_cross_and_stay_possible():
    """p10 <= p50 <= p90, humidity within 0 ... 100 %, for rows of any kind."""
    values = rows(4)
    values[0, 3 * DAY :] = 1e6
    values[1, 3 * DAY + 5, 0] = np.inf
    model = forecaster(2)
    out = run(model, values)
    known = np.isfinite(out).all(axis=-1)
    assert (np.diff(out, axis=-1)[known] >= 0).all()
    assert (out[..., 1, :][known[..., 1]] <= 100).all()
    assert (out[..., 1, :][known[..., 1]] >= 0).all()
    assert list(infinite(model.state_dict())) == ["/change/days"]  # no change was ever seen
