"""Trees: the plain arrays answer as the library does, history is bounded, equal examples give equal trees."""

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from models.online.basis import Example
from models.spec import ForecastSpec, Place
from models.trees import tree_grower
from models.trees.example_set import ExampleSet
from models.trees.family import TreesFamily
from models.trees.forest import Forest
from models.trees.tree_grower import (
    HISTORY_DAYS,
    OPTIONS,
    GrowerError,
    TreeGrower,
    _fit,
    _forest,
    least_days,
    load_library,
)
from tests.models.worlds import SPEC

H, M = len(SPEC.horizons_min), len(SPEC.targets)


def example(step, seed=None):
    """Three zones; the truth at a horizon follows from a regressor at its origin."""
    rng = np.random.default_rng(step if seed is None else seed)
    common = rng.normal(size=(3, 4)).astype(np.float32)
    common[rng.random(common.shape) < 0.1] = np.nan
    ahead = rng.normal(size=(3, H, 2)).astype(np.float32)
    y = rng.normal(size=(3, M)).astype(np.float32)
    return Example(step, np.arange(3), common, ahead, np.zeros((3, H, M), np.float32), y)


def made_up(rows=3000, missing=0.1):
    """Regressors, of which only the last is never missing, and a residual that follows from them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    x[:, 4] = np.round(x[:, 4])  # few values, so that many lie on a threshold
    x[:, :5][rng.random((rows, 5)) < missing] = np.nan
    return x, np.nan_to_num(x[:, 0]) * np.where(x[:, 1] > 0, 1, -1) + x[:, 5] + rng.normal(0, 0.1, rows)


def answers(fitted, x):
    """What the arrays say for the first of two horizons."""
    ahead = np.repeat(x[:, None, 4:], 2, axis=1)
    answer = _forest(2, 1, [[fitted], [None]]).predict(x[:, :4], ahead)
    assert (answer[:, 1] == 0).all(), "a cell without trees says 0"
    return answer[:, 0, 0]


def test_the_arrays_answer_as_the_library_does():
    """Every answer is that of LightGBM's own prediction: of missing values, and on and beside each threshold, too."""
    x, wanted = made_up()
    fitted = _fit(x, wanted)
    assert fitted is not None
    tests = fitted.trees_to_dataframe().dropna(subset="threshold").drop_duplicates(["split_feature", "threshold"])
    tests = tests[tests["threshold"].abs() > 1e-30]  # nearer than this to 0 is 0 for LightGBM
    cuts = tests["threshold"].clip(upper=float(np.finfo(np.float32).max)).to_numpy(np.float32)
    columns = tests["split_feature"].str.removeprefix("Column_").to_numpy(int)
    beside = [np.nextafter(cuts, np.float32(-np.inf)), cuts, np.nextafter(cuts, np.float32(3e38))]
    probes = np.tile(x[: len(cuts)], (3, 1))
    probes[np.arange(len(probes)), np.tile(columns, 3)] = np.concatenate(beside)
    asked = np.concatenate([x, probes])
    assert len(cuts) > 100
    assert np.allclose(answers(fitted, asked), fitted.predict(asked), atol=1e-5)


def test_what_was_never_missing_goes_with_most_rows():
    """A value that is missing for the first time is not taken for 0, as LightGBM itself would."""
    x = np.repeat([[-30.0], [-10.0]], (900, 300), axis=0).astype(np.float32)
    fitted = _fit(x, (x[:, 0] > -20).astype(np.float32))
    assert fitted is not None
    x = np.array([[-30.0], [-10.0], [np.nan]], np.float32)
    most, few, missing = _forest(1, 1, [[fitted]]).predict(x, np.empty((3, 1, 0), np.float32))[:, 0, 0]
    assert np.allclose([most, few, few], fitted.predict(x), atol=1e-5)
    assert missing == most != few


def test_nothing_to_learn_gives_trees_that_say_so():
    """A residual that is the same everywhere is answered everywhere, though LightGBM ends before the last tree."""
    x, _ = made_up()
    assert np.allclose(answers(_fit(x, np.full(len(x), 0.5)), x), 0.5)


@pytest.mark.parametrize("option", [{"num_threads": 3}, {"force_row_wise": False, "force_col_wise": True}, {}])
def test_trees_do_not_depend_on_threads(monkeypatch, option):
    """The same examples give the same arrays, bit for bit: again, with other threads, and in another layout."""
    x, wanted = made_up()
    one = _forest(1, 1, [[_fit(x, wanted)]]).state_dict()
    for name, value in option.items():
        monkeypatch.setitem(OPTIONS, name, value)
    other = _forest(1, 1, [[_fit(x, wanted)]]).state_dict()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_trees_of_scikit_learn_answer_as_they_did():
    """Trees that an older release grew, with scikit-learn, still load and give the same answers, bit for bit."""
    kept = load_file(Path(__file__).parents[2] / "data" / "forest_of_scikit_learn.safetensors")
    grown = {name.removeprefix("forest."): array for name, array in kept.items() if name.startswith("forest.")}
    answer = Forest(2, 2, grown).predict(kept["common"], kept["ahead"])
    assert np.isnan(kept["common"]).any()
    assert (answer[:, 0, 0] != 0).all()
    assert answer.tobytes() == kept["answer"].tobytes()


class NoOpenMP(MetaPathFinder):
    """LightGBM cannot be imported, so many times."""

    def __init__(self, times):
        self.times = times

    def find_spec(self, name, path, target=None):
        if name == "lightgbm" and self.times:
            self.times -= 1
            raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")


