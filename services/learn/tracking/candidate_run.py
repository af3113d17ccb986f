"""Step 15 of the way of a reading: the MLflow run of a candidate.

A run keeps the candidate's settings, curves, errors, record, evidence and files. A candidate without an artefact has a
run, too: it says why the candidate was refused.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from services.errors import ModelFilesError
from services.learn.records import Candidate
from services.learn.tracking.mlflow_import import Metric, MlflowClient, Param, Run

__all__ = ["MODEL_FILES", "MOST_RECORD_BYTES", "read_candidate", "record_run"]

CANDIDATE = "candidate.json"
EVIDENCE = "gate.json"
MODEL_FILES = "model"
"""The folder, in the run's artifact store, of MLflow's copy of the artefact."""
MOST_RECORD_BYTES = 64 * 1024**2
"""MLflow's copy of a candidate's record may be this long; ours are some kilobytes."""


def record_run(client: MlflowClient, experiment: str, candidate: Candidate, created_ms: int) -> Run:
    """Record a candidate; the same call again completes what was cut short.

    A candidate with an artefact is one run, also where the answer was lost and not the call.
    """
    run = _begun(client, experiment, candidate, created_ms) or client.create_run(
        experiment, start_time=created_ms, run_name=Path(candidate["folder"]).name
    )
    run_id = run.info.run_id
    client.log_batch(
        run_id,
        metrics=list(_metrics(candidate, created_ms)),
        params=[Param(name, str(value)[:500]) for name, value in candidate["params"].items()],
    )
    client.log_dict(run_id, dict(candidate), CANDIDATE)
    client.log_dict(run_id, candidate["evidence"], EVIDENCE)
    if candidate["folder"]:
        client.log_artifacts(run_id, candidate["folder"], MODEL_FILES)
    return run


def read_candidate(client: MlflowClient, run_id: str, version: str) -> Candidate:
    """The record of the candidate that became ``version``; :class:`ModelFilesError` when MLflow has lost it."""
    sizes = {one.path: one.file_size or 0 for one in client.list_artifacts(run_id)}
    if (size := sizes.get(CANDIDATE, 0)) > MOST_RECORD_BYTES:
        raise ModelFilesError(f"the record of {version} cannot be read: it has {size:,} bytes")
    with tempfile.TemporaryDirectory() as folder:
        try:
            kept = Path(client.download_artifacts(run_id, CANDIDATE, folder))
            return cast(Candidate, json.loads(kept.read_bytes()))
        except (OSError, ValueError) as error:
            raise ModelFilesError(f"the record of {version} cannot be read: {error}") from error


def _begun(client: MlflowClient, experiment: str, candidate: Candidate, created_ms: int) -> Run | None:
    """The run of a registration that was cut short."""
    if not candidate["folder"]:
        return None
    name = Path(candidate["folder"]).name
    known = f"attributes.run_name = '{name}' and attributes.start_time = {created_ms}"
    return next(iter(client.search_runs([experiment], known)), None)


def _metrics(candidate: Candidate, at_ms: int) -> Iterator[Metric]:
    for name, values in candidate["curves"].items():
        for epoch, value in enumerate(values):
            yield Metric(name, value, at_ms, epoch)
    for target, horizons in candidate["held_back_mae"].items():
        for horizon, errors in horizons.items():
            for who, value in errors.items():
                yield Metric(f"mae/{target}/{int(horizon):04d}min/{who}", value, at_ms, 0)
