"""Step 15 of the way of a reading: what the registry keeps of a model, as candidates bring it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from services.learn.experts import NETWORK, Expert
from services.messages import ModelRow, Pruned, Shadow, TrainedOn

__all__ = ["Candidate", "LiveVerdict", "TrainingRequest", "refused_candidate", "row_of", "said_by", "tags_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRequest:
    """What a retraining is to do."""

    champion: str  # ONLINE_VERSION, or "v3" and so on
    champion_folder: str  # empty without a network
    log_offsets: Mapping[str, int]  # that the history reached
    started_ms: int
    level: float  # significance level of the gate: the chance that it passes a model that is no better
    shadow: bool = False  # live rows will judge it
    all_rows: bool = False  # hold none back
    champion_to_ms: int = 0  # the newest row that the champion counts as trained on; 0: nobody knows


class Candidate(TypedDict):
    """One training's product as it goes into the registry; JSON-able."""

    folder: str  # of the artefact, on the storage
    kind: str  # of its family
    weights_sha256: str
    trained_on: TrainedOn
    log_offsets: dict[str, int]  # partition -> offset that the history reached
    params: dict[str, Any]
    held_back_mae: dict[str, dict[str, dict[str, float]]]  # target -> horizon_min -> {model, champion, baselines...}
    curves: dict[str, list[float]]  # name -> one value an epoch
    recipe: dict[str, Any]  # of services.learn.training.recipe: what it takes to train it again
    evidence: dict[str, Any]  # the gate's numbers
    shadow: bool  # it is judged on live rows yet
    passed: bool
    reason: str  # of the gate, one sentence
    forced: bool  # promoted although the gate refused


class LiveVerdict(TypedDict):
    """What a comparison on rows of the history came to."""

    promote: bool
    reason: str
    evidence: dict[str, Any]  # the gate's numbers


def refused_candidate(reason: str) -> Candidate:
    """The record of an unusable model, so that the list of models shows the reason."""
    return Candidate(
        folder="", kind="", weights_sha256="", trained_on={}, log_offsets={}, params={}, held_back_mae={}, curves={},
        recipe={}, evidence={}, shadow=False, passed=False, reason=reason, forced=False,
    )  # fmt: skip


_TAGS: Mapping[str, Any] = {
    "folder": str, "kind": str, "weights_sha256": str, "trained_on": TrainedOn, "log_offsets": dict[str, int],
    "held_back_mae": dict[str, dict[str, dict[str, float]]], "passed": bool, "reason": str, "forced": bool,
    "judged_against": str, "shadow": Shadow | None, "watch": Shadow | None, "withdrawn": str, "pruned": Pruned | None,
    "due": str,
}  # fmt: skip
"""Each with the form that we write it in. ``due`` is the champion that a version is to replace, while that was decided
and not done yet; versions that an earlier release registered have none."""


def tags_of(known: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a model's version, each as JSON."""
    return {name: json.dumps(value) for name, value in known.items() if name in _TAGS}


def said_by(tags: Mapping[str, str]) -> dict[str, Any]:
    """What tags of a version say. Others may write into MLflow, too: what is in no form of ours is left out.

    >>> said_by({"passed": "true", "folder": "7", "reason": "{", "theirs": "1"})
    {'passed': True}
    """
    found = {}
    for name, form in _TAGS.items():
        try:
            found[name] = msgspec.convert(json.loads(tags[name]), form)
        except (KeyError, ValueError, RecursionError):  # msgspec's and json's errors are ValueErrors
            continue
    return found


def row_of(version: Any, aliases: Sequence[str], expert: Expert = NETWORK) -> ModelRow:
    """A model from MLflow's record of its version, and its aliases."""
    tags = said_by(version.tags)
    return ModelRow(
        version=f"{expert.prefix}{version.version}", expert=expert.name, kind=tags.get("kind", NETWORK.name),
        stage=_stage(tags, aliases), aliases=sorted(aliases), created_ms=version.creation_timestamp,
        weights_sha256=tags.get("weights_sha256", ""),
        trained_on=tags.get("trained_on", {}), held_back_mae=tags.get("held_back_mae", {}),
        passed=bool(tags.get("passed", False)), reason=tags.get("withdrawn") or tags.get("reason", ""),
        forced=bool(tags.get("forced", False)), folder=tags.get("folder", ""),
        judged_against=tags.get("judged_against", ""), shadow=tags.get("shadow"),
        # What took a champion's place ends its watch, and leaves what is recorded of it.
        watch=tags.get("watch") if "champion" in aliases else None, pruned=tags.get("pruned"),
    )  # fmt: skip


def _stage(tags: Mapping[str, Any], aliases: Sequence[str]) -> str:
    if "champion" in aliases:
        return "champion"
    if tags.get("withdrawn"):
        return "withdrawn"
    if "previous" in aliases:
        return "previous"
    if tags.get("shadow"):
        return "shadow"
    if not tags.get("passed", False) and not tags.get("forced", False):
        return "refused"
    return "challenger" if "challenger" in aliases else "retired"
