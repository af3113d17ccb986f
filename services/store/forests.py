"""Step 13 of the way of a reading: trees as an artefact, from the task that grew them to the shards.

``models/forests/{newest row}-{digest}/`` holds ``weights.safetensors`` and ``manifest.json``, there whole or not at
all; names sort by the time of the newest row. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from models.spec import ForecastSpec
from models.trees.forest import Forest
from services.errors import ModelFilesError
from services.store.files import sync_folder
from services.store.parquet import names

__all__ = ["Forests"]

FORMAT = 1
KEPT = 3
"""Older ones are removed: no shard goes back to them."""

_WEIGHTS, _MANIFEST = "weights.safetensors", "manifest.json"


class Forests:
    """Reads and writes the forests under ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root / "models" / "forests"

    def newest(self) -> str:
        """The name of the newest; empty where there is none."""
        return max(names(self._root), default="")

    def keep(self, forest: Forest, spec: ForecastSpec, regressors: int, grown_on: Mapping[str, Any]) -> str:
        """Write a forest that takes this many regressors; its name. ``grown_on`` has ``to_ms`` and is JSON-able.

        Raises :class:`ModelFilesError` where it cannot be kept.
        """
        weights = save(forest.state_dict())
        digest = hashlib.sha256(weights).hexdigest()
        newest = datetime.fromtimestamp(grown_on["to_ms"] / 1000, UTC)
        name = f"{newest:%Y%m%dT%H%M%S}-{digest[:8]}"
        manifest = {
            "format": FORMAT, "schema_hash": spec.hash, "regressors": regressors, "weights_sha256": digest,
            "grown_on": dict(grown_on),
        }  # fmt: skip
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            beside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=self._root))
            try:
                (beside / _WEIGHTS).write_bytes(weights)
                (beside / _MANIFEST).write_text(json.dumps(manifest, indent=2))
                beside.chmod(0o755)
                if not (self._root / name).exists():  # the same rows give the same trees
                    beside.rename(self._root / name)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
            sync_folder(self._root)
            for old in names(self._root)[:-KEPT]:
                shutil.rmtree(self._root / old, ignore_errors=True)
        except OSError as error:
            raise ModelFilesError(f"the trees {name} cannot be kept: {error}") from error
        return name

    def manifest(self, name: str) -> dict[str, Any]:
        """What a forest was grown on and for; raises :class:`ModelFilesError`."""
        try:
            found = json.loads((self._root / name / _MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            raise ModelFilesError(f"the trees {name} cannot be read: {error}") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ModelFilesError(f"the trees {name} have another format than {FORMAT}")
        return found

    def load(self, name: str, spec: ForecastSpec, regressors: int) -> Forest:
        """Read a forest; raises :class:`ModelFilesError` where it is torn, altered, or grown for something else."""
        manifest = self.manifest(name)
        wanted = (spec.hash, regressors)
        if (manifest.get("schema_hash"), manifest.get("regressors")) != wanted:
            raise ModelFilesError(f"the trees {name} were grown for another schema or other regressors")
        try:
            weights = (self._root / name / _WEIGHTS).read_bytes()
            if hashlib.sha256(weights).hexdigest() != manifest.get("weights_sha256"):
                raise ModelFilesError(f"the trees {name} are torn or altered: their SHA-256 is not the manifest's")
            return Forest(len(spec.horizons_min), len(spec.targets), load(weights))
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise ModelFilesError(f"the trees {name} cannot be read: {error}") from error
