"""Step 15 of the way of a reading: a model of any kind, as a folder of plain files.

``weights.safetensors``, ``golden.safetensors`` (an input and the output it must give) and ``manifest.json``, whose
``kind`` names the family that understands them. Nothing is ever unpickled; a folder that is torn, altered or of another
schema is refused with the reason. Only a network's family needs torch.
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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from models.families import Model, UnknownFamilyError, family_of, takes_of
from models.features.inputs import Inputs, build_inputs
from models.network.tuned_network import CorrectionInputs
from models.spec import QUANTILES, ForecastSpec, Place
from models.trees.example_set import Regressors

__all__ = [
    "MOST_BYTES", "Artefact", "ArtefactCorruptError", "ArtefactError", "ArtefactMissingError", "ArtefactSchemaError",
    "check_size", "digest", "load", "save",
]  # fmt: skip

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

FORMAT = 2
"""Format 1 had no ``kind``: it was that of networks, whose options stood under ``network``. It is still read."""

GOLDEN_TOLERANCE = 1e-3
"""How far a golden output may be off, relative to its size where that exceeds 1: another CPU rounds differently."""

MOST_BYTES = 1024**3
"""A file of an artefact may be this long; the largest of ours have a few megabytes."""

NETWORK = "network"
_WEIGHTS, _GOLDEN, _MANIFEST = "weights.safetensors", "golden.safetensors", "manifest.json"


class ArtefactError(Exception):
    """A model's folder cannot be used."""


class ArtefactMissingError(ArtefactError):
    """The folder or one of its files is not there."""


class ArtefactCorruptError(ArtefactError):
    """A file is torn or altered, or the golden output is not reproduced."""


class ArtefactSchemaError(ArtefactError):
    """The model was made for other channels, targets or horizons, or by a format that this code does not know."""


Golden = Inputs | Regressors | CorrectionInputs
_INPUTS: dict[str, type[Golden]] = {"windows": Inputs, "examples": Regressors, "forecasts": CorrectionInputs}
"""The inputs of each kind, in the form in which golden inputs are kept."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """A loaded model with its manifest; :meth:`predict` may be called from several threads."""

    spec: ForecastSpec
    kind: str
    model: Model
    manifest: dict[str, Any]
    golden: tuple[Golden, F32]

    def predict(
        self, values: F32, origin_ms: I64, places: Sequence[Place], baseline: F32, ahead: F32 | None = None
    ) -> F32:
        """Forecast from rows: arguments as of :func:`models.features.inputs.build_inputs`; ``-> [N, H, M, Q]``.

        For kinds that take windows.
        """
        return self.model.answer(build_inputs(values, origin_ms, places, baseline, self.spec, ahead))

    def verify_golden(self, tolerance: float = GOLDEN_TOLERANCE) -> None:
        """Raise :class:`ArtefactCorruptError` unless the golden input gives the golden output."""
        inputs, expected = self.golden
        given = self.model.answer(inputs)
        if not np.array_equal(np.isnan(given), np.isnan(expected)):
            raise ArtefactCorruptError("the golden output is not reproduced: values are missing")
        off = np.abs(given - expected) / np.maximum(np.abs(expected), 1)
        worst = float(np.nanmax(off, initial=0))
        if not worst <= tolerance:
            raise ArtefactCorruptError(f"the golden output is off by {worst:.2g}, at most {tolerance:g} is allowed")


def save(
    folder: Path, model: Model, golden: Golden, *, trained_on: Mapping[str, Any], seed: int,
    metrics: Mapping[str, Any], code_version: str = "", kind: str = NETWORK,
) -> dict[str, Any]:  # fmt: skip
    """Write a model to ``folder``, whole or not at all, and return its manifest.

    ``golden`` is a handful of real inputs; ``trained_on`` names log offsets and history range; ``metrics`` is
    JSON-able. Raises ``FileExistsError`` if the folder exists: an artefact never changes.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists; an artefact never changes")
    spec = model.spec
    weights = save_tensors(model.arrays())
    inputs = _INPUTS[takes_of(kind)]
    tensors = {field.name: np.ascontiguousarray(getattr(golden, field.name)) for field in fields(inputs)}
    expected = save_tensors({**tensors, "output": np.ascontiguousarray(model.answer(golden))})
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "schema_hash": spec.hash,
        "spec": asdict(spec),
        "quantiles": list(QUANTILES),
        "options": model.options,
        "trained_on": dict(trained_on),
        "seed": seed,
        "metrics": dict(metrics),
        "versions": {
            "code": code_version,
            "python": platform.python_version(),
            **{name: _version_of(name) for name in ("torch", "numpy", "lightgbm")},
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


def _version_of(package: str) -> str:
    """The package's version. LightGBM may be missing where only networks are trained."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """The SHA-256 of the file that holds a network's ``arrays``: equal weights, equal digest."""
    return hashlib.sha256(save_tensors(dict(arrays))).hexdigest()


def load(folder: Path, schema_hash: str | None = None) -> Artefact:
    """Read a model, checking every file's digest, and its schema where ``schema_hash`` is given.

    Raises an :class:`ArtefactError`; the golden output is not run yet (:meth:`Artefact.verify_golden`).
    """
    manifest = _manifest(folder)
    if manifest.get("format") not in (1, FORMAT):
        raise ArtefactSchemaError(f"{folder} has format {manifest.get('format')!r}, this code reads 1 and {FORMAT}")
    kind = manifest.get("kind", NETWORK)
    try:
        family = family_of(kind)
    except (UnknownFamilyError, TypeError) as error:
        raise ArtefactSchemaError(f"{folder} cannot be used: {error}") from error
    weights = _read(folder / _WEIGHTS, manifest.get("weights_sha256"))
    golden = _read(folder / _GOLDEN, manifest.get("golden_sha256"))
    try:
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in manifest["spec"].items()}
        spec = ForecastSpec(**given)
        arrays = load_tensors(weights)
        model = family.load(spec, manifest["network" if manifest["format"] == 1 else "options"], arrays)
        tensors = load_tensors(golden)
        expected = tensors.pop("output")
        inputs = _INPUTS[takes_of(kind)](**tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        raise ArtefactCorruptError(f"{folder} does not hold a model: {error}") from error
    wild = sorted(name for name, array in arrays.items() if np.isnan(array).any())
    if wild:
        raise ArtefactCorruptError(f"{folder}: weights are no numbers ({', '.join(wild[:3])})")
    if spec.hash != manifest.get("schema_hash"):
        raise ArtefactCorruptError(f"{folder}: the manifest's schema hash does not fit its schema")
    if schema_hash is not None and spec.hash != schema_hash:
        raise ArtefactSchemaError(f"{folder} was made for schema {spec.hash}, rows now have {schema_hash}")
    return Artefact(spec, kind, model, manifest, (inputs, expected))


def check_size(path: Path) -> None:
    """Raise :class:`ArtefactCorruptError` for a file that is too large to be read, before it is. ``OSError`` if it is
    not there.
    """
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ArtefactCorruptError(f"{path} has {size:,} bytes, at most {MOST_BYTES:,} are read")


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        check_size(folder / _MANIFEST)
        manifest = json.loads((folder / _MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise ArtefactMissingError(f"{folder} has no {_MANIFEST}") from error
    except (ValueError, OSError, RecursionError) as error:
        raise ArtefactCorruptError(f"{folder / _MANIFEST} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise ArtefactCorruptError(f"{folder / _MANIFEST} is not an object")
    return manifest


def _read(path: Path, digest: object) -> bytes:
    try:
        check_size(path)
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
