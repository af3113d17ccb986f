"""What every family of models must keep: what it answers, what it may know, and that its artefact is the model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import artefact
from models.families import FAMILIES, Model, ModelFamily, UnknownFamilyError, family_of, takes_of
from models.features.inputs import Inputs
from models.features.windows import WindowSet
from models.trees.example_set import ExampleSet, Regressors
from models.trees.tree_grower import TreeGrower
from tests.models.tiny_ridge import LINE
from tests.models.worlds import PLACE, SPEC, START_MS, rows

DAYS = 8
SETTINGS = {"epochs": 1, "hidden": 8, "mixes": 2, "max_windows": 400, "seed": 3}
KINDS = ("network", "pretrained", "trees", "ridge")


@pytest.fixture(autouse=True, scope="module")
def _third_kind() -> Any:
    """The one line."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, where in LINE.items():
            patch.setitem(FAMILIES, kind, where)
        yield


class World:
    """A family with rows to fit on, and a model that was fitted to all but the last day of them."""

    def __init__(self, kind: str, values: np.ndarray | None = None) -> None:
        self.kind, self.family = kind, family_of(kind)
        values = rows(DAYS, zones=3, seed=4) if values is None else values
        names = np.repeat(["s/a", "s/b", "s/c"], values.shape[1])
        ends = np.tile(START_MS + np.arange(values.shape[1]) * SPEC.step_ms, 3)
        kind_of = {"windows": WindowSet, "examples": ExampleSet}[takes_of(kind)]
        flat = values.reshape(-1, values.shape[2])
        self.cases: WindowSet = kind_of.from_columns(names, ends, flat, dict.fromkeys(names, PLACE), SPEC)
        self.origins = self.cases.origins(SPEC.steps_per_day)
        self.cut_ms = int(self.cases.end_ms[-1]) - 86_400_000

    def fit(self, start: Model | None = None) -> Model:
        past = self.origins[self.cases.times(self.origins) < self.cut_ms]
        return self.family.fit(self.cases, past, SETTINGS, cut_ms=self.cut_ms, start=start)


@pytest.fixture(scope="module", params=KINDS)
def world(request: pytest.FixtureRequest) -> World:
    """One family's."""
    return World(request.param)


@pytest.fixture(scope="module")
def model(world: World) -> Model:
    """Its model."""
    return world.fit()


def same(one: Model, other: Model) -> bool:
    """Whether the bytes are the same."""
    a, b = one.arrays(), other.arrays()
    return set(a) == set(b) and all(a[name].tobytes() == b[name].tobytes() for name in a)


def held_back(world: World, count: int = 40) -> Any:
    """Inputs that it was not fitted on."""
    return world.cases.inputs(world.origins[-count:])


def keep(world: World, model: Model, folder: Path) -> Path:
    """Its artefact."""
    artefact.save(
        folder / "kept", model, held_back(world, 4), trained_on={"to_ms": world.cut_ms}, seed=3, metrics={},
        kind=world.kind,
    )  # fmt: skip
    return folder / "kept"


def test_every_kind_there_is_is_here() -> None:
    """A family that is added to the system is added to this suite, unless it learns from other things than rows: what
    corrects forecasts is tested in tests/models/online/corrections/test_tuned_correction.py.
    """
    assert {kind for kind in FAMILIES if takes_of(kind) != "forecasts"} == set(KINDS)


def test_it_is_a_family(world: World) -> None:
    """Its kind takes what some place in the mixture gives, and mypy sees that it keeps the protocol."""
    family: ModelFamily = world.family
    assert takes_of(world.kind) in ("windows", "examples")
    assert family.refits in (True, False)


def test_answers_are_quantiles_within_what_is_possible(world: World, model: Model) -> None:
    """``[N, H, M, Q]`` in order; a number wherever the climatology has one, and none elsewhere."""
    inputs = held_back(world)
    answer = model.answer(inputs)
    assert answer.shape == inputs.baseline.shape
    assert answer.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(answer), np.isnan(inputs.baseline))
    known = np.isfinite(answer).all(axis=-1)
    assert (np.diff(answer, axis=-1)[known] >= 0).all()


