"""Step 13 of the way of a reading: an occasional search for better settings of a training, with Ray Tune.

Trials train on the same rows, each with settings of its own; ASHA (Li and others 2020) ends those that are behind.
They are chosen on the first half of the held-back tail and shown with the second half too, which chose nothing. The
settings that are in force are the first trial, and always trained to their end: what does not beat them there is no
improvement.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.durations import DAY_MS
from models.features.windows import Split, split
from models.network.progress import TrainingProgress
from models.network.quantile import QuantileNetwork
from models.network.training import TrainingConfig, WindowSet, evaluate, fit
from services.config import LearnSettings, Settings
from services.errors import TrainingError
from services.forecast_spec import forecast_spec, place_of
from services.learn.training import dataset
from services.learn.training.examples import spread
from services.learn.training.network_options import NETWORK, TUNABLE, training_config
from services.messages import I64
from services.store.history import History
from services.store.storage import address_of, storage_of

__all__ = ["Tail", "Trial", "read_windows", "score", "search", "tail_of", "toml_of"]

SCORED_ORIGINS = 2000
"""Origins of each half of the tail, at most, drawn evenly over times and zones."""
FIRST_RUNG = 2
"""Epochs that every trial gets."""
KEPT_SHARE = 3
"""At each rung about one trial in this many goes on."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What trials know: origins to train on, to choose on and to prove on; nothing after ``cut_ms`` is trained on."""

    train: I64
    choose: I64
    prove: I64
    cut_ms: int
    middle_ms: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of settings, and its errors relative to the climatology's: less is better, 1 is as good."""

    settings: Mapping[str, float | int]
    epochs: int
    chosen_by: float
    proof: float
    in_force: bool


