"""The network of the package, fine-tuned at a site by Ray Train: from the history to forecasts of a replica."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray

from models import artefact
from models.pretraining.fine_tuner import FineTuning, fine_tune
from models.pretraining.shipped import SHIPPED, network_for
from models.pretraining.shipped_arrays import pretrained
from models.spec import Place
from services.errors import TrainingError
from services.forecast_spec import forecast_spec
from services.learn.promotion.registry import Registry
from services.learn.training.job import Job
from services.learn.training.task import run_job, this_runtime
from services.serve.models.forecaster import warm_up
from services.serve.models.model_loading import load_model
from services.store.history import History
from tests.models.pretraining.tuning_examples import SPEC as TUNING_SPEC
from tests.models.pretraining.tuning_examples import examples as tuning_examples
from tests.patience import patience_s
from tests.ray.runtime import local_ray
from tests.services.learn.synthetic import START_MS, small_settings, write_history

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.thorough
def test_a_site_fine_tunes_the_network_of_the_package(tmp_path: Path) -> None:
    """It goes on from the package's weights on Ray Train, passes the gate, is registered, and a replica answers."""
    settings = small_settings(tmp_path, kind="pretrained", fine_tuning_rate=3e-3, epochs=8)
    to_ms, spec = write_history(settings, days=14), forecast_spec(settings)
    job = Job(
        name="one", storage=str(settings.storage_folder), spec=spec, learn=settings.learn, places={},
        files=tuple(History(settings.storage_folder, spec.channels, settings.stream.step_s).files()), after_ms=START_MS,
        to_ms=to_ms, log_offsets={"0": 1}, champion="online", champion_folder="", use_gpu=False, workers=0,
        kind=settings.learn.kind,
    )  # fmt: skip
    with local_ray():
        candidate = ray.get(run_job.options(runtime_env=this_runtime()).remote(job), timeout=patience_s(240))
    assert candidate["params"]["warm_start"]
    assert candidate["curves"]["loss"][-1] < candidate["curves"]["loss"][0]
    assert candidate["passed"], candidate["reason"]
    registry = Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", settings.storage_folder, spec.hash)
    version = registry.register(candidate, created_ms=1)
    registry.promote(version)
    assert [(row["version"], row["kind"], row["stage"]) for row in registry.list()] == [
        ("v1", "pretrained", "champion")
    ]
    model = load_model(str(registry.servable(version)), spec.hash)
    warm_up(model, spec)
    values = np.full((1, spec.lookback_steps, len(spec.channels)), np.nan, np.float32)
    values[..., [spec.channels.index(name) for name in ("air_temp_c", "rh_pct", "heat_pipe_low_c")]] = 20, 70, 40
    baseline = np.broadcast_to(np.float32([18, 20, 22]), (1, len(spec.horizons_min), len(spec.targets), 3)).copy()
    answer = model.predict(values, np.array([to_ms]), [Place()], baseline)
    assert np.isfinite(answer).all()
    assert candidate["recipe"]["started_from"] == artefact.digest(network_for(spec).arrays())
    assert candidate["weights_sha256"] != artefact.load(SHIPPED).manifest["weights_sha256"]


def test_a_fine_tuning_on_ray_is_that_of_the_plain_loop(tmp_path: Path) -> None:
    """What a backtest's ``--ray`` runs on Ray Train gives the same bytes as without it; an error is a sentence."""
    from services.learn.training.fine_tuning.site_tuning import fine_tune_on_ray

    config, start, shown = FineTuning(epochs=2, batch_size=64), pretrained().arrays, tuning_examples()
    with local_ray():
        tuned = fine_tune_on_ray(start, TUNING_SPEC, shown, config, name="one", folder=str(tmp_path))
        wild = replace(config, learning_rate=float("nan"))
        with pytest.raises(TrainingError, match=r"^the fine-tuning failed: .*nan"):
            fine_tune_on_ray(start, TUNING_SPEC, shown, wild, name="two", folder=str(tmp_path))
    plain = fine_tune(start, TUNING_SPEC, shown, config)
    assert {name: array.tobytes() for name, array in tuned.items()} == {n: a.tobytes() for n, a in plain.items()}