def test_an_answer_does_not_depend_on_what_stands_beside_it(world: World, model: Model) -> None:
    """Examples one by one are answered as together, and asking changes nothing."""
    inputs = held_back(world)
    together, before = model.answer(inputs), model.arrays()
    for n in (0, 7, 39):
        np.testing.assert_allclose(model.answer(inputs.take(slice(n, n + 1)))[0], together[n], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(model.answer(inputs), together)
    assert all(np.array_equal(before[name], array) for name, array in model.arrays().items())


def test_nothing_learned_is_the_climatology(world: World) -> None:
    """A model that was only made says what the climatology says, about."""
    inputs = held_back(world)
    made = world.family.make(SPEC, SETTINGS)
    np.testing.assert_allclose(made.answer(inputs)[..., 1], inputs.baseline[..., 1], rtol=1e-5, atol=1e-4)


def test_it_learns(world: World, model: Model) -> None:
    """On rows that it was fitted on it is better than the climatology."""
    origins = world.origins[world.cases.times(world.origins) < world.cut_ms]
    truth, inputs = world.cases.truth(origins), world.cases.inputs(origins)
    errors = [np.nanmean(np.abs(said[..., 1] - truth)) for said in (model.answer(inputs), inputs.baseline)]
    assert errors[0] < errors[1]


def test_equal_rows_give_equal_bytes(world: World, model: Model) -> None:
    """A model can be fitted again, which is what a replay does."""
    assert same(model, world.fit())


@pytest.mark.thorough
def test_nothing_after_the_cut_is_known(world: World, model: Model) -> None:
    """Rows after the cut may be anything: the model comes out the same, byte for byte."""
    values = rows(DAYS, zones=3, seed=4)
    after = np.arange(values.shape[1]) * SPEC.step_ms + START_MS > world.cut_ms
    values[:, after] = values[:, after] * np.float32(1.5) - 7
    assert same(model, World(world.kind, values).fit())


def test_too_little_to_learn_from_is_a_value_error(world: World) -> None:
    """It is said, not fitted."""
    young = World(world.kind, rows(1, zones=3, seed=4))
    with pytest.raises(ValueError, match="history is too short"):
        young.family.fit(young.cases, young.origins[:0], SETTINGS, cut_ms=young.cut_ms)


def test_an_artefact_is_the_model(world: World, model: Model, tmp_path: Path) -> None:
    """What is loaded has the same bytes and the same answers, its kind in the manifest, and its golden output."""
    loaded = artefact.load(keep(world, model, tmp_path), SPEC.hash)
    loaded.verify_golden()
    assert loaded.kind == loaded.manifest["kind"] == world.kind
    assert same(loaded.model, model)
    assert loaded.model.options == model.options
    inputs = held_back(world)
    np.testing.assert_array_equal(loaded.model.answer(inputs), model.answer(inputs))


def test_an_artefact_that_answers_otherwise_is_refused(world: World, model: Model, tmp_path: Path) -> None:
    """Other weights under the same manifest are not served, whatever kind they are of."""
    loaded = artefact.load(keep(world, model, tmp_path))
    inputs, expected = loaded.golden
    other = artefact.Artefact(SPEC, world.kind, model, loaded.manifest, (inputs, expected + 5))
    with pytest.raises(artefact.ArtefactCorruptError, match="golden output is off"):
        other.verify_golden()


@pytest.mark.parametrize("name", ["weights.safetensors", "golden.safetensors", "manifest.json"])
def test_a_torn_file_is_refused(world: World, model: Model, tmp_path: Path, name: str) -> None:
    """Half a file is no model."""
    path = keep(world, model, tmp_path) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(artefact.ArtefactCorruptError):
        artefact.load(path.parent)


def test_arrays_of_another_model_are_refused(world: World, model: Model, tmp_path: Path) -> None:
    """Weights that do not fit the manifest's schema are named, not taken."""
    folder = keep(world, model, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["spec"]["horizons_min"] = manifest["spec"]["horizons_min"][:-1]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(artefact.ArtefactCorruptError, match=r"does not hold a model|schema hash does not fit"):
        artefact.load(folder)


def test_an_unknown_kind_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """An artefact of a kind that this version has not is another version's, and says which kinds there are."""
    world = World("ridge")
    folder = keep(world, world.fit(), tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text()) | {"kind": "oracle"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(artefact.ArtefactSchemaError, match="called 'oracle'; there are network, pretrained, trees"):
        artefact.load(folder)
    with pytest.raises(UnknownFamilyError):
        family_of("oracle")


@pytest.mark.thorough
def test_trees_are_those_that_a_grower_grows() -> None:
    """The family adds nothing of its own: examples up to the cut, in order, in units of the error known then."""
    world = World("trees")
    assert isinstance(world.cases, ExampleSet)
    grower = TreeGrower(SPEC)
    for example in world.cases.examples:
        if example.step * SPEC.step_ms <= world.cut_ms:
            grower.add(example)
    forest = grower.grow(world.cases.unit(world.cut_ms))
    assert forest is not None
    grown, fitted = forest.state_dict(), world.fit().arrays()
    assert {name: array.tobytes() for name, array in grown.items()} == {n: a.tobytes() for n, a in fitted.items()}
    inputs = held_back(world)
    assert isinstance(inputs, Regressors)
    assert not isinstance(inputs, Inputs)


@pytest.mark.thorough
def test_trees_are_loaded_without_torch(tmp_path: Path) -> None:
    """A shard process never imports it, nor what grows trees."""
    world = World("trees")
    folder = keep(world, world.fit(), tmp_path)
    told = (
        "import sys; from pathlib import Path; from models import artefact;"
        "artefact.load(Path(sys.argv[1])).verify_golden();"
        "print([name for name in ('torch', 'lightgbm') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", told, str(folder)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_trees_are_trained_and_judged_without_torch() -> None:
    """It takes half a gigabyte, which a small machine has not to spare: job, gate and comparison do without it."""
    told = (
        "import sys; import models.trees.tree_grower, services.learn.training.challenger;"
        "import services.learn.promotion.comparison_actor, models.evaluation.gate, services.learn.training.examples;"
        "print([name for name in ('torch', 'ray.train', 'ray.data') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