def read_windows(settings: Settings, most_zones: int) -> WindowSet:
    """The rows that a training would read now, of at most this many zones, spread evenly over all.

    Raises :class:`TrainingError` or :class:`HistoryError` without a history.
    """
    spec = forecast_spec(settings)
    history = History(storage_of(settings), spec.channels, settings.stream.step_s)
    where = address_of(settings).remote
    span = history.span_ms(time.time_ns() // 1_000_000)
    if span is None:
        raise TrainingError(f"there is no history in {history.storage.url} yet")
    newest = span[1]
    after_ms = newest - int(settings.learn.window_days * DAY_MS)
    files = history.files(after_ms, newest)
    zones = sorted(dataset.describe(files, after_ms, newest, where).rows)
    rows = dataset.gather(files, spec.channels, after_ms, newest, zones[:: -(-len(zones) // most_zones)], where)
    places = {zone: place_of(settings, zone.split("/", 1)[0]) for zone in rows.zones}
    return WindowSet.from_columns(np.array(rows.zones)[rows.zone_ids], rows.end_ms, rows.values, places, spec)


def tail_of(windows: WindowSet, held_back: float) -> Tail:
    """Hold the newest share back, and cut it in two. Raises :class:`TrainingError` if one part has no origin."""
    parts: Split = split(windows, held_back)
    times = windows.times(parts.held_back)
    middle_ms = int(np.median(times)) if len(times) else parts.cut_ms
    choose, prove = parts.held_back[times < middle_ms], parts.held_back[times >= middle_ms]
    if not (len(parts.train) and len(choose) and len(prove)):
        raise TrainingError("the history is too short to train on and to choose and prove on a tail of it")
    return Tail(parts.train, spread(choose, SCORED_ORIGINS), spread(prove, SCORED_ORIGINS), parts.cut_ms, middle_ms)


def score(network: QuantileNetwork, windows: WindowSet, origins: I64, known_until_ms: int | None) -> float:
    """The mean over horizons and targets of the median's absolute error in units of the climatology's."""
    errors = evaluate(network.predict, windows, origins, known_until_ms)
    ours, theirs = errors.mae(), errors.mae("climatology")
    comparable = np.isfinite(ours) & (theirs > 0)
    return float(np.mean(ours[comparable] / theirs[comparable])) if comparable.any() else float("inf")


def search(
    windows: WindowSet, learn: LearnSettings, trials: int, cpus: int, folder: Path,
    told: Callable[[int, int], None] = lambda epochs, ended: None,
) -> list[Trial]:  # fmt: skip
    """Run ``trials`` trials, ``cpus`` at a time, and return them, the best chosen first; a Ray runtime must be there.

    ``told`` is called with the epochs that were trained and the trials that ended so far. What Ray Tune writes goes
    into ``folder``. Raises :class:`TrainingError` if no trial came to an end.
    """
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # nobody reads its CSV and TensorBoard files
    from ray import tune
    from ray.tune.search.basic_variant import BasicVariantGenerator

    config, tail = training_config(learn), tail_of(windows, learn.held_back)
    now = {name: getattr(learn, name) for name in TUNABLE}
    space = {
        "learning_rate": tune.loguniform(1e-3, 1e-2), "weight_decay": tune.loguniform(0.01, 0.2),
        "hidden": tune.choice([32, 64, 128]), "mixes": tune.choice([3, 6, 12]),
        "dropout": tune.uniform(0.0, 0.4), "silence": tune.uniform(0.0, 0.5),
    }  # fmt: skip
    trainable = tune.with_parameters(_trial, windows=windows, tail=tail, config=config)
    results = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="chosen_by", mode="min", num_samples=trials, max_concurrent_trials=cpus,
            scheduler=_scheduler(now, config.epochs),
            search_alg=BasicVariantGenerator(points_to_evaluate=[now], random_state=learn.seed),
        ),
        run_config=tune.RunConfig(name="tune", storage_path=str(folder), verbose=0, callbacks=[_listener(told)]),
    ).fit()  # fmt: skip
    found = [
        Trial(
            {name: result.config[name] for name in TUNABLE}, result.metrics["epoch"], result.metrics["chosen_by"],
            result.metrics["proof"], {name: result.config[name] for name in TUNABLE} == now,
        )
        for result in results
        if result.error is None and result.metrics and result.config and "chosen_by" in result.metrics
    ]  # fmt: skip
    if not any(trial.in_force for trial in found):
        reason = str(results.errors[0]).strip().splitlines()[-1] if results.errors else "no trial came to an end"
        raise TrainingError(f"the search failed: {reason}")
    return sorted(found, key=lambda trial: (trial.chosen_by, not trial.in_force))


def toml_of(settings: Mapping[str, float | int]) -> str:
    """The lines of a configuration file that set these.

    >>> print(toml_of({"hidden": 32, "dropout": 0.123456}))
    [learn]
    hidden = 32
    dropout = 0.1235
    """
    values = (
        f"{name} = {value if isinstance(value, int) else format(value, '.4g')}" for name, value in settings.items()
    )
    return "\n".join(["[learn]", *values])


def _trial(given: dict[str, Any], windows: WindowSet, tail: Tail, config: TrainingConfig) -> None:
    """One training in a process of its own, with a thread of its own."""
    import torch
    from ray import tune

    os.nice(10)  # as a retraining: it gives way to forecasts and requests
    torch.set_num_threads(1)

    def report(progress: TrainingProgress) -> None:
        network = QuantileNetwork(windows.spec, **{name: given[name] for name in NETWORK})
        network.load_arrays(progress.state)
        network.eval()
        chosen_by = score(network, windows, tail.choose, tail.middle_ms)
        proof = score(network, windows, tail.prove, None)
        tune.report({"epoch": len(progress.history), "chosen_by": chosen_by, "proof": proof})

    fit(windows, tail.train, replace(config, **given), cut_ms=tail.cut_ms, on_epoch=report)


def _scheduler(now: Mapping[str, Any], epochs: int) -> Any:
    from ray.tune.schedulers import ASHAScheduler

    class KeepsWhatIsInForce(ASHAScheduler):  # type: ignore[misc, unused-ignore]  # Ray has no types
        """Ends trials that are behind, but never the one that all are compared with."""

        def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
            decision: str = super().on_trial_result(tune_controller, trial, result)
            compared_with = all(trial.config[name] == value for name, value in now.items())
            return self.CONTINUE if compared_with and result["epoch"] < epochs else decision

    return KeepsWhatIsInForce(
        time_attr="epoch", max_t=epochs, grace_period=min(FIRST_RUNG, epochs), reduction_factor=KEPT_SHARE
    )


def _listener(told: Callable[[int, int], None]) -> Any:
    from ray import tune

    class Listener(tune.Callback):  # type: ignore[misc, unused-ignore]  # Ray has no types
        """Counts what is done."""

        def __init__(self, told: Callable[[int, int], None]) -> None:
            self.told, self.epochs, self.ended = told, 0, 0

        def __getstate__(self) -> dict[str, Any]:
            return {}  # Ray Tune keeps a copy with its state; whoever listens, a progress bar, is of this process

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any) -> None:
            self.epochs += 1
            self.told(self.epochs, self.ended)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            self.ended += 1
            self.told(self.epochs, self.ended)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            self.on_trial_complete(iteration, trials, trial)

    return Listener(told)
