"""Steps 12 to 14 of the way of a reading: one retraining, from the history to a judged challenger.

Runs in the process of :func:`services.learn.training.task.run_job`; the retrainer itself never imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models import artefact
from models.evaluation.forecast_errors import evaluate
from models.evaluation.gate import Verdict, judge
from models.families import FAMILIES, Model, TooLittleError, UnknownFamilyError, beginning_of, family_of, takes_of
from models.features.windows import WindowSet
from models.trees.tree_grower import GrowerError
from services.errors import TooLittleHistoryError, TrainingError
from services.learn.records import Candidate
from services.learn.training import dataset
from services.learn.training.dataset import DataRange
from services.learn.training.examples import EVALUATED_ORIGINS, cases_of, origins_after, spread, zone_places
from services.learn.training.job import Job
from services.learn.training.kept_model import error_table, folder_of, keep
from services.learn.training.kept_runs import TRAININGS
from services.learn.training.network_options import network_options, training_config
from services.learn.training.recipe import recipe_of
from services.learn.training.reference_model import ReferenceModel, reference_model_of
from services.messages import I64, ONLINE_VERSION
from services.observe.duration import utc_text

if TYPE_CHECKING:
    from models.network.training import FitResult
    from services.learn.training.trainer import TrainPlan

__all__ = ["learn", "train_again"]

GOLDEN_EXAMPLES = 4
ALL_ROWS = "It was trained on all rows, also those since the drift; live rows judge it."
TWIN = "Judged by a twin that was fitted without the held-back rows."


class _Work:
    """A job's family and its rows; ``keeps``: what Ray Train has done is kept, for the same job to go on from."""

    def __init__(self, job: Job, keeps: bool = True) -> None:
        self.keeps = keeps
        try:
            self.job, self.family = job, family_of(job.kind)
        except UnknownFamilyError as error:
            raise TrainingError(str(error)) from error
        self.whole = dataset.describe(job.files, job.after_ms, job.to_ms, job.where)
        self.by_ray = FAMILIES[job.kind].by_ray  # by Ray Train; all others are trained in this process

    @cached_property
    def cases(self) -> WindowSet:
        """All rows; made when they are first needed: while Ray Train works, nothing here needs memory."""
        job = self.job
        return cases_of(self.whole, job.files, job.spec, job.places, takes_of(job.kind), job.where)

    @cached_property
    def beginning(self) -> Model | None:
        """What is trained where no champion lends its weights; ``None``: random ones."""
        return beginning_of(self.job.kind, self.job.spec)

    @property
    def options(self) -> Mapping[str, Any] | None:
        """Those of what is trained; ``None`` if it always begins anew."""
        if self.beginning is not None:
            return self.beginning.options
        if self.by_ray:
            return network_options(self.job.learn)
        return None if self.family.refits else self.family.make(self.job.spec, self.job.learn.model_dump()).options

    def until(self, cut_ms: int) -> DataRange:
        """The rows that end then or before."""
        job, whole = self.job, self.whole
        return whole if cut_ms == whole.to_ms else dataset.describe(job.files, job.after_ms, cut_ms, job.where)

    def fit(self, cut_ms: int, reference: ReferenceModel) -> tuple[Model, FitResult | None]:
        """A model that knows nothing after ``cut_ms``, and how Ray Train came to it."""
        job = self.job
        if self.by_ray:
            from services.learn.training.trainer import train  # here: trees need neither torch nor Ray Train

            trained_on = self.until(cut_ms)
            fitted = train(
                dataset.read(job.files, job.spec.channels, trained_on, job.where),
                _plan(self, trained_on, cut_ms, reference),
            )
            return self.family.load(job.spec, self.options or {}, fitted.state), fitted
        origins = self.cases.origins(job.spec.steps_per_day)
        origins = spread(origins[self.cases.times(origins) < cut_ms], job.learn.max_windows)
        try:
            settings = job.learn.model_dump()
            return self.family.fit(self.cases, origins, settings, cut_ms=cut_ms, start=reference.start), None
        except TooLittleError as error:
            raise TooLittleHistoryError(str(error)) from error
        except (ValueError, GrowerError) as error:
            raise TrainingError(str(error), getattr(error, "hint", "")) from error


