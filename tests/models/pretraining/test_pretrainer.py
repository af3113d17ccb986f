"""Pre-training: equal bytes, nothing of the zones held back, and an artefact that says what it was trained on."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models import artefact
from models.pretraining.fleet_examples import FleetExamples, draw_examples
from models.pretraining.fleet_folder import FleetFolder, FleetFolderError
from models.pretraining.from_fleet import fleet_spec, pretrain
from models.pretraining.pretrainer import PretrainingConfig, ratios, train
from models.pretraining.shipped import network_for
from models.spec import ForecastSpec
from tests.models.pretraining.fleets import DRAWING, chunk, write

pytestmark = pytest.mark.thorough

CONFIG = PretrainingConfig(
    epochs=2,
    batch_size=32,
    hidden=16,
    shared=8,
    held_back=0.3,
    teacher_noise=(0.2, 0.3),
    teacher_hidden=24,
    teacher_shared=16,
)
SPEC = ForecastSpec(("air_temp_c", "rh_pct", "co2_ppm", "out_temp_c", "out_radiation_w_m2", "sp_heat_c"))


@pytest.fixture(scope="module")
def examples() -> FleetExamples:
    """Of four sites."""
    return draw_examples(chunk(), SPEC, DRAWING)[0]


def test_two_runs_give_the_same_bytes(examples: FleetExamples) -> None:
    """Whatever was drawn in the process before, and however many threads it has; another seed gives others."""
    one = train(examples, SPEC, CONFIG)
    torch.manual_seed(99)
    other = train(examples, SPEC, CONFIG)
    assert artefact.digest(one.network.arrays()) == artefact.digest(other.network.arrays())
    assert one.losses == other.losses
    another = train(examples, SPEC, replace(CONFIG, seed=5))
    assert artefact.digest(one.network.arrays()) != artefact.digest(another.network.arrays())


@pytest.mark.parametrize("teachers", [(), (0.0, 0.0)])
def test_it_learns_what_the_online_layer_leaves_over(examples: FleetExamples, teachers: tuple[float, ...]) -> None:
    """From what came or from teachers: on what it was trained on its loss falls, and its error is below the online
    layer's; told of every step.
    """
    told: list[tuple[int, int]] = []
    config = replace(CONFIG, epochs=12, held_back=0.0, silence=0.0, noise=0.0, teacher_noise=teachers)
    trained = train(examples, SPEC, config, told=lambda step, steps, loss: told.append((step, steps)))
    assert trained.losses[-1] < trained.losses[0]
    assert ratios(trained.network, examples)[0].mean() < 0.98
    assert told == [(step + 1, len(told)) for step in range(len(told))]
    assert trained.held_back == 0
    assert np.isnan(trained.alone).all()


def test_zones_that_are_held_back_are_not_learned_from(examples: FleetExamples) -> None:
    """Other truths there change the errors that are told, and no weight."""
    trained = train(examples, SPEC, CONFIG)
    zones = np.unique(examples.zone)
    away = np.random.default_rng(CONFIG.seed).permutation(zones)[: round(len(zones) * CONFIG.held_back)]
    mine = np.isin(examples.zone, away)
    assert trained.held_back == mine.sum() > 0
    truth = np.where(mine[:, None, None], examples.truth + 5, examples.truth)
    other = train(replace(examples, truth=truth), SPEC, CONFIG)
    assert artefact.digest(trained.network.arrays()) == artefact.digest(other.network.arrays())
    assert not np.array_equal(trained.alone, other.alone)


def test_a_network_that_is_taught_has_the_size_that_is_asked_for(examples: FleetExamples) -> None:
    """And not its teachers'; other teachers make another network."""
    taught = train(examples, SPEC, CONFIG).network.arrays()
    assert taught["encode.weight"].shape[0] == CONFIG.hidden
    other = train(examples, SPEC, replace(CONFIG, teacher_hidden=32)).network.arrays()
    assert artefact.digest(taught) != artefact.digest(other)


def test_too_few_examples_are_refused(examples: FleetExamples) -> None:
    """In a sentence; with a few more there are smaller batches."""
    with pytest.raises(ValueError, match="3 examples to train on are too few"):
        train(examples.take(slice(0, 3)), SPEC, CONFIG)
    trained = train(examples.take(slice(0, 20)), SPEC, CONFIG)
    assert len(trained.losses) == 2 * CONFIG.epochs
    assert 1 <= trained.config.batch_size <= 5


def test_a_teacher_that_diverged_is_refused(examples: FleetExamples) -> None:
    """Before anything is learned from it."""
    with pytest.raises(ValueError, match="teacher 1 diverged"):
        train(examples, SPEC, replace(CONFIG, learning_rate=1e30))


def test_a_network_that_diverged_is_refused(examples: FleetExamples) -> None:
    """Hours of training must not end with an artefact that nothing loads."""
    with pytest.raises(ValueError, match="the network diverged"):
        train(examples, SPEC, replace(CONFIG, learning_rate=1e30, teacher_noise=()))


def test_a_fleet_becomes_an_artefact(tmp_path: Path) -> None:
    """It says what it was trained on, gives its golden output, and fits another schema; kept examples give the same."""
    fleet, keep = write(tmp_path / "fleet"), tmp_path / "keep"
    told: list[tuple[str, int, int]] = []
    manifest = pretrain(
        fleet, tmp_path / "one", DRAWING, CONFIG, device="cpu", keep=keep, told=lambda *part: told.append(part)
    )
    assert manifest["kind"] == "pretrained"
    assert manifest["trained_on"]["fleet"]["seed"] == 4
    assert manifest["trained_on"]["site_weeks"] == pytest.approx(20 / 7, abs=0.1)
    assert manifest["trained_on"]["drawing"] == asdict(DRAWING)
    assert manifest["trained_on"]["device"] == "cpu"
    assert {part for part, *_ in told} == {"examples", "steps"}
    assert [done for part, done, total in told if part == "examples"][-1] <= told[0][2]
    loaded = artefact.load(tmp_path / "one", fleet_spec(FleetFolder(fleet)).hash)
    loaded.verify_golden()
    assert network_for(SPEC, loaded).spec == SPEC
    (kept,) = keep.iterdir()
    before = kept.stat().st_mtime_ns
    pretrain(fleet, tmp_path / "two", DRAWING, CONFIG, device="cpu", keep=keep)
    assert kept.stat().st_mtime_ns == before
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
    with pytest.raises(FileExistsError):
        pretrain(fleet, tmp_path / "one", DRAWING, CONFIG)
    for torn in (b"", kept.read_bytes()[:-1]):
        kept.write_bytes(torn)
        with pytest.raises(FleetFolderError, match=f"{kept.name} cannot be read: .*: remove it"):
            pretrain(fleet, tmp_path / "three", DRAWING, CONFIG, device="cpu", keep=keep)


def test_a_folder_without_a_fleet_is_refused(tmp_path: Path) -> None:
    """With what to do."""
    with pytest.raises(FleetFolderError, match="simulate a fleet"):
        pretrain(tmp_path, tmp_path / "out")
