"""A small recorded fleet that tests of pre-training share."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from edge.simulator.fleet.draws import draw_site
from edge.simulator.fleet.fleet_recording import recording_layout
from edge.simulator.fleet.simulation import simulate_fleet
from models.pretraining.fleet_chunk import FleetChunk
from models.pretraining.fleet_examples import Drawing
from models.pretraining.fleet_folder import write_chunk, write_manifest

SITES, DAYS = 4, 5
MADE = {
    "seed": 4, "sites": SITES, "days": DAYS, "step_s": 300, "draws_version": 1, "hothouse": "0",
}  # fmt: skip
DRAWING = Drawing(seed=2, days=2, zones_each=2, origins_each=40)


@functools.cache
def arrays() -> dict[str, np.ndarray]:
    """Four sites of five days."""
    return simulate_fleet([draw_site(4, index) for index in range(SITES)], DAYS).arrays()


def chunk() -> FleetChunk:
    """The same, as it is read."""
    return FleetChunk(arrays(), recording_layout(), 300_000)


def write(folder: Path) -> Path:
    """The same as a folder."""
    folder.mkdir()
    write_manifest(folder, recording_layout(), MADE, [write_chunk(folder, 0, arrays())])
    return folder
