"""The pre-trained network that comes with the package: it is whole, small, of the package, and worth shipping."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from setuptools import Distribution

from edge.wire.vocabulary import VOCABULARY
from models import artefact
from models.features.inputs import Inputs
from models.network.house_features import HouseFeatures
from models.network.plain_network import PlainNetwork
from models.network.pretrained import PretrainedNetwork
from models.pretraining.fleet_examples import draw_examples
from models.pretraining.pretrainer import ratios
from models.pretraining.shipped import SHIPPED, network_for, shipped
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec
from tests.models.pretraining.fleets import DRAWING, chunk
from tests.models.worlds import SPEC, window_set

ROOT = Path(__file__).parents[3]
SERVICE = ForecastSpec(tuple(VOCABULARY))


def test_it_gives_its_golden_output_and_says_what_it_was_trained_on() -> None:
    """At least 2,000 weeks of simulated sites; the constants of drawing and training are in the manifest."""
    made = shipped()
    made.verify_golden()
    assert made.kind == "pretrained"
    told = made.manifest["trained_on"]
    assert told["site_weeks"] >= 2000
    assert told["fleet"]["sites"] * told["fleet"]["days"] / 7 == pytest.approx(told["site_weeks"], abs=0.1)
    assert {"drawing", "training", "examples", "zones", "device"} <= set(told)
    assert made.manifest["metrics"]["mean_of_the_online_layer"] < 0.9


def test_it_is_small() -> None:
    """All of it is less than 300 kB."""
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 300_000


def test_the_package_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built and installed holds every file of it."""
    monkeypatch.chdir(ROOT)
    package = Distribution()
    package.parse_config_files([str(ROOT / "pyproject.toml")])
    build = package.get_command_obj("build_py")
    build.ensure_finalized()
    build.manifest_files = {}  # what a checkout has besides must not help
    held = {Path(path).name for path in build.find_data_files("models.pretraining", str(SHIPPED.parent))}
    assert "models.pretraining" in build.packages
    assert held == {path.name for path in SHIPPED.iterdir()}


@pytest.mark.parametrize(
    "spec",
    [
        SERVICE,
        SPEC,
        replace(SERVICE, targets=("rh_pct",), horizons_min=(20, 90, 2880)),
        replace(SERVICE, targets=("soil_temp_c",)),
    ],
)
def test_it_fits_every_schema(spec: ForecastSpec) -> None:
    """Channels, targets, horizons and steps are found by what they are."""
    network = network_for(spec)
    assert network.spec == spec
    assert network.residual.shape == (len(spec.horizons_min), len(spec.targets))


def test_it_answers_in_the_contracts_small_world() -> None:
    """Quantiles wherever the baseline has them."""
    windows = window_set(2)
    inputs = windows.inputs(windows.origins(SPEC.steps_per_day)[::20])
    answer = network_for(SPEC).answer(inputs)
    assert np.isfinite(answer).all()
    assert (np.diff(answer, axis=-1) >= 0).all()


@pytest.mark.thorough
def test_on_houses_that_it_has_not_seen_it_is_better_than_the_online_layer() -> None:
    """Four simulated sites of another seed, in their first two days, with plans and without."""
    examples, inputs = draw_examples(chunk(), SERVICE, DRAWING)
    network = network_for(SERVICE)
    assert isinstance(network, PretrainedNetwork)
    network.eval()
    assert np.nanmean(ratios(network, examples)[0]) < 0.95
    assert np.nanmean(ratios(network, examples, plans=False)[0]) < 0.97
    assert isinstance(inputs, Inputs)


def test_an_altered_file_is_refused(tmp_path: Path) -> None:
    """As any artefact."""
    for path in SHIPPED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[:-1])
    with pytest.raises(artefact.ArtefactError):
        shipped(tmp_path)


def test_its_weights_are_of_the_features_that_there_are() -> None:
    """A change of what the network looks at needs another pre-training: it must not pass unseen."""
    features = HouseFeatures(SERVICE)
    arrays = shipped().model.arrays()
    assert arrays["encode.weight"].shape[1] == 2 * features.width
    assert arrays["look.weight"].shape[1] == 2 * features.ahead_width


def test_without_torch_it_says_the_same(tmp_path: Path) -> None:
    """What the learners ask with NumPy alone is the network of this artefact; a torn one is refused in a sentence."""
    windows = window_set(2)
    inputs = windows.inputs(windows.origins(SPEC.steps_per_day)[::20])
    wanted = (network_for(SPEC).answer(inputs) - inputs.baseline)[..., 1]
    given = PlainNetwork(SPEC, pretrained().arrays).shift(*inputs.arrays())
    np.testing.assert_allclose(given, wanted, rtol=1e-3, atol=0.02)  # limits cut the network's, at 100 %
    assert pretrained().whole.mean() < 0.9
    for path in SHIPPED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "weights.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match="is torn or altered: install the package again"):
        pretrained(tmp_path)