@pytest.mark.parametrize("times", [1, 2])
def test_a_system_without_openmp_is_told(monkeypatch, times):
    """Where LightGBM finds no OpenMP it takes torch's; where that does not help, one sentence says it."""
    load_library()
    lightgbm = sys.modules["lightgbm"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightgbm"]:
        monkeypatch.delitem(sys.modules, name)
    finder = NoOpenMP(times)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    if times == 1:
        assert load_library().__version__ == lightgbm.__version__
    else:
        with pytest.raises(GrowerError, match=r"cannot be loaded: libgomp\.so\.1") as told:
            load_library()
        assert "apt-get install libgomp1" in told.value.hint
    assert finder.times == 0


def test_a_system_without_openmp_and_torch_is_told(monkeypatch):
    """Where there is no torch to bring OpenMP, the sentence is the same."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightgbm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoOpenMP(2), *sys.meta_path])
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(GrowerError, match=r"cannot be loaded: libgomp\.so\.1") as told:
        load_library()
    assert "apt-get install libgomp1" in told.value.hint


def test_an_empty_forest_answers_nothing():
    """Before the first trees there is no answer, which the mixture understands."""
    assert np.isnan(Forest(H, M).predict(np.zeros((2, 4), np.float32), np.zeros((2, H, 2), np.float32))).all()


def test_history_is_bounded_and_growing_is_repeatable():
    """Examples older than four weeks go, and the same ones give the same trees."""
    one, other = TreeGrower(SPEC), TreeGrower(SPEC)
    for step in range(0, (HISTORY_DAYS + 5) * SPEC.steps_per_day):
        for grower in (one, other):
            grower.add(example(step))
    assert len(one._examples) <= HISTORY_DAYS * 96 + 1
    first, second = one.grow(np.ones((H, M))), other.grow(np.ones((H, M)))
    assert first is not None
    assert second is not None
    a, b = first.state_dict(), second.state_dict()
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_too_little_history_gives_no_trees():
    """A day is not enough."""
    grower = TreeGrower(SPEC)
    assert grower.grow(np.ones((H, M))) is None
    for step in range(SPEC.steps_per_day):
        grower.add(example(step))
    assert grower.grow(np.ones((H, M))) is None


@pytest.mark.parametrize("step_s", [120, 600, 900])
def test_trees_are_trained_on_rows_of_any_length(monkeypatch, step_s):
    """Also where a quarter of an hour is no whole number of rows."""
    monkeypatch.setattr(tree_grower, "LEAST_DAYS", 0)
    monkeypatch.setattr(tree_grower, "MIN_EXAMPLES", 1)
    spec = ForecastSpec(("air_temp_c",), ("air_temp_c",), (30,), step_s * 1000, 86_400 // step_s)
    ends = (1 + np.arange(50)) * spec.step_ms
    air = 20 + np.sin(np.arange(50, dtype=np.float32))[:, None]
    cases = ExampleSet.from_columns(["s/z"] * len(ends), ends, air, {"s/z": Place()}, spec)
    origins = cases.origins()
    trees = TreesFamily().fit(cases, origins, {}, cut_ms=int(ends[-1]))
    assert len(origins)
    assert np.isfinite(trees.answer(cases.inputs(origins))).all()


def test_a_sensor_that_reports_between_quarters_of_an_hour_gives_examples():
    """Their truth is the newest of each quarter, and the climatology's forecasts are those of service, also where
    sensors are missing for longer than it holds a value.
    """
    spec = ForecastSpec(("air_temp_c",), ("air_temp_c",), (30,), 300_000, 288)
    ends = (1 + np.arange(2 * 288)) * spec.step_ms
    air = (20 + 5 * np.sin(np.arange(len(ends)) / 50)).astype(np.float32)[:, None]
    air[np.arange(len(ends)) % 3 != 0] = np.nan  # rows end 5, 20, 35 and 50 minutes past the hour
    air[200:230] = np.nan
    cases = ExampleSet.from_columns(["s/z"] * len(ends), ends, air, {"s/z": Place()}, spec)
    origins = cases.origins()
    assert len(origins) > 150
    np.testing.assert_array_equal(cases.truth(origins[:9])[:, 0, 0], air[origins[:9] + 6 - 2, 0])
    np.testing.assert_array_equal(cases.inputs(origins).base, cases.baseline[0, origins, :, :, 1])


def test_a_forest_of_another_shape_is_refused():
    """A state that does not fit is named."""
    fitted = _fit(np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32), np.arange(600.0))
    state = _forest(1, 1, [[fitted]]).state_dict()
    with pytest.raises(ValueError, match="wanted"):
        Forest(2, 1).load_state_dict(state)


@pytest.mark.parametrize("name", ["value", "start"])
def test_trees_whose_leaves_are_infinite_are_refused(name):
    """They may be made elsewhere: an operator can promote them before a comparison finds that they give no number."""
    spec = ForecastSpec(("air_temp_c",), ("air_temp_c",), (30,))
    fitted = _fit(np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32), np.arange(600.0))
    arrays = _forest(1, 1, [[fitted]]).state_dict()
    assert TreesFamily().load(spec, {"regressors": 3}, arrays).regressors == 3
    arrays[name].flat[0] = np.inf
    with pytest.raises(ValueError, match="leaves are not finite"):
        TreesFamily().load(spec, {"regressors": 3}, arrays)


def test_the_least_days_are_those_that_a_tree_needs():
    """With an hour less there is none."""
    steps = round(least_days(SPEC, 3) * SPEC.steps_per_day)
    hour = SPEC.steps_per_day // 24
    found = []
    for rows in (steps - hour, steps + SPEC.example_steps):
        grower = TreeGrower(SPEC)
        for step in range(rows):
            grower.add(example(step))
        found.append(grower.grow(np.ones((H, M))))
    assert [forest is not None for forest in found] == [False, True]
