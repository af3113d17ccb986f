"""Step 16 of the way of a reading: trees from before the registry had any, read while no newer ones serve.

``models/forests/{newest row}-{digest}/`` holds ``weights.safetensors`` and ``manifest.json``; names sort by the time of
the newest row. Hothouse wrote them until it trained trees as it trains networks. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

from models.spec import ForecastSpec
from models.trees.forest import Forest
from services.errors import ModelFilesError
from services.store.storage import Storage, stored_in

__all__ = ["Forests"]

FORMAT = 1
_FOLDER = "models/forests"
_WEIGHTS, _MANIFEST = "weights.safetensors", "manifest.json"


class Forests:
    """Reads the forests of a storage."""

    def __init__(self, storage: Storage | Path) -> None:
        self._storage = stored_in(storage)

    def newest(self) -> str:
        """The name of the newest; empty if there is none. Raises :class:`ModelFilesError` where nobody knows."""
        try:
            return max(self._storage.list_folder(_FOLDER).folders, default="")
        except OSError as error:
            raise ModelFilesError(f"trees of an earlier release cannot be looked for: {error}") from error

    def manifest(self, name: str) -> dict[str, Any]:
        """What a forest was grown on and for; raises :class:`ModelFilesError`."""
        try:
            found = json.loads(self._storage.read(f"{_FOLDER}/{name}/{_MANIFEST}").content)
        except (OSError, ValueError) as error:
            raise ModelFilesError(f"the trees {name} cannot be read: {error}") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ModelFilesError(f"the trees {name} have another format than {FORMAT}")
        return found

    def load(self, name: str, spec: ForecastSpec, regressors: int) -> Forest:
        """Read a forest; raises :class:`ModelFilesError` if it is torn, altered, or grown for something else."""
        manifest = self.manifest(name)
        wanted = (spec.hash, regressors)
        if (manifest.get("schema_hash"), manifest.get("regressors")) != wanted:
            raise ModelFilesError(f"the trees {name} were grown for another schema or other regressors")
        try:
            weights = self._storage.read(f"{_FOLDER}/{name}/{_WEIGHTS}").content
            if hashlib.sha256(weights).hexdigest() != manifest.get("weights_sha256"):
                raise ModelFilesError(f"the trees {name} are torn or altered: their SHA-256 is not the manifest's")
            return Forest(len(spec.horizons_min), len(spec.targets), load(weights))
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise ModelFilesError(f"the trees {name} cannot be read: {error}") from error
