"""Steps 12 to 14 of the way of a reading: what one retraining is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from models.spec import ForecastSpec, Place
from services.config import LearnSettings
from services.store.storage import StorageAddress

__all__ = ["Job"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Everything that a retraining needs to know; its rows are those with ``after_ms < end_ms <= to_ms``."""

    name: str
    storage: str
    spec: ForecastSpec
    learn: LearnSettings
    places: Mapping[str, Place]  # site -> place
    files: tuple[str, ...]
    after_ms: int
    to_ms: int
    log_offsets: Mapping[str, int]
    champion: str  # ONLINE_VERSION, or "v3" and so on
    champion_folder: str  # empty without a network
    use_gpu: bool
    workers: int  # of Ray Train; 0: in the process of the job
    champion_to_ms: int = 0  # the newest row that the registry says it was trained on; 0: it does not say
    level: float = 0.1  # significance level of the gate: the chance that it passes a model that is no better
    margin: float = 0.0  # by how much its error must be smaller, as a share of its rivals' errors
    shadow: bool = False  # it is judged on live rows afterwards
    all_rows: bool = False  # none is held back: only with ``shadow``
    kind: str = "network"  # of the model to train
    where: StorageAddress | None = None  # the storage that ``files`` are URLs of; None: they are paths
