"""A recorded fleet of simulated sites as a folder: ``manifest.json``, and chunks of sites as safetensors.

It is written with what made it, and read without: any machine with NumPy can train on it. The manifest names seed,
versions and the columns of the arrays, and each chunk with its digest. ``docs/pretraining.md`` has the arrays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from models.pretraining.fleet_chunk import FleetChunk

__all__ = ["FORMAT", "ChunkFile", "FleetFolder", "FleetFolderError", "write_chunk", "write_manifest"]

FORMAT = 1
MANIFEST = "manifest.json"


class FleetFolderError(Exception):
    """The folder of a recorded fleet cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """A chunk as the manifest names it: its file, the sites in it and the digest of its bytes."""

    file: str
    first_site: int
    sites: int
    zones: int
    sha256: str


def write_chunk(folder: Path, first_site: int, arrays: Mapping[str, npt.NDArray[Any]]) -> ChunkFile:
    """Write the arrays of the sites from number ``first_site`` on; they are there whole, or not at all."""
    data = save_tensors({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    name = f"sites-{first_site:06d}.safetensors"
    part = folder / f"{name}.part"
    part.write_bytes(data)
    part.replace(folder / name)
    sites, zones = len(arrays["site"]), len(arrays["zone"])
    return ChunkFile(name, first_site, sites, zones, hashlib.sha256(data).hexdigest())


def write_manifest(folder: Path, layout: Mapping[str, Any], made: Mapping[str, Any], chunks: list[ChunkFile]) -> None:
    """Write, last of all, what the folder holds: the arrays' ``layout``, how it was ``made``, and its chunks."""
    files = [
        {"file": c.file, "first_site": c.first_site, "sites": c.sites, "zones": c.zones, "sha256": c.sha256}
        for c in sorted(chunks, key=lambda chunk: chunk.first_site)
    ]
    manifest = {"format": FORMAT, **made, "layout": layout, "chunks": files}
    part = folder / f"{MANIFEST}.part"
    part.write_text(json.dumps(manifest, indent=1) + "\n")
    part.replace(folder / MANIFEST)


class FleetFolder:
    """A recorded fleet; raises :class:`FleetFolderError` where the folder holds none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self.manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        except FileNotFoundError:
            raise FleetFolderError(f"{folder} has no {MANIFEST}: simulate a fleet into it first") from None
        except (OSError, ValueError) as error:
            raise FleetFolderError(f"{folder / MANIFEST} cannot be read: {error}") from None
        found = self.manifest.get("format")
        if found != FORMAT:
            raise FleetFolderError(f"{folder} has format {found}, and this version reads {FORMAT}: simulate it again")
        self.chunks = [ChunkFile(**one) for one in self.manifest["chunks"]]

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[FleetChunk]:
        return (self.read(number) for number in range(len(self)))

    @property
    def site_weeks(self) -> float:
        """How much it holds: weeks, of all sites."""
        return float(sum(chunk.sites for chunk in self.chunks) * self.manifest["days"] / 7)

    def read(self, number: int) -> FleetChunk:
        """One chunk, whole; a file that is torn or altered is refused."""
        chunk = self.chunks[number]
        path = self._folder / chunk.file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FleetFolderError(f"{path} cannot be read: {error.strerror or error}") from None
        if hashlib.sha256(data).hexdigest() != chunk.sha256:
            raise FleetFolderError(f"{path} is not what the manifest says: simulate the fleet again")
        try:
            arrays = load_tensors(data)
        except SafetensorError as error:
            raise FleetFolderError(f"{path} cannot be read: {error}") from None
        return FleetChunk(arrays, self.manifest["layout"], self.manifest["step_s"] * 1000)
