"""The network of effects that comes with the package, as a folder: weights, a manifest that says what made it, and an
answer that it must give again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from models.effects.effect_network import EffectNetwork

__all__ = [
    "EFFECTS_FORMAT",
    "SHIPPED_EFFECTS",
    "EffectArtefactError",
    "load_effects",
    "save_effects",
    "shipped_effects",
]

F32 = npt.NDArray[np.float32]

EFFECTS_FORMAT = 1
SHIPPED_EFFECTS = Path(__file__).with_name("artefact")
_WEIGHTS, _GOLDEN, _MANIFEST = "weights.safetensors", "golden.safetensors", "manifest.json"
_TOLERANCE = 1e-3


class EffectArtefactError(Exception):
    """The folder holds no network of effects that this release can use; the message says why, and what to do."""


def save_effects(
    folder: Path, network: EffectNetwork, golden: tuple[F32, F32], made: Mapping[str, Any]
) -> dict[str, Any]:  # fmt: skip
    """Write the network to a new folder and return its manifest; ``golden`` are inputs (moved, state), ``made`` says
    what made it. Raises ``FileExistsError`` if the folder is there: an artefact never changes.
    """
    folder.mkdir(parents=True)
    weights = save_tensors(network.arrays)
    moved, state = (np.ascontiguousarray(part, np.float32) for part in golden)
    expected = save_tensors({"moved": moved, "state": state, "effect": network.effect(moved, state)})
    manifest = {
        "format": EFFECTS_FORMAT, "kind": "effects", **made, "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "golden_sha256": hashlib.sha256(expected).hexdigest(),
    }  # fmt: skip
    (folder / _WEIGHTS).write_bytes(weights)
    (folder / _GOLDEN).write_bytes(expected)
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def load_effects(folder: Path) -> tuple[EffectNetwork, dict[str, Any]]:
    """The network and its manifest. Raises :class:`EffectArtefactError` for what is torn, altered, of another release,
    or does not give its golden answer again.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
        files = {name: (folder / name).read_bytes() for name in (_WEIGHTS, _GOLDEN)}
    except (OSError, ValueError) as error:
        raise EffectArtefactError(f"{folder} cannot be read: {error}; install the package again") from None
    if manifest.get("format") != EFFECTS_FORMAT:
        words = f"{folder} has format {manifest.get('format')!r}, this release reads {EFFECTS_FORMAT}"
        raise EffectArtefactError(f"{words}: make it again with hothouse pretrain effects")
    for name, key in ((_WEIGHTS, "weights_sha256"), (_GOLDEN, "golden_sha256")):
        if hashlib.sha256(files[name]).hexdigest() != manifest.get(key):
            raise EffectArtefactError(f"{folder / name} is torn or altered; install the package again")
    try:
        network, golden = EffectNetwork(load_tensors(files[_WEIGHTS])), load_tensors(files[_GOLDEN])
    except (SafetensorError, ValueError) as error:
        raise EffectArtefactError(f"{folder}: {error}; make it again with hothouse pretrain effects") from None
    given = network.effect(golden["moved"], golden["state"])
    off = np.abs(given - golden["effect"]) / np.maximum(np.abs(golden["effect"]), 1)
    if not float(off.max()) <= _TOLERANCE:
        raise EffectArtefactError(f"{folder} does not give its golden answer again: off by {float(off.max()):.2g}")
    return network, manifest


@lru_cache(maxsize=1)
def shipped_effects() -> EffectNetwork:
    """The network of the package; read once, when it is first asked."""
    return load_effects(SHIPPED_EFFECTS)[0]
