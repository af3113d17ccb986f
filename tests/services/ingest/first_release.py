"""The data folder that the first release left, and what a system forecasts that goes on with it."""

from __future__ import annotations

import tarfile
from pathlib import Path

from services.store.storage import FolderStorage
from services.store.tables.migration import bring_over
from tests.services.ingest.data_folder import END, after

DATA = Path(__file__).parents[2] / "data" / "data_folder_10"


def unpacked(folder: Path) -> Path:
    """The folder as the power cut left it."""
    with tarfile.open(DATA / "data.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    bring_over(FolderStorage(folder / "storage"))  # as `hothouse up` does
    return folder


LATER = range(END, END + 12)


def later(folder: Path) -> tuple[dict[str, float], str]:
    """What is said after a restart."""
    return said_after(folder, LATER)


def said_after(folder: Path, steps: range) -> tuple[dict[str, float], str]:
    """The medians of an hour ahead that a shard forecasts which is started on ``folder`` and takes what comes within
    ``steps``, and what it says that it repaired.
    """
    shard, live_state, log = after(folder, steps)
    repaired: str = shard.stats()["repaired"]
    shard.close()
    log.close()
    said = live_state.forecasts
    return {f"{f['site']}/{f['zone']} {f['origin']}": f["forecasts"]["air_temp_c"][1]["p50"] for f in said}, repaired
