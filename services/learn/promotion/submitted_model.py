"""Step 15 of the way of a reading: a model that was made elsewhere is copied to the storage, and examined there."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.errors import NO_ROOM, ModelFilesError, TrainingError
from services.learn.experts import NETWORK, Expert, expert_for
from services.learn.records import Candidate
from services.messages import TrainedOn
from services.store.storage import StorageAddress, forget_folder, keep_folder

__all__ = ["submitted_candidate"]

MOST_BYTES = 500_000_000
ARTEFACT_FILES = ("manifest.json", "weights.safetensors", "golden.safetensors")


def submitted_candidate(
    folder: str, copy: Path, where: StorageAddress | None, expert: Expert, newest_ms: int,
    examine: Callable[[str], Mapping[str, Any]],
) -> Candidate:  # fmt: skip
    """A candidate of the artefact in ``folder``, from its ``copy`` in the storage; of one that cannot serve there no
    copy stays.

    It counts as trained on every row up to ``newest_ms``: what its manifest says cannot be checked. ``examine`` gives
    the manifest of a copy that can serve, and raises where it cannot. Raises :class:`TrainingError` where there is no
    artefact, no room, or one of another expert.
    """
    try:
        try:
            _copy_artefact(Path(folder), copy)
            keep_folder(where, copy)  # it may be examined on another machine
        except OSError as error:
            raise TrainingError(f"the model cannot be copied to the storage: {error}") from error
        manifest = examine(str(copy))
        kind = str(manifest.get("kind", NETWORK.name))
        if expert_for(kind) is not expert:
            raise TrainingError(f"{folder} holds a model of kind {kind}, which is none for the {expert.name}")
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        with suppress(OSError):
            forget_folder(where, copy)
        raise
    trained_on = TrainedOn(to_ms=newest_ms, to=datetime.fromtimestamp(newest_ms / 1000, UTC).isoformat())
    return Candidate(
        folder=str(copy), kind=kind, weights_sha256=manifest["weights_sha256"], trained_on=trained_on,
        log_offsets={}, params={"submitted": folder, "said_trained_on": str(manifest.get("trained_on"))[:400]},
        held_back_mae={}, curves={}, recipe={}, evidence={}, shadow=True, passed=False,
        reason="Submitted; live rows judge it.", forced=False,
    )  # fmt: skip


def _copy_artefact(folder: Path, to: Path) -> None:
    """Copy the files that an artefact has; plain ones of a sane size only.

    Raises :class:`TrainingError` if there is none, :class:`ModelFilesError` if it is torn, ``OSError`` without room.
    """
    if not (folder / ARTEFACT_FILES[0]).is_file():
        raise TrainingError(f"{folder} holds no model: it has no {ARTEFACT_FILES[0]}")
    to.mkdir(parents=True)
    for name in ARTEFACT_FILES:
        try:
            found = (folder / name).lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                raise ModelFilesError(f"{name} is not a plain file of at most {MOST_BYTES // 1_000_000} MB")
            shutil.copyfile(folder / name, to / name, follow_symlinks=False)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:  # that says nothing of the model
                raise
            raise ModelFilesError(f"{name} cannot be read: {error}") from error
