"""Step 13 of the way of a reading: the fine-tuning of the package's network to a site's examples, on Ray Train."""

from __future__ import annotations

from typing import Any

import ray
import ray.train
import ray.train.torch

from models.pretraining.fine_tuner import Arrays, FineTuning, TuningExamples, fine_tune
from models.spec import ForecastSpec
from services.errors import TrainingError
from services.learn.training.trainer import first_cause, quiet

__all__ = ["fine_tune_on_ray"]


def fine_tune_on_ray(
    start: Arrays, spec: ForecastSpec, examples: TuningExamples, config: FineTuning, *, name: str, folder: str
) -> Arrays:
    """As :func:`models.pretraining.fine_tuner.fine_tune`, to the same bytes. Raises :class:`TrainingError`.

    The loop runs in the calling process: it is over before a worker would have started.
    """
    given = {"start": ray.put(dict(start)), "examples": ray.put(examples), "spec": spec, "config": config}
    trainer = ray.train.torch.TorchTrainer(
        _loop, train_loop_config=given, scaling_config=ray.train.ScalingConfig(num_workers=0),
        run_config=ray.train.RunConfig(name=name, storage_path=folder),
    )  # fmt: skip
    try:
        with quiet():
            tuned: Arrays = trainer.fit().return_value
    except (ray.train.TrainingFailedError, ValueError, RuntimeError) as error:
        raise TrainingError(f"the fine-tuning failed: {first_cause(error)}") from error
    return tuned


def _loop(given: dict[str, Any]) -> Arrays:
    return fine_tune(ray.get(given["start"]), given["spec"], ray.get(given["examples"]), given["config"])
