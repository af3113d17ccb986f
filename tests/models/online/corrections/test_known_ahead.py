"""What plans move a forecast by: much where they say something, nothing where they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from models.features.plan_regressors import width
from models.features.plans import PLANNED, Plan, Plans
from models.online.basis import EXPERTS
from models.online.corrections.known_ahead import KnownAhead
from models.online.online_forecaster import OnlineForecaster
from tests.models.online.online_worlds import flat, rows, same
from tests.models.worlds import CHANNELS
from tests.models.worlds import SPEC as QUARTERS

# By the hour, so that weeks pass quickly.
SPEC = replace(QUARTERS, step_ms=3_600_000, horizons_min=(60, 360, 1440), lookback_steps=24)
DAY, STEP_MS, DAYS = SPEC.steps_per_day, SPEC.step_ms, 20
STEPS = np.array((0, *SPEC.horizon_steps))
OUTSIDE = CHANNELS.index("out_temp_c")
Said = Callable[[int, np.ndarray], np.ndarray | None]


def weather_plans(values: np.ndarray, said: Said = lambda issued, ahead: ahead) -> list[Plan]:
    """A forecast of two days every six hours, hour by hour: what came, as ``said`` alters it; none for ``None``."""
    outside, plans = values[0, :, OUTSIDE].astype(np.float64), []
    for hour in range(0, len(outside), 6):
        ahead = said(hour, outside[hour : hour + 48])
        if ahead is not None:
            times = (hour + np.arange(len(ahead))) * STEP_MS
            plans.append(Plan("service", "weather", hour * 3_600_000, {"out_temp_c": (times, ahead)}))
    return plans


def forecaster(zones: int) -> OnlineForecaster:
    """A forecaster of new zones."""
    made = OnlineForecaster(SPEC, 1)
    made.add_zones(zones)
    return made


def sun(step: int, zones: int) -> np.ndarray:
    """Sines of the sun's elevation now and at each horizon."""
    height = np.sin((step + STEPS) * 2 * np.pi / DAY - np.pi / 2)
    return np.broadcast_to(height.astype(np.float32), (zones, len(STEPS)))


def run(made: OnlineForecaster, values: np.ndarray, stop: int | None = None) -> np.ndarray:
    """Learn and forecast each step without plans: ``[Z, T, H, M, Q]``."""
    return run_with(made, values, [], stop=stop, planless=tuple(range(len(values))))


def run_with(
    made: OnlineForecaster, values: np.ndarray, plans: list[Plan], start: int = 0, stop: int | None = None,
    planless: tuple[int, ...] = (), apart: bool = False,
) -> np.ndarray:  # fmt: skip
    """The same with plans; zones of ``planless`` are of another site, which was never given any. With ``apart`` each of
    the others is of a site of its own.
    """
    known, zones = Plans(), np.arange(len(values))
    for plan in plans:
        known.add(plan)
    planned = np.setdiff1d(zones, planless)
    sites = [*(planned[:, None] if apart else [planned]), np.array(planless, np.int64)]
    parts = [part for part in sites if len(part)]
    out = []
    for step in range(start, values.shape[1] if stop is None else stop):
        found = np.empty((len(values), len(SPEC.horizons_min), len(SPEC.targets), 3), np.float32)
        for part in parts:
            ahead = None if part[0] in planless else known.ahead(step * STEP_MS, [str(z) for z in part], SPEC)
            learned = made.learn(part, step, values[part, step], np.full(len(part), step % DAY), sun(step, len(part)),
                                 ahead)  # fmt: skip
            found[part] = made.predict(learned)
        out.append(found)
    return np.stack(out, axis=1)


