"""A log with records for an uplink, an uplink that crashes, and what a gateway says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edge.log import NewRecord
from edge.log.sqlite import SqliteLog
from edge.wire.reading import Sample
from edge.wire.samples import encode_samples
from tests.broker.conftest import BOOT

NOW = 1_646_092_800_000
RECORDS = 300
CRASHING = """
import os, signal, sys
from edge.gateway import command
from edge.gateway.uplink.forward import Uplink

class Crashing(Uplink):
    def __init__(self, *given):
        super().__init__(*given, after_send=lambda: os.kill(os.getpid(), signal.SIGKILL))

command.Uplink = Crashing
sys.exit(command.main())
"""


def filled(path: Path, site: str = "demo") -> None:
    """A buffer that holds records of every kind."""
    log = SqliteLog(path)
    records = []
    for n in range(RECORDS):
        payload = encode_samples([Sample(site, "z1", "climate", BOOT, n, NOW + n, {"rh_pct": 71.0})])
        records.append(NewRecord(site, "samples", NOW + n, payload))
        if n % 10 == 0:
            records.append(NewRecord(site, "tick", NOW + n, b""))
            records.append(NewRecord(site, "plan", NOW + n, b'{"issued": 1}', f"hothouse/v1/{site}/z1/grower/plan"))
    log.append(records)
    log.close()


def status(folder: Path) -> dict[str, Any]:
    """What a gateway's status file holds, empty before there is one."""
    path = folder / "gateway-status.json"
    return json.loads(path.read_text()) if path.exists() else {}
