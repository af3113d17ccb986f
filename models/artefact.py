"""Step 15 of the way of a reading: a model as a folder of plain files.

``weights.safetensors``, ``golden.safetensors`` (an input and the output it must give) and ``manifest.json``. Nothing
is ever unpickled; a folder that is torn, altered or of another schema is refused with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from models.features.inputs import Inputs, build_inputs
from models.network.quantile import QuantileNetwork
from models.spec import QUANTILES, ForecastSpec, Place

__all__ = [
    "ArtefactCorruptError", "ArtefactError", "ArtefactMissingError", "ArtefactSchemaError", "Model", "digest", "load",
    "save",
]  # fmt: skip

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

FORMAT = 1
GOLDEN_TOLERANCE = 1e-3
"""How far a golden output may be off, relative to its size where that exceeds 1: another CPU rounds differently."""

_WEIGHTS, _GOLDEN, _MANIFEST = "weights.safetensors", "golden.safetensors", "manifest.json"


class ArtefactError(Exception):
    """A model's folder cannot be used."""


class ArtefactMissingError(ArtefactError):
    """The folder or one of its files is not there."""


class ArtefactCorruptError(ArtefactError):
    """A file is torn or altered, or the golden output is not reproduced."""


class ArtefactSchemaError(ArtefactError):
    """The model was made for other channels, targets or horizons, or by a format that this code does not know."""


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded network with its manifest; :meth:`predict` may be called from several threads."""

    spec: ForecastSpec
    network: QuantileNetwork
    manifest: dict[str, Any]
    golden: tuple[Inputs, F32]

    def predict(self, values: F32, origin_ms: I64, places: Sequence[Place], baseline: F32) -> F32:
        """Forecast from rows: arguments as of :func:`models.features.inputs.build_inputs`; ``-> [N, H, M, Q]``."""
        return self.network.predict(build_inputs(values, origin_ms, places, baseline, self.spec))

    def verify_golden(self, tolerance: float = GOLDEN_TOLERANCE) -> None:
        """Raise :class:`ArtefactCorruptError` unless the golden input gives the golden output."""
        inputs, expected = self.golden
        given = self.network.predict(inputs)
        if not np.array_equal(np.isnan(given), np.isnan(expected)):
            raise ArtefactCorruptError("the golden output is not reproduced: values are missing")
        off = np.abs(given - expected) / np.maximum(np.abs(expected), 1)
        worst = float(np.nanmax(off, initial=0))
        if not worst <= tolerance:
            raise ArtefactCorruptError(f"the golden output is off by {worst:.2g}, at most {tolerance:g} is allowed")


def save(
    folder: Path, network: QuantileNetwork, golden: Inputs, *, trained_on: Mapping[str, Any], seed: int,
    metrics: Mapping[str, Any], code_version: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Write a model to ``folder``, whole or not at all, and return its manifest.

    ``golden`` is a handful of real inputs; ``trained_on`` names log offsets and history range; ``metrics`` is
    JSON-able. Raises ``FileExistsError`` where the folder exists: an artefact never changes.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists; an artefact never changes")
    network.eval()
    spec = network.spec
    weights = save_tensors(network.arrays())
    tensors = {field.name: np.ascontiguousarray(getattr(golden, field.name)) for field in fields(Inputs)}
    expected = save_tensors({**tensors, "output": network.predict(golden)})
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "schema_hash": spec.hash,
        "spec": asdict(spec),
        "quantiles": list(QUANTILES),
        "network": network.options,
        "trained_on": dict(trained_on),
        "seed": seed,
        "metrics": dict(metrics),
        "versions": {
            "code": code_version,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "golden_sha256": hashlib.sha256(expected).hexdigest(),
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(beside / _WEIGHTS, weights)
        _write(beside / _GOLDEN, expected)
        _write(beside / _MANIFEST, json.dumps(manifest, indent=2, allow_nan=False).encode())
        beside.chmod(0o755)
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return manifest


def digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """The SHA-256 of the file that holds a network's ``arrays``: equal weights, equal digest."""
    return hashlib.sha256(save_tensors(dict(arrays))).hexdigest()


def load(folder: Path, schema_hash: str | None = None) -> Model:
    """Read a model, checking every file's digest, and its schema where ``schema_hash`` is given.

    Raises an :class:`ArtefactError`; the golden output is not run yet (:meth:`Model.verify_golden`).
    """
    manifest = _manifest(folder)
    if manifest.get("format") != FORMAT:
        raise ArtefactSchemaError(f"{folder} has format {manifest.get('format')!r}, this code reads {FORMAT}")
    weights = _read(folder / _WEIGHTS, manifest.get("weights_sha256"))
    golden = _read(folder / _GOLDEN, manifest.get("golden_sha256"))
    try:
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in manifest["spec"].items()}
        spec = ForecastSpec(**given)
        network = QuantileNetwork(spec, **manifest["network"])
        arrays = load_tensors(weights)
        network.load_arrays(arrays)
        tensors = load_tensors(golden)
        expected = tensors.pop("output")
        inputs = Inputs(**tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        raise ArtefactCorruptError(f"{folder} does not hold a model: {error}") from error
    wild = sorted(name for name, array in arrays.items() if not np.isfinite(array).all())
    if wild:
        raise ArtefactCorruptError(f"{folder}: weights are not finite ({', '.join(wild[:3])})")
    if spec.hash != manifest.get("schema_hash"):
        raise ArtefactCorruptError(f"{folder}: the manifest's schema hash does not fit its schema")
    if schema_hash is not None and spec.hash != schema_hash:
        raise ArtefactSchemaError(f"{folder} was made for schema {spec.hash}, rows now have {schema_hash}")
    network.eval()
    return Model(spec, network, manifest, (inputs, expected))


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise ArtefactMissingError(f"{folder} has no {_MANIFEST}") from error
    except (ValueError, OSError) as error:
        raise ArtefactCorruptError(f"{folder / _MANIFEST} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise ArtefactCorruptError(f"{folder / _MANIFEST} is not an object")
    return manifest


def _read(path: Path, digest: object) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ArtefactMissingError(f"{path} is not there") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise ArtefactCorruptError(f"{path} is torn or altered: its SHA-256 is not the manifest's")
    return content


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
