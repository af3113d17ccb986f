"""A forecaster of frames as one file: arrays as safetensors, with what they are for. Nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from models.frames.frame_learner import FrameLearner
from models.frames.frame_options import FrameOptions
from models.frames.frame_samples import MetricMeaning
from models.spec import ForecastSpec, Place

__all__ = ["read_learner", "write_learner"]

FORMAT = 1

_Array = npt.NDArray[Any]


def write_learner(path: Path, options: FrameOptions, learner: FrameLearner) -> None:
    """Write it to ``path``, whole or not at all: after a crash the file is the one before, or this one. Raises
    ``OSError`` if that fails.
    """
    state = learner.state_dict()
    told = {
        "format": FORMAT, "zones": state["rows"].pop("zones"), "start_ms": learner.start_ms,
        "spec": asdict(learner.spec), "place": asdict(options.place), "step_min": options.step_min,
        "targets": options.targets, "horizons_min": options.horizons_min,
    }  # fmt: skip
    beside = path.with_name(f".{path.name}.tmp")
    try:
        save_file(_flat(state), beside, {"hothouse": json.dumps(told)})
        beside.replace(path)
    except (OSError, SafetensorError) as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def read_learner(path: Path, metrics: Mapping[str, MetricMeaning]) -> tuple[FrameOptions, FrameLearner]:
    """Read what :func:`write_learner` wrote; raises ``ValueError`` in one sentence if that cannot be."""
    try:
        with safe_open(path, "np") as file:
            told = json.loads(file.metadata()["hothouse"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        written_as = told["format"]
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}: save a forecaster there first") from error
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ValueError(f"{path} is no saved forecaster, or it is damaged: {error}") from error
    if written_as != FORMAT:
        raise ValueError(f"{path} was saved by another version of Hothouse: fit again")
    said: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in told["spec"].items()
    }
    spec = ForecastSpec(**said)
    if spec.channels != tuple(metrics):
        raise ValueError(f"{path} was saved with another vocabulary: load it with the one that it was fitted with")
    options = FrameOptions(
        dict(metrics), Place(**told["place"]), told["step_min"],
        *(None if told[name] is None else tuple(told[name]) for name in ("targets", "horizons_min")),
    )  # fmt: skip
    state = _nested(arrays)
    state["rows"]["zones"] = told["zones"]
    learner = FrameLearner(spec, options, told["start_ms"])
    try:
        learner.load_state_dict(state)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} was saved by another version of Hothouse: fit again ({error})") from error
    return options, learner


def _flat(state: Mapping[str, Any], above: str = "") -> dict[str, _Array]:
    """Nested maps as one, with ``/`` between the names; ``a/b/`` says that ``a/b`` is a map that is empty."""
    found: dict[str, _Array] = {} if state else {above: np.empty(0)}
    for name, value in state.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{name}/")
        else:
            found[above + name] = np.array(value, order="C")
    return found


def _nested(arrays: Mapping[str, _Array]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, array in arrays.items():
        *above, last = name.split("/")
        part = state
        for each in above:
            part = part.setdefault(each, {})
        if last:
            part[last] = array
    return state
