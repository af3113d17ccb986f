"""Step 14 of the way of a reading: what a challenger is measured against, and whether it may begin with its weights.

Neither may flatter a model: rows that the champion was trained on prove nothing, and a challenger that begins with the
weights of a champion that has seen the held-back rows has seen them too. Such a champion comes of settings that move
the cut back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models import artefact
from models.families import Model
from services.errors import StorageAwayError
from services.learn.training.job import Job
from services.messages import F32, ONLINE_VERSION
from services.store.storage import fetch_folder

__all__ = ["ReferenceModel", "reference_model_of"]


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """The model that serves now, or the climatology if none serves or it cannot be measured.

    ``note`` is empty, or sentences for people on why the comparison or the start is not the usual one.
    """

    name: str
    predict: Callable[[Any], F32]
    from_ms: int  # only origins from here on may be compared
    start: Model | None = None
    note: str = ""


def reference_model_of(
    job: Job, cut_ms: int, options: Mapping[str, Any] | None, beginning: Model | None = None
) -> ReferenceModel:
    """Load the champion; ``options`` are those of the model that is to be trained, on rows up to ``cut_ms``; ``None``
    where it begins anew whatever serves. Where it does not begin with the champion, it does with ``beginning``.

    A champion that cannot be measured does not stand in the way of one that can serve, but the note says so. Raises
    :class:`StorageAwayError` where nobody knows whether it can be.
    """
    if job.champion == ONLINE_VERSION:
        return ReferenceModel("the climatology", _climatology, cut_ms, start=beginning)
    try:
        found, until_ms = _load(job)
    except artefact.ArtefactError as error:
        return ReferenceModel(
            "the climatology", _climatology, cut_ms, start=beginning,
            note=f"{job.champion} could not be measured: {error}.",
        )  # fmt: skip
    cold = "the start was cold" if beginning is None else "it began with the weights of the package"
    note, comma = "", "" if options is None else f"{cold}, "
    if until_ms > cut_ms:
        note = f"{job.champion} has seen rows after the cut: {comma}later rows were compared."
    elif options is not None and (found.kind != job.kind or found.model.options != dict(options)):
        note = f"{job.champion} has another {found.kind}: {cold}."
    return ReferenceModel(
        job.champion,
        found.model.answer,
        from_ms=max(cut_ms, until_ms),
        start=beginning if note or options is None else found.model,
        note=note,
    )


def _load(job: Job) -> tuple[artefact.Artefact, int]:
    """The champion, and the newest row that it was trained on: whichever is later of what its manifest and the registry
    say. A manifest that was made elsewhere knows nothing of the rows here.
    """
    if not job.champion_folder:
        raise artefact.ArtefactMissingError("its files are damaged or missing")
    try:
        fetch_folder(job.where, Path(job.champion_folder))
    except StorageAwayError:
        raise
    except OSError as error:
        raise artefact.ArtefactMissingError(f"its files cannot be had: {error}") from error
    model = artefact.load(Path(job.champion_folder), job.spec.hash)
    trained_on = model.manifest.get("trained_on")
    said_ms = trained_on.get("to_ms") if isinstance(trained_on, dict) else None
    known = [ms for ms in (said_ms, job.champion_to_ms) if isinstance(ms, int) and ms]
    if not known:
        raise artefact.ArtefactCorruptError("neither its manifest nor the registry says what it was trained on")
    return model, max(known)


def _climatology(inputs: Any) -> F32:
    return np.asarray(inputs.baseline)
