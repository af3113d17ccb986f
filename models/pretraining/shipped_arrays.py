"""Step 8 of the way of a reading: the pre-trained network that comes with the package, for who knows no torch.

:mod:`models.pretraining.shipped` gives the same as a network that can be trained further.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load as load_tensors

from models.online.corrections.pretrained_correction import Pretrained

__all__ = ["FOLDER", "pretrained"]

FOLDER = Path(__file__).with_name("artefact")


@cache
def pretrained(folder: Path = FOLDER) -> Pretrained:
    """The arrays of a pre-trained artefact, and how good it was in simulated zones that it was not trained on. On other
    zones of their sites it may have been: at a new site it is probably less good.

    Raises ``ValueError`` where the file of weights is not the one that the manifest names.

    >>> pretrained().whole.shape
    (10, 4)
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    weights = (folder / "weights.safetensors").read_bytes()
    if hashlib.sha256(weights).hexdigest() != manifest["weights_sha256"]:
        raise ValueError(f"{folder / 'weights.safetensors'} is torn or altered: install the package again")
    found = manifest["metrics"]
    half, whole = (np.array(found[f"of_the_online_layer{part}"], np.float64) for part in ("_halves", ""))
    return Pretrained(load_tensors(weights), half, whole)