def error(out: np.ndarray, values: np.ndarray, zone: slice = slice(None), first: int = 10) -> np.ndarray:
    """Mean error of the air's median from day ``first`` on, by horizon."""
    t = np.arange(first * DAY, (DAYS - 1) * DAY)
    return np.array([
        np.nanmean(np.abs(out[zone, t, h, 0, 1] - values[zone, t + steps, 0]))
        for h, steps in enumerate(SPEC.horizon_steps)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def world() -> np.ndarray:
    """Three zones under one weather, which the air inside follows."""
    return rows(DAYS, zones=3, missing=0.0, seed=4)[:, :: 3_600_000 // QUARTERS.step_ms]


@pytest.fixture(scope="module")
def without(world: np.ndarray) -> np.ndarray:
    """What is forecast there without plans."""
    return run(forecaster(3), world)


@pytest.mark.thorough
def test_a_weather_forecast_makes_forecasts_better(world: np.ndarray, without: np.ndarray) -> None:
    """Six hours and a day ahead by a third; and their intervals are as much narrower, and hold four fifths.

    They may hold a few more: errors still shrink in these ten days, and widths follow them.
    """
    out = run_with(forecaster(3), world, weather_plans(world))
    ratio = error(out, world) / error(without, world)
    assert (ratio < [1, 0.67, 0.67]).all()
    t = np.arange(10 * DAY, (DAYS - 1) * DAY)
    for h, steps in enumerate(SPEC.horizon_steps):
        truth = world[:, t + steps, 0]
        assert 0.75 < ((truth >= out[:, t, h, 0, 0]) & (truth <= out[:, t, h, 0, 2])).mean() < 0.92
    width = [(q[:, t, 1, 0, 2] - q[:, t, 1, 0, 0]).mean() for q in (out, without)]
    assert width[0] < 0.8 * width[1]


@pytest.fixture(scope="module")
def blind(world: np.ndarray) -> np.ndarray:
    """The same zones without a weather station."""
    rows_of_it = world.copy()
    rows_of_it[..., OUTSIDE] = np.nan
    return rows_of_it


@pytest.mark.thorough
def test_it_makes_them_better_without_a_weather_station_too(world: np.ndarray, blind: np.ndarray) -> None:
    """What the forecast says of now stands for what nobody measures; without sense it costs as little."""
    unplanned = error(run(forecaster(3), blind), world)
    ratio = error(run_with(forecaster(3), blind, weather_plans(world)), world) / unplanned
    assert (ratio < [1, 0.67, 0.67]).all()
    for name in ("enormous", "of another place", "shuffled"):
        out = run_with(forecaster(3), blind, MADE[name](world))
        assert np.isfinite(out).all()
        assert (error(out, world) / unplanned < [1.01, 1.01, 1.02]).all(), name


def another(values: np.ndarray) -> np.ndarray:
    """As many hours of another place's weather."""
    return rows(DAYS, zones=1, missing=0.0, seed=77)[:, : values.shape[1]]


def shuffled(plans: list[Plan]) -> list[Plan]:
    """Each says what another of them said, as far ahead."""
    whole = [plan for plan in plans if len(plan.series["out_temp_c"][0]) == 48]
    said = [whole[k].series["out_temp_c"][1] for k in np.random.default_rng(0).permutation(len(whole))]
    return [
        replace(plan, series={"out_temp_c": (plan.series["out_temp_c"][0], value)})
        for plan, value in zip(whole, said, strict=True)
    ]


NONSENSE: dict[str, Said] = {
    "of another day": lambda issued, ahead: np.roll(ahead, 24) + np.random.default_rng(issued).normal(0, 3),
    "noise": lambda issued, ahead: np.random.default_rng(issued).normal(5, 8, len(ahead)),
    "as the year's mean": lambda issued, ahead: np.full(len(ahead), 9.0),
    "upside down": lambda issued, ahead: 20 - ahead,
    "enormous": lambda issued, ahead: ahead * 0 + 1e30,
}
MADE: dict[str, Callable[[np.ndarray], list[Plan]]] = {
    "of the day before": lambda values: [
        replace(p, series={"out_temp_c": (p.series["out_temp_c"][0] + 24 * STEP_MS, p.series["out_temp_c"][1])})
        for p in weather_plans(values)
    ],
    "shuffled": lambda values: shuffled(weather_plans(values)),
    "of another place": lambda values: weather_plans(another(values)),
} | {name: (lambda values, said=said: weather_plans(values, said)) for name, said in NONSENSE.items()}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
@pytest.mark.thorough
def test_plans_without_sense_cost_nearly_nothing(
    made: Callable[[np.ndarray], list[Plan]], world: np.ndarray, without: np.ndarray
) -> None:
    """Where nothing can be learned of them forecasts are as good as without, to one in a hundred up to six hours.

    A day ahead it may be one more: ten days of one weather are too few to tell what is chance.
    """
    out = run_with(forecaster(3), world, made(world))
    assert np.isfinite(out).all()
    assert (error(out, world) / error(without, world) < [1.01, 1.01, 1.02]).all()


@pytest.mark.thorough
def test_plans_that_come_late_cost_nothing(world: np.ndarray, without: np.ndarray) -> None:
    """Half a day after they were issued they still help, and nothing is forecast worse."""
    late = [replace(plan, known_ms=plan.issued_ms + 12 * STEP_MS) for plan in weather_plans(world)]
    ratio = error(run_with(forecaster(3), world, late), world) / error(without, world)
    assert (ratio < [1, 0.8, 0.8]).all()


@pytest.mark.thorough
def test_a_service_that_dies_costs_nothing(world: np.ndarray, without: np.ndarray) -> None:
    """Three days after its last plan forecasts are those of a forecaster that never had one, intervals and all."""
    dies = 8 * 24

    def until(issued: int, ahead: np.ndarray) -> np.ndarray | None:
        return ahead if issued < dies else None

    out = run_with(forecaster(3), world, weather_plans(world, until))
    after = slice((8 + 3) * DAY, None)
    np.testing.assert_array_equal(out[:, after], without[:, after])
    assert (out[:, 7 * DAY : 8 * DAY, 1:, 0, 1] != without[:, 7 * DAY : 8 * DAY, 1:, 0, 1]).any()


def test_before_the_first_plan_nothing_is_kept_of_it(world: np.ndarray) -> None:
    """A site whose plans have not come has the forecasts and the state of one that never had any, bit for bit."""
    made, other = forecaster(3), forecaster(3)
    stop = 2 * DAY
    np.testing.assert_array_equal(run_with(made, world, [], stop=stop), run(other, world, stop=stop))
    assert same(made.state_dict(), other.state_dict())
    assert "known" not in made.state_dict()


@pytest.mark.thorough
def test_a_zone_without_plans_is_forecast_as_before(world: np.ndarray) -> None:
    """Beside zones with plans, bit for bit, median and interval."""
    stop = 6 * DAY
    out = run_with(forecaster(3), world, weather_plans(world), planless=(2,), stop=stop)
    alone = run_with(forecaster(3), world, [], planless=(2,), stop=stop)
    np.testing.assert_array_equal(out[2], alone[2])
    assert (out[:2] != alone[:2]).any()


@pytest.mark.thorough
def test_one_zone_whose_plans_are_wrong_follows_them_less(
    world: np.ndarray, without: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours' are right, and help them; it loses a tenth, and more where its own share is not learned."""
    right = weather_plans(world)
    wrong = [replace(plan, zone="2") for plan in weather_plans(another(world))]

    def ratios() -> list[np.ndarray]:
        out = run_with(forecaster(3), world, right + wrong)
        return [error(out, world, zone) / error(without, world, zone) for zone in (slice(0, 2), slice(2, 3))]

    neighbours, alone = ratios()
    assert neighbours[1] < 0.8
    assert alone.max() < 1.13
    monkeypatch.setattr(KnownAhead, "_share_of", lambda self, zones: np.float32(1))
    assert (ratios()[1][1:] > alone[1:] + 0.03).all()


@pytest.mark.thorough
@pytest.mark.parametrize("becomes", [lambda ahead: ahead * 1.8 + 32, lambda ahead: ahead * 0 + 20], ids=["°F", "20"])
def test_a_zones_plan_that_becomes_nonsense_is_no_longer_followed(
    world: np.ndarray, without: np.ndarray, becomes: Callable[[np.ndarray], np.ndarray]
) -> None:
    """After a week in which it helped; what it was worth before would be followed for weeks, at a third of the error
    more. That of the site helps its neighbours on.
    """
    bad = 7

    def said(issued: int, ahead: np.ndarray) -> np.ndarray:
        return ahead if issued < bad * DAY else becomes(ahead)

    own = [replace(plan, zone="2") for plan in weather_plans(world, said)]
    out = run_with(forecaster(3), world, weather_plans(world) + own)
    alone, before = slice(2, 3), slice(0, 2)
    ratio = error(out, world, alone, first=bad) / error(without, world, alone, first=bad)
    assert (ratio < [1.02, 1.08, 1.06]).all()
    assert (error(out, world, before) / error(without, world, before))[1] < 0.8


def test_forecasts_that_are_told_again_teach_the_same(world: np.ndarray) -> None:
    """Whoever reads its log again tells what was issued, with the network's answers: the state is that of before."""
    known, zones = Plans(), np.arange(3)
    for plan in weather_plans(world):
        known.add(plan)
    made, again = forecaster(3), forecaster(3)
    rng = np.random.default_rng(1)
    for step in range(4 * DAY):
        ahead = known.ahead(step * STEP_MS, ["0", "1", "2"], SPEC)
        network = (world[:, step, None, :1] + rng.normal(0, 1, (3, 3, 3))).astype(np.float32)
        network[:, :, step % 3] = np.nan
        row = (zones, step, world[:, step], np.full(3, step % DAY), sun(step, 3), ahead)
        issued = made.predict(made.learn(*row), network)
        again.learn(*row)
        again.remember(zones, step, issued[..., 1], network)
    assert same(made.state_dict(), again.state_dict())
    assert made.corrections.known is not None
    assert np.abs(flat(made.state_dict())["known.zones.moves"]).max() > 0


def test_a_state_goes_on_bit_for_bit(world: np.ndarray) -> None:
    """Saved in the middle, also with a zone that comes later, everything goes on the same."""
    plans, half = weather_plans(world), 5 * DAY + 5
    made = forecaster(3)
    run_with(made, world, plans, stop=half)
    again = OnlineForecaster(SPEC, 1)
    again.load_state_dict(made.state_dict())
    assert same(made.state_dict(), again.state_dict())
    one = run_with(made, world, plans, half, half + DAY)
    np.testing.assert_array_equal(run_with(again, world, plans, half, half + DAY), one)
    assert same(made.state_dict(), again.state_dict())
    made.prepare(9)
    assert same(made.state_dict(), again.state_dict())
    made.add_zones()
    assert len(made.corrections.known) == len(made) == 4


def test_a_state_of_before_there_were_plans_is_taken_over(world: np.ndarray) -> None:
    """It has no such part; plans that come then are learned from."""
    old = forecaster(3)
    run(old, world, stop=2 * DAY)
    made = forecaster(3)
    run_with(made, world, weather_plans(world), stop=DAY)
    made.load_state_dict(old.state_dict())
    assert made.corrections.known is None
    run_with(made, world, weather_plans(world), 2 * DAY, 4 * DAY)
    assert np.abs(flat(made.state_dict())["known.pooled.product"]).max() > 0


def test_a_state_that_does_not_fit_is_refused(world: np.ndarray) -> None:
    """In a sentence, as of any other part."""
    made = forecaster(3)
    run_with(made, world, weather_plans(world), stop=DAY)
    state = made.state_dict()
    state["known"]["zones"] = {"stamp": state["known"]["zones"]["stamp"]}
    with pytest.raises(ValueError, match="lacks or adds"):
        forecaster(3).load_state_dict(state)


def test_what_plans_move_travels_with_the_experts(world: np.ndarray) -> None:
    """One column more than experts, nothing where nothing is foreseen; weights are those of experts, and sum to one."""
    made = forecaster(3)
    plans = Plans()
    for plan in weather_plans(world):
        plans.add(plan)
    for step in range(3 * DAY):
        ahead = plans.ahead(step * STEP_MS, ["0", "1", "2"], SPEC).copy()
        ahead[1] = np.nan
        learned = made.learn(np.arange(3), step, world[:, step], np.full(3, step % DAY), sun(step, 3), ahead)
    assert learned.experts.shape[-1] == len(EXPERTS) + 1
    assert (learned.experts[1, ..., -1] == 0).all()
    assert np.abs(learned.experts[0, ..., -1]).max() > 0
    weights = made.weights(learned)
    assert weights.shape[-1] == len(EXPERTS)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert width() == 1 + 9 * len(PLANNED)


@pytest.mark.thorough
@pytest.mark.parametrize("others", [0, 8], ids=["all have plans", "most have none"])
def test_what_plans_are_worth_is_forgotten_as_slowly_where_each_site_is_a_call(world: np.ndarray, others: int) -> None:
    """Two zones with the same rows and plans, of one site or of two; zones without plans do not count."""
    values = np.repeat(world[:1], 2 + others, axis=0)

    def learned(apart: bool) -> list[np.ndarray]:
        made = forecaster(2 + others)
        run_with(made, values, weather_plans(values), planless=tuple(range(2, 2 + others)), apart=apart)
        known = made.state_dict()["known"]
        return [known["moved"], known["agreed"], known["intervals"]["pooled"]]

    for together, apart in zip(learned(False), learned(True), strict=True):
        np.testing.assert_allclose(apart, together, rtol=0.1, atol=0.05)
