"""A shard whose storage is a bucket or a folder: its settings, what it wrote, and what one that never died writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.log import Log, partition_of
from services.config import Settings, load_settings
from services.ingest.alerts.alert_journal import JournalReader, journals
from services.ingest.shard import Executors, Outputs, Shard
from services.store.deadletters import read_dead_letters
from services.store.history import History
from services.store.series import NullSeries
from services.store.storage import StorageAddress, address_of, open_storage, storage_of
from tests.chaos.shard_process import NoLiveState, baseline_forecast
from tests.services.ingest.rig import Clock, Inline, issued_by

PARTITION = partition_of("demo", 4)


def written_config(folder: Path, where: StorageAddress | None, more: str = "") -> Path:
    """Settings with that storage, and ``more`` of it; ``None`` is the folder in ``data_dir``."""
    file, storage = folder / "hothouse.toml", ""
    if where is not None:
        storage = f"""\
[storage]
url = "{where.url}"
endpoint = "{where.endpoint}"
region = "{where.region}"
path_style = true
credentials_file = "{where.credentials_file}"
{more}
"""
    file.write_text(f"""\
data_dir = "{folder / "data"}"

{storage}
[stream]
snapshot_s = 0.2

[[sites]]
name = "demo"
timezone = "Europe/Amsterdam"
""")
    return file


def content(settings: Settings) -> dict[str, Any]:
    """Every row, to the bit, every dead letter and change of an alert, and which forecasts were issued."""
    history = History(storage_of(settings), ())
    origins = [one.origin_ms for one in issued_by(settings)]
    # As text: a missing value is not equal to itself.
    rows = {kind: [repr(row) for row in history.read(kind=kind).to_pylist()] for kind in ("zones", "devices")}
    storage = storage_of(settings)
    letters = read_dead_letters(storage, 10_000)
    alerts = [entry for name in journals(storage) for entry in JournalReader(storage, name).read(0, 10_000)[0]]
    return {**rows, "origins": origins, "letters": letters, "alerts": alerts}


def undisturbed(config: Path, log: Log, folder: Path) -> dict[str, Any]:
    """The same of a shard that never died, with its storage in a folder."""
    settings = load_settings(config, data_dir=folder, storage={"url": ""})
    outputs, inline = Outputs(NullSeries(), NoLiveState()), Inline()
    shard = Shard(
        settings, range(log.partitions), log, baseline_forecast, outputs, Executors(inline, inline, inline), Clock(0.2)
    )
    while shard.step():
        pass
    shard.close()
    return content(settings)


def saved(settings: Settings) -> int:
    """The largest offset that snapshots of any partition stand for."""
    names = open_storage.__wrapped__(address_of(settings)).list_folder("snapshots").names
    return max((int(n.removesuffix(".snapshot").split("-")[1]) for n in names if n.endswith(".snapshot")), default=0)
