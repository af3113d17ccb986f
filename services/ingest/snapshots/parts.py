"""Step 4 of the way of a reading: what a partition's state consists of, and how parts of earlier versions are read.

Each part has a version of its own. Whoever changes the form of a part raises its version and adds to ``upgrades`` what
makes the new form of the one before; ``tests/data`` holds folders of earlier versions. A part that cannot be read
(damaged, of a later version, or without an upgrade) is grown again from the history if it is one of ``LEARNED``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

__all__ = [
    "ESSENTIAL",
    "LEARNED",
    "PARTS",
    "NewestRow",
    "PartError",
    "Parts",
    "RingsState",
    "parts_of_format_10",
    "upgraded",
]

_Array = npt.NDArray[Any]


class PartError(Exception):
    """A part cannot be read; the message says why."""


class MadeBy(TypedDict):
    """The settings that rows and learners were made by, and the log that they were made of."""

    rows_by: dict[str, Any]
    learned_by: dict[str, Any]
    log: NotRequired[str]  # its name, where it has one


class FiguresState(TypedDict):
    """Counts since the beginning of the log, and times by site."""

    counts: dict[str, int]
    rejected: dict[str, int]
    values_refused: dict[str, int]
    stream_ms: dict[str, int]
    kept_ms: dict[str, int]


class NewestRow(TypedDict):
    """The newest closed step of a site, with ``Z`` zones and ``C`` channels."""

    site: str
    end_ms: int
    zones: list[str]
    values: npt.NDArray[np.float32]  # [Z, C]
    ages_s: npt.NDArray[np.float32]  # [Z, C]
    faults: list[list[str]]


class Newest(TypedDict):
    """The zones in the order of their numbers, and each site's newest row."""

    zones: list[tuple[str, str]]
    latest: list[NewestRow]


class RingsState(TypedDict):
    """See ``services.ingest.learned.rings.Rings``."""

    zones: list[tuple[str, str]]
    channels: int
    columns: npt.NDArray[np.int64]
    blocks: list[_Array]
    newest: npt.NDArray[np.int64]


class BasisState(TypedDict):
    """What the forecast from a site's newest row is mixed from."""

    day_bin: npt.NDArray[np.int64]
    experts: npt.NDArray[np.float32]


class Parts(TypedDict):
    """The state of a partition before the record at an offset."""

    made_by: MadeBy
    windows: dict[str, Any]  # see services.ingest.windows
    figures: FiguresState
    newest: Newest
    waiting: list[dict[str, Any]]  # origins (services.ingest.forecasting) that wait for their forecast
    rings: RingsState
    past: RingsState
    forecaster: dict[str, Any]  # see models.online.online_forecaster
    bases: dict[str, BasisState]  # by site
    scores: dict[str, _Array]  # see models.evaluation.scoring
    watch: dict[str, Any]  # see services.ingest.learned.signal_watch
    paths: dict[str, Any]  # see models.paths.paths; empty where nothing was learned yet
    plans: dict[str, Any]  # see services.ingest.plans.intake
    seen_changes: dict[str, _Array]  # see models.effects.seen_changes; empty where nothing was seen yet
    alerts: dict[str, Any]  # see services.ingest.alerts.partition_alerts; empty where none was ever known


@dataclass(frozen=True, slots=True)
class Form:
    """The present version of a part; ``upgrades[v]`` makes version ``v + 1`` of version ``v``, and ``missing`` makes
    the part of a snapshot whose release did not know it.
    """

    version: int = 1
    upgrades: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)
    missing: Callable[[], Any] | None = None


PARTS: dict[str, Form] = {name: Form() for name in Parts.__annotations__}
PARTS["forecaster"] = PARTS["scores"] = PARTS["watch"] = Form(2, {1: lambda state: state})  # who loads it makes it new
PARTS["plans"] = Form(missing=lambda: {"sites": {}})
PARTS["paths"] = PARTS["seen_changes"] = PARTS["alerts"] = Form(missing=dict)

LEARNED = frozenset(
    {"rings", "past", "forecaster", "bases", "scores", "watch", "plans", "paths", "seen_changes", "alerts"}
)
"""The parts that can be grown again from the history and the issued forecasts; alerts begin anew. They change only when
rows close, forecasts are issued, plans are taken and rules have looked.
"""

ESSENTIAL = frozenset({"made_by", "windows", "figures", "newest"})
"""Without these a snapshot is of no use."""


def upgraded(name: str, version: int, state: Any, forms: Mapping[str, Form] = PARTS) -> Any:
    """A part in the form of this version.

    Raises :class:`PartError` for one that this version cannot make of it.

    >>> forms = {"figures": Form(2, {1: lambda state: {**state, "late": 0}})}
    >>> upgraded("figures", 1, {"rows": 4}, forms)
    {'rows': 4, 'late': 0}
    >>> upgraded("figures", 3, {}, forms)
    Traceback (most recent call last):
    services.ingest.snapshots.parts.PartError: it has version 3, this release reads up to 2
    """
    form = forms.get(name)
    if form is None:
        raise PartError("this release does not know this part")
    if version > form.version:
        raise PartError(f"it has version {version}, this release reads up to {form.version}")
    while version < form.version:
        if version not in form.upgrades:
            raise PartError(f"it has version {version}, which this release does not read any more")
        state, version = form.upgrades[version](state), version + 1
    return state


def parts_of_format_10(state: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, all of version 1, of the state that a snapshot of format 10 holds as one."""
    figures = {name: state[name] for name in FiguresState.__annotations__}
    same = {name: state[name] for name in Parts.__annotations__ if name in state}
    return {
        "made_by": {name: state[name] for name in ("rows_by", "learned_by")}, "figures": figures,
        "newest": {"zones": state["rings"]["zones"], "latest": state["latest"]}, **same,
    }  # fmt: skip
