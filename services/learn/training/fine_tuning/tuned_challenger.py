"""Steps 12 to 14 of the way of a reading: the package's network, fine-tuned to the examples that shards kept.

Runs in the process of :func:`services.learn.training.task.run_job`. No learner is replayed: an example has what the
network looked at and the forecast that it corrects, and the history has what came. A twin that knows nothing of the
newest examples is compared with the forecasts without it on these; what serves is trained on all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from models import artefact
from models.durations import DAY_MS
from models.evaluation.forecast_errors import Errors
from models.evaluation.gate import judge_no_worse
from models.evaluation.truth import Truths
from models.evaluation.yardsticks import naive_24h, persistence
from models.features.inputs import targets_along
from models.network.tuned_network import CorrectionInputs, TunedNetwork
from models.pretraining.fine_tuner import Arrays, FineTuning, Tuner, TuningExamples
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec
from services.errors import TooLittleHistoryError, TrainingError
from services.learn.records import Candidate
from services.learn.training import dataset
from services.learn.training.dataset import DataRange
from services.learn.training.examples import EVALUATED_ORIGINS, EVALUATED_ZONES, spread
from services.learn.training.job import Job
from services.learn.training.kept_model import error_table, folder_of, keep
from services.learn.training.kept_runs import TRAININGS
from services.learn.training.recipe import recipe_of
from services.messages import F32, I64
from services.store.examples.shown_examples import ShownExamples, StoredExamples
from services.store.storage import FolderStorage, open_storage

__all__ = ["learn_tuned"]

WITHOUT = "the untuned forecast"
"""What is compared with: the forecasts that it corrects."""
LEVEL = 0.1
"""It is refused where it is worse but for this chance of a mistake."""
GOLDEN_EXAMPLES = 4
NOT_REPLAYABLE = "the examples of a fine-tuning are removed when they are too old"


@dataclass(frozen=True, slots=True)
class _Cases:
    """The examples of a job, and what came by the end of its rows."""

    spec: ForecastSpec
    stored: StoredExamples
    truths: Truths  # of rows on a grid
    first_ms: int  # of the grid

    def until(self, cut_ms: int) -> TuningExamples:
        """What was known then."""
        known = np.flatnonzero(self.stored.end_ms <= cut_ms)
        mine = self.stored.inputs
        return TuningExamples(
            mine.origin[known], mine.ahead[known], mine.baseline[known], self.truth(known, cut_ms)
        )  # fmt: skip

    def truth(self, places: I64, cut_ms: int) -> F32:
        """What came after examples, ``[N, H, M]``; NaN where it is missing or came after the cut."""
        last = (cut_ms - self.first_ms) // self.spec.step_ms
        return self.truths.after(self.stored.zone_ids[places], self._step(places), last)

    def errors(self, places: I64, model: F32) -> Errors:
        """Of medians ``model [N, H, M]``, beside persistence and the 24-hour naive; the climatology's are those of the
        forecasts without the network.
        """
        truth, zone = self.truth(places, 2**62), self.stored.zone_ids[places]
        back = self._step(places)[:, None] + np.arange(1 - self.spec.steps_per_day, 1)
        recent = self.truths.newest[zone[:, None], np.maximum(back, 0)]
        recent[back < 0] = np.nan
        said = {
            "model": model, "climatology": self.stored.inputs.baseline[places][..., 1],
            "persistence": persistence(recent[:, -1], self.spec), "naive_24h": naive_24h(recent, self.spec),
        }  # fmt: skip
        off = {name: np.abs(one - truth).astype(np.float32) for name, one in said.items()}
        return Errors(self.stored.end_ms[places], zone, inside=np.full_like(truth, np.nan), **off)

    def _step(self, places: I64) -> I64:
        return (self.stored.end_ms[places] - self.first_ms) // self.spec.step_ms


def learn_tuned(job: Job, tune: Tuner | None = None) -> Candidate:
    """Fine-tune, compare, judge, and keep the artefact; ``tune`` is by default Ray Train's.

    Raises :class:`TrainingError`, and leaves no artefact, where there are too few examples or the training fails;
    :class:`HistoryError` where examples or rows cannot be read.
    """
    tune = tune or _on_ray(job)
    cases = _cases(job)
    ends = cases.stored.end_ms
    first_ms, last_ms = int(ends.min()), int(ends.max())
    cut_ms = last_ms - round((last_ms - first_ms) * job.learn.held_back)
    config = FineTuning()
    if np.count_nonzero(ends <= cut_ms) < config.batch_size:
        raise TooLittleHistoryError(f"only {np.count_nonzero(ends <= cut_ms)} examples, {config.batch_size} are needed")

    def tuned(until_ms: int) -> TunedNetwork:
        how = config.of_days((until_ms - first_ms) / DAY_MS)
        return TunedNetwork(job.spec, tune(pretrained().arrays, job.spec, cases.until(until_ms), how))

    try:
        twin, network = tuned(cut_ms), tuned(job.to_ms)
    except ValueError as error:
        raise TrainingError(str(error)) from error
    held_back = spread(np.flatnonzero(ends > cut_ms), EVALUATED_ORIGINS)
    shown = _taken(cases.stored.inputs, held_back)
    with_it, without = (cases.errors(held_back, said[..., 1]) for said in (twin.answer(shown), shown.baseline))
    verdict = judge_no_worse(with_it, without, WITHOUT, LEVEL)

    names = [cases.stored.zones[zone] for zone in cases.stored.zone_ids.tolist()]
    counts = {zone: names.count(zone) for zone in cases.stored.zones}
    lineage = DataRange(first_ms, last_ms, counts).as_dict()
    lineage |= {"held_back_until": lineage["to"], "known_to_ms": job.to_ms}
    means = {name: with_it.mae(name) for name in ("model", "persistence", "naive_24h")} | {"champion": without.mae()}
    table = error_table(means, job.spec)
    golden = _taken(cases.stored.inputs, spread(np.arange(len(ends)), GOLDEN_EXAMPLES))
    manifest = keep(job, network, golden, config.seed, {**lineage, "log_offsets": dict(job.log_offsets)}, table)
    return {
        "folder": str(folder_of(job)),
        "kind": job.kind,
        "weights_sha256": manifest["weights_sha256"],
        "trained_on": lineage,
        "log_offsets": dict(job.log_offsets),
        "params": {
            "kind": job.kind, "seed": config.seed, "epochs": config.epochs, "schema_hash": job.spec.hash,
            "champion": job.champion, "measured_against": WITHOUT, "warm_start": True,
        },
        "held_back_mae": table,
        "curves": {},
        "recipe": recipe_of(job, counts, artefact.digest(pretrained().arrays), NOT_REPLAYABLE),
        "evidence": verdict.evidence,
        "shadow": False,
        "passed": verdict.promote,
        "reason": f"{verdict.reason} Judged by a twin that was fine-tuned without the held-back rows.",
        "forced": False,
    }  # fmt: skip


def _on_ray(job: Job) -> Tuner:
    from services.learn.training.fine_tuning.site_tuning import fine_tune_on_ray

    folder, runs = str(Path(job.storage, TRAININGS)), iter(range(2))

    def tune(start: Arrays, spec: ForecastSpec, examples: TuningExamples, config: FineTuning) -> Arrays:
        return fine_tune_on_ray(start, spec, examples, config, name=f"{job.name}-{next(runs)}", folder=folder)

    return tune


def _cases(job: Job) -> _Cases:
    """Raises :class:`TrainingError` where there is none."""
    storage = FolderStorage(Path(job.storage)) if job.where is None else open_storage(job.where)
    stored = ShownExamples(storage, job.spec).read(job.after_ms, job.to_ms, EVALUATED_ZONES["forecasts"])
    if not len(stored):
        raise TooLittleHistoryError("shards have kept no examples yet")
    channels = tuple(name for name in job.spec.channels if name in {*job.spec.targets, "air_temp_c", "rh_pct"})
    spec, step_ms = replace(job.spec, channels=channels), job.spec.step_ms
    first_ms = int(stored.end_ms.min()) - DAY_MS
    rows = dataset.gather(job.files, channels, first_ms - 1, job.to_ms, stored.zones, job.where)
    values = np.full(
        (len(stored.zones), (job.to_ms - first_ms) // step_ms + 1, len(channels)), np.nan, np.float32
    )  # fmt: skip
    values[rows.zone_ids, (rows.end_ms - first_ms) // step_ms] = rows.values
    return _Cases(job.spec, stored, Truths(targets_along(values, spec), job.spec), first_ms)


def _taken(inputs: CorrectionInputs, places: I64) -> CorrectionInputs:
    return CorrectionInputs(inputs.origin[places], inputs.ahead[places], inputs.baseline[places])