def learn(job: Job) -> Candidate:
    """Train a challenger, measure it beside the champion and the baselines, judge it, and keep its artefact.

    An unusable model raises
    :class:`TrainingError` (or :class:`HistoryError`) and leaves no artefact: weights or forecasts that are not finite,
    a history too short, a file that does not give its golden output again. A champion that has seen the held-back rows
    leaves fewer to compare on; where they are too few the gate refuses.

    Where a family fits what serves on all rows, what is measured is a twin of it (:class:`ModelFamily`).
    """
    work = _Work(job)
    whole, (trained_on, cut_ms) = work.whole, _trained_on(work)
    reference = reference_model_of(job, cut_ms, work.options, work.beginning)
    model, by_ray = work.fit(cut_ms, reference)
    origins = _compared_on(work, cut_ms)
    # Where all rows were trained on, whoever has seen these does not matter: their errors prove nothing and are not
    # shown, but a forecast that is no number is found.
    from_ms = 0 if job.all_rows else reference.from_ms
    compared = spread(origins[work.cases.times(origins) >= from_ms], EVALUATED_ORIGINS)
    challenger, champion = (evaluate(predict, work.cases, compared) for predict in (model.answer, reference.predict))
    verdict = judge(challenger, champion, reference.name, job.level, job.margin)
    if verdict.evidence.get("missing"):
        raise TrainingError(verdict.reason)
    reason = ALL_ROWS if job.all_rows else verdict.reason
    shadow = job.shadow and (job.all_rows or not _hopeless(verdict, job.margin))
    if work.family.refits and not job.all_rows:
        (model, by_ray), trained_on, reason = work.fit(whole.to_ms, reference), whole, f"{reason} {TWIN}"

    lineage = trained_on.as_dict()
    lineage |= {"held_back_until": whole.as_dict()["to"], "known_to_ms": whole.to_ms}
    means = {name: challenger.mae(name) for name in ("model", "persistence", "naive_24h", "climatology")}
    shown = {} if job.all_rows else means | {"champion": champion.mae()}
    errors = error_table(shown, job.spec)  # of rows that were held back, and of no others
    golden = work.cases.inputs(spread(origins, GOLDEN_EXAMPLES))
    manifest = keep(job, model, golden, job.learn.seed, {**lineage, "log_offsets": dict(job.log_offsets)}, errors)
    return {
        "folder": str(folder_of(job)),
        "kind": job.kind,
        "weights_sha256": manifest["weights_sha256"],
        "trained_on": lineage,
        "log_offsets": dict(job.log_offsets),
        "params": {
            "kind": job.kind, "seed": job.learn.seed, "epochs": job.learn.epochs, "max_windows": job.learn.max_windows,
            "workers": job.workers, "use_gpu": job.use_gpu, "schema_hash": job.spec.hash,
            "champion": job.champion, "measured_against": reference.name, "warm_start": reference.start is not None,
        },
        "held_back_mae": errors,
        "curves": {} if by_ray is None else _curves(by_ray),
        "recipe": recipe_of(job, whole.rows, _started_from(reference), _not_replayable(job, by_ray)),
        "evidence": {} if job.all_rows else verdict.evidence,
        "shadow": shadow,
        "passed": verdict.promote and not (shadow or job.all_rows),
        "reason": f"{reason} {reference.note}".strip(),
        "forced": False,
    }  # fmt: skip


