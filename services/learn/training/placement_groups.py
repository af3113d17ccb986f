"""Step 13 of the way of a reading: the CPUs that Ray Train's workers hold, and how those of a lost training are
released.

Ray Train reserves its workers' CPUs in a placement group. When the process that trains is killed, or its node, or when
it is ended for taking too long, nothing gives them back while the driver lives: the actor that should asks Ray's
dashboard, which a local runtime does not have. The training that is run again would then wait for them without end. So
a training notes its group on the storage, and the next by Ray Train (one at a time on a storage) releases it first.
"""

from __future__ import annotations

import json

import ray
from ray.util.placement_group import PlacementGroup, get_current_placement_group, remove_placement_group

from services.errors import NotStoredError
from services.learn.training.kept_runs import KeptRuns

__all__ = ["note_reservation", "release_reservations"]

RESERVATION_FILE = "reservation.json"


def note_reservation(runs: KeptRuns, name: str) -> None:
    """Called in a worker, before it trains: keep the name of its placement group with the training."""
    group = get_current_placement_group()
    if group is not None:
        noted = json.dumps({"cluster": _cluster(), "group": group.id.hex()}).encode()
        runs.storage.put(runs.key(name, RESERVATION_FILE), noted)


def release_reservations(runs: KeptRuns) -> int:
    """Release what lost trainings still hold; returns how many. Call it where Ray Train trains nothing here."""
    released = 0
    for key in (runs.key(name, RESERVATION_FILE) for name in runs.names()):
        try:
            noted = json.loads(runs.storage.read(key).content)
            group = str(noted["group"]) if noted["cluster"] == _cluster() else ""
        except NotStoredError:
            continue
        except (OSError, ValueError, KeyError, TypeError):  # torn by a crash: nobody can know what it named
            group = ""
        if group and ray.util.placement_group_table().get(group, {}).get("state", "REMOVED") != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))))
            released += 1
        runs.storage.delete(key)
    return released


def _cluster() -> str:
    return str(ray.get_runtime_context().gcs_address)
