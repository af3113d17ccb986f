"""What the learning loop shows: its figures, its models, its events; and what it answers to operators."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from edge.figure_fields import counter, gauge

__all__ = [
    "EventDetails",
    "LearningCounts",
    "LearningFigures",
    "LiveEvent",
    "ModelRow",
    "ModelSubmitted",
    "Moved",
    "Pruned",
    "Shadow",
    "TrainedOn",
    "TrainingAccepted",
    "TrainingRun",
]

TrainedOn = TypedDict(
    "TrainedOn",
    {
        "from": str, "to": str, "held_back_until": str,  # ISO 8601
        "from_ms": int, "to_ms": int, "known_to_ms": int, "rows": int, "zones": int,
    },
    total=False,
)  # fmt: skip
"""The rows that a model was trained on; ``known_to_ms`` is the newest that its training knew. Of a model that was made
elsewhere little is known.
"""


class Shadow(TypedDict):
    """A comparison that is under way; times are event times."""

    against: str  # a version, or ONLINE_VERSION
    from_ms: int  # rows that end later count; negative: it begins with the next row
    until_ms: int  # the verdict comes with the first row that ends then or later


class Pruned(TypedDict):
    """A model's files are removed; what is recorded of it stays."""

    at_ms: int  # since when it cannot serve any more
    done: bool  # they are gone; before, they may be in use yet


class ModelRow(TypedDict):
    """One model as ``hothouse models list``, ``GET /models`` and the page show it; JSON-able."""

    version: str
    expert: str  # the place in the mixture that it is for
    kind: str  # of its family; empty where there is no artefact
    stage: str  # champion | previous | shadow | withdrawn | refused | challenger | retired
    aliases: list[str]
    created_ms: int
    weights_sha256: str
    trained_on: TrainedOn
    held_back_mae: dict[str, dict[str, dict[str, float]]]
    passed: bool
    reason: str
    forced: bool
    folder: str
    judged_against: str  # the champion that the gate compared it with; empty: it was not judged
    shadow: Shadow | None  # it is being compared with the champion
    watch: Shadow | None  # it is champion, and being compared with the one before it
    pruned: Pruned | None  # its files are no longer kept


class TrainingRun(TrainedOn, total=False):
    """A retraining that runs or has run: why, when, on which rows, and what came of it."""

    kind: str  # of the trigger
    reason: str
    started_ms: int
    trained_ms: int
    ended_ms: int
    took_s: float  # until its challenger was there, and at last until it ended; by a clock that nobody sets
    version: str
    verdict: str
    result: str  # promoted | forced | refused | in shadow | too early | failed
    error: str


class LearningCounts(TypedDict):
    """What a retrainer counts, since it started."""

    retrains: Annotated[int, counter("hothouse_retrains_total", "Trainings whose challenger was registered.")]
    refused: Annotated[
        int, counter("hothouse_challengers_refused_total", "Challengers that the gate or live rows refused.")
    ]
    failed: Annotated[int, counter("hothouse_retrains_failed_total", "Trainings that failed.")]
    swaps: Annotated[int, counter("hothouse_swaps_total", "Changes of the champion.")]
    forced: Annotated[
        int, counter("hothouse_promotions_forced_total", "Challengers that serve although the gate refused them.")
    ]
    rollbacks: Annotated[
        int, counter("hothouse_rollbacks_total", "Champions that were withdrawn because live rows showed them worse.")
    ]


class LearningFigures(LearningCounts):
    """What runs, what ran, what comes, and how often."""

    serving: str
    running: TrainingRun | None
    last_run: TrainingRun | None
    training: Annotated[bool, gauge("hothouse_training_running", "1 while a training runs.")]
    trained_ms: Annotated[
        int | None,
        gauge(
            "hothouse_last_training_timestamp_seconds", "When the last training ended, whatever came of it.",
            unit="seconds", scale=1e-3, field="When the last training ended, in ms.",
        ),
    ]  # fmt: skip
    trained_s: Annotated[
        float | None,
        gauge("hothouse_last_training_seconds", "How long the last training took, its gate included.", unit="seconds"),
    ]
    last_error: Annotated[
        str,
        gauge(
            "hothouse_learning_failing", "1 while something of the learning loop fails.",
            field="What fails now; empty when all works.",
        ),
    ]  # fmt: skip
    registry_error: Annotated[
        str,
        gauge(
            "hothouse_registry_failing", "1 while the registry of models does not answer.",
            field="Why the registry does not answer; empty while it does.",
        ),
    ]  # fmt: skip
    next_due_s: Annotated[
        float | None,
        gauge("hothouse_next_retrain_seconds", "Time until the next training can begin by itself.", unit="seconds"),
    ]
    next_training: str  # the same in words, and why then


class EventDetails(TypedDict, total=False):
    """What is told of an event, as far as it applies."""

    version: str
    before: str
    reason: str
    message: str
    trigger: str
    trigger_kind: str
    seconds: float
    rows: int | None


class LiveEvent(EventDetails):
    """Something that happened in the learning loop; the live state sets ``time_ms`` where it is not given."""

    kind: str  # retrain, swap, shadow, watched, refused, rollback, drift, serving, registry, error
    time_ms: NotRequired[int]


class TrainingAccepted(TypedDict):
    """A training was asked for and begins soon."""

    accepted: bool
    reason: str


class Moved(TypedDict):
    """Which version is champion now, and which was."""

    version: str
    before: str


class ModelSubmitted(TypedDict):
    """An artefact is registered, and live rows compare it with the champion."""

    accepted: bool
    version: str
    against: str