def train_again(job: Job, rows: Mapping[str, int], started_from: str) -> str:
    """Train as :func:`learn` does, and nothing else; the SHA-256 of the weights.

    It goes on from nothing that was kept, or it would prove nothing, and it changes nothing on the job's storage.

    Raises :class:`TrainingError` if the range no longer holds ``rows`` (``site/zone`` -> how many), if the weights that
    it began with, of digest ``started_from`` (empty: random ones), are gone, or if it did not run as it was planned.
    """
    work = _Work(job, keeps=False)
    whole = work.whole
    if dict(whole.rows) != dict(rows):
        changed = sorted(name for name in {*whole.rows, *rows} if whole.rows.get(name) != rows.get(name))
        was, now = (sum(found.values()) for found in (rows, whole.rows))
        raise TrainingError(
            f"the history in that range has changed since the training: {was} rows then, {now} now "
            f"({', '.join(changed[:3])})"
        )
    _, cut_ms = _trained_on(work)
    reference = ReferenceModel("", _nothing, cut_ms)
    if started_from:
        reference = reference_model_of(job, cut_ms, work.options, work.beginning)
        if _started_from(reference) != started_from:
            whose = f"{job.champion}, which no longer exist"
            if job.champion == ONLINE_VERSION:
                whose = "the package, which are others in this version"
            raise TrainingError(f"it began with the weights of {whose}. {reference.note}".strip())
    model, by_ray = work.fit(whole.to_ms if work.family.refits else cut_ms, reference)
    if why := _not_replayable(job, by_ray):
        raise TrainingError(f"this run proves nothing: {why}")
    return artefact.digest(model.arrays())


def _nothing(inputs: Any) -> Any:
    raise AssertionError("a training that is run again is compared with nothing")


def _started_from(reference: ReferenceModel) -> str:
    return "" if reference.start is None else artefact.digest(reference.start.arrays())


def _trained_on(work: _Work) -> tuple[DataRange, int]:
    """The rows to train on, and the end of the newest of them: later ones are held back."""
    whole = work.whole
    if work.job.all_rows:
        return whole, whole.to_ms
    cut_ms = whole.to_ms - round((whole.to_ms - whole.from_ms) * work.job.learn.held_back)
    return work.until(cut_ms), cut_ms


def _not_replayable(job: Job, fitted: FitResult | None) -> str:
    if job.use_gpu:
        return "it was trained on a GPU, which adds in another order every time"
    resumed = fitted is not None and fitted.resumed
    return "it went on from a checkpoint, or with fewer workers than were planned" if resumed else ""


def _plan(work: _Work, found: DataRange, cut_ms: int, reference: ReferenceModel) -> TrainPlan:
    from services.learn.training.trainer import TrainPlan

    job = work.job
    # A zone's first day is left out, and an example needs a truth: see WindowSet.origins.
    too_few = job.spec.steps_per_day + min(job.spec.horizon_steps)
    return TrainPlan(
        name=job.name,
        folder=str(Path(job.storage, TRAININGS)),
        where=job.where,
        spec=job.spec,
        config=training_config(job.learn, job.kind),
        places=zone_places(job.places, found),
        cut_ms=cut_ms,
        shares=dataset.share_out(found.rows, job.workers, too_few),
        workers=job.workers,
        use_gpu=job.use_gpu,
        initial_state=None if reference.start is None else reference.start.arrays(),
        kind=job.kind,
        options=work.options,
        min_workers=job.learn.min_workers,
        sharded=job.learn.sharded,
        keeps=work.keeps,
    )


def _compared_on(work: _Work, cut_ms: int) -> I64:
    """The origins that were held back; where none was, those of the newest tenth, which prove nothing."""
    if work.job.all_rows:
        cut_ms = work.whole.to_ms - (work.whole.to_ms - work.whole.from_ms) // 10
    origins = origins_after(cut_ms, work.cases)
    if not len(origins):
        measured = np.isfinite(work.cases.targets).any(axis=(0, 2))
        last_ms = int(work.cases.end_ms[measured].max(initial=0))
        if 0 < last_ms < cut_ms:
            raise TrainingError(
                f"no sensor of {', '.join(work.job.spec.targets)} has said anything sound since {utc_text(last_ms)}: "
                "there is no row since then that a new model could be judged by"
            )
        raise TooLittleHistoryError("the history is too short: no row that was held back can be forecast")
    return origins


def _hopeless(verdict: Verdict, margin: float) -> bool:
    """Whether the held-back rows show that it is worse than a reference: live rows need not be waited for."""
    lowers: Mapping[str, float | None] = verdict.evidence.get("mae_ratio_lower", {})
    return any(lower is not None and lower >= 1 - min(margin, 0) for lower in lowers.values())


def _curves(fitted: FitResult) -> dict[str, list[float]]:
    return {"loss": [epoch.loss for epoch in fitted.history]}
