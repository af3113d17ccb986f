"""A fine-tuning to examples that shards kept: what it is given, how it is judged, and what is left of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import artefact
from models.network.tuned_network import TunedNetwork
from models.pretraining.fine_tuner import FineTuning
from services.errors import TooLittleHistoryError
from services.forecast_spec import forecast_spec
from services.learn.experts import TUNED, learn_settings
from services.learn.training.fine_tuning.tuned_challenger import learn_tuned
from services.learn.training.job import Job
from services.store.history import History
from tests.services.learn.synthetic import START_MS, small_settings, write_history
from tests.services.learn.tuning_examples import saying, write_examples

DAY_MS = 86_400_000
ZONES = ("z1", "z2")


def job(folder: Path, days: float = 8, zones: tuple[str, ...] = ZONES, low_by: float = 0.5) -> Job:
    """Of examples whose forecasts are too low."""
    settings = small_settings(folder)
    to_ms, spec = write_history(settings, days, zones), forecast_spec(settings)
    write_examples(settings, zones, low_by)
    return Job(
        name="one", storage=str(settings.storage_folder), spec=spec, learn=learn_settings(settings.learn, TUNED),
        places={}, files=tuple(History(settings.storage_folder, spec.channels, 900).files()), after_ms=0, to_ms=to_ms,
        log_offsets={"0": 1}, champion="online", champion_folder="", use_gpu=False, workers=0, kind="tuned",
    )  # fmt: skip


def test_a_better_one_passes_with_its_lineage(tmp_path: Path) -> None:
    """The twin's error on the held-back examples is named; what is kept gives its golden output without torch."""
    made = job(tmp_path)
    found = learn_tuned(made, saying(0.6))
    assert found["passed"], found["reason"]
    assert "of the untuned forecast" in found["reason"]
    errors = found["held_back_mae"]["air_temp_c"]["60"]
    assert errors["model"] < errors["champion"] < errors["persistence"]
    assert (found["trained_on"]["zones"], found["trained_on"]["known_to_ms"]) == (2, made.to_ms)
    kept = artefact.load(Path(found["folder"]), made.spec.hash)
    kept.verify_golden()
    assert (kept.kind, isinstance(kept.model, TunedNetwork)) == ("tuned", True)
    assert kept.manifest["trained_on"]["log_offsets"] == {"0": 1}
    assert "removed" in found["recipe"]["not_replayable"]


def test_a_worse_one_is_refused_and_says_by_how_much(tmp_path: Path) -> None:
    """Nothing is in shadow: held-back examples decide."""
    found = learn_tuned(job(tmp_path), saying(-2.0))
    assert (found["passed"], found["shadow"], found["forced"]) == (False, False, False)
    assert found["evidence"]["mae_ratio_lower"]["the untuned forecast"] > 1
    assert found["reason"].startswith("The challenger's error is ")


def test_the_twin_knows_nothing_of_what_is_held_back(tmp_path: Path) -> None:
    """Neither examples nor truths after the cut; what serves knows all; steps grow with the days."""
    made, seen = job(tmp_path), list[Any]()
    learn_tuned(made, saying(0.6, seen))
    (twin, early), (whole, late) = seen
    assert len(twin) < len(whole)
    assert early.learning_rate < late.learning_rate < FineTuning().learning_rate
    known = np.isfinite(twin.truth[..., 0])
    # Of the example at the cut no truth is known; of the one an hour before those at half an hour and at one.
    assert known[-2:].sum() == 0
    np.testing.assert_array_equal(known[-4:-2], [[True, True, False]] * 2)
    assert np.isfinite(whole.truth).all()
    off = whole.truth - whole.baseline[..., 1]
    np.testing.assert_allclose(off, 1.0, atol=1e-3)  # half of a width: examples and truths belong together


def test_more_zones_than_a_dozen_are_thinned_out(tmp_path: Path) -> None:
    """Evenly over all, whichever partition kept them."""
    found = learn_tuned(job(tmp_path, zones=tuple(f"z{n:02d}" for n in range(26))), saying(0.6))
    assert found["trained_on"]["zones"] == 9


@pytest.mark.parametrize("days", [0.0, 3.0])
def test_too_few_examples_are_an_error(tmp_path: Path, days: float) -> None:
    """A sentence, and no artefact."""
    made = job(tmp_path, days=3)
    if not days:
        for file in Path(made.storage, "tuning").iterdir():
            file.unlink()
    with pytest.raises(TooLittleHistoryError, match="no examples yet" if not days else "256 are needed"):
        learn_tuned(made, saying(0.6))
    assert not Path(made.storage, "models").exists()


def test_rows_of_before_are_not_taken(tmp_path: Path) -> None:
    """Examples from its range only."""
    made, seen = job(tmp_path), list[Any]()
    learn_tuned(replace(made, after_ms=START_MS + DAY_MS), saying(0.6, seen))
    assert len(seen[1][0]) == 2 * (7 * 24 - 2)
