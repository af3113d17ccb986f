"""Which zones of an import have sent nothing: a name that was misspelt makes a zone that nobody has."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow.compute as pc

from edge.wire.hints import nearest
from models.durations import DAY_MS
from services.store.history import DEVICE_ROWS
from services.store.storage import Storage
from services.store.tables.table_reader import TableReader

__all__ = ["new_zones", "sending_sites", "sending_zones"]

DAYS = 60
"""A zone that has been silent for longer begins anew."""
MOST_NAMED = 10


def sending_zones(storage: Storage, site: str, wanted: Collection[str]) -> list[str]:
    """The zones of which a device has sent anything in the last :data:`DAYS` of the site, sorted; once all that are
    ``wanted`` are among them, no more is read. What was imported has no device. Raises :class:`HistoryError` or
    ``OSError``.
    """
    table = TableReader(storage, DEVICE_ROWS)
    newest_ms, found = table.newest_ms(site), set[str]()
    columns = ("site", "zone", "end_ms")  # a bucket's files are filtered by what was read of them
    for days in range(DAYS):  # a large site has a million rows a day
        end_ms = newest_ms - days * DAY_MS
        rows = table.read(end_ms - DAY_MS, end_ms, [site], columns=columns)
        if rows is not None:
            found.update(pc.unique(rows["zone"]).to_pylist())
        if found.issuperset(wanted):
            break
    return sorted(found)


def sending_sites(storage: Storage) -> list[str]:
    """The sites of which a device has ever sent anything, sorted. Raises as :func:`sending_zones`."""
    return TableReader(storage, DEVICE_ROWS).sites()


def new_zones(site: str, zones: Sequence[str], sending: Collection[str], sites: Sequence[str] = ()) -> str:
    """What is to be told of those ``zones`` that are not ``sending``, where these ``sites`` send; empty where all are.

    >>> new_zones("demo", ["north-1", "north-2"], ["north-1", "north-2", "north-3"])
    ''
    >>> new_zones("demo", ["nort-1", "north-2"], ["north-1", "north-2"])
    'nort-1 has sent nothing at site demo in 60 days; did you mean north-1? Its rows wait until it sends.'
    >>> new_zones("demo", ["x", "y"], ["north-1"])
    'x, y have sent nothing at site demo in 60 days, but north-1 has. Their rows wait until they send.'
    >>> new_zones("demo", ["x"], [])
    'No zone has sent anything at site demo in 60 days. The rows wait until these zones send.'
    >>> new_zones("dmeo", ["x"], [], ["demo"])
    'No zone has sent anything at site dmeo in 60 days; did you mean demo? The rows wait until these zones send.'
    """
    if not sending:
        hint = nearest(site, tuple(one for one in sites if one != site)) or "."
        return f"No zone has sent anything at site {site} in {DAYS} days{hint} The rows wait until these zones send."
    known = tuple(sorted(sending))
    new = [zone for zone in zones if zone not in sending]
    if not new:
        return ""
    said = f"{_listed(new)} {'has' if len(new) == 1 else 'have'} sent nothing at site {site} in {DAYS} days"
    hint = nearest(new[0], known) if len(new) == 1 else ""
    hint = hint or f", but {_listed(known)} {'has' if len(known) == 1 else 'have'}."
    return f"{said}{hint} {'Its rows wait until it sends' if len(new) == 1 else 'Their rows wait until they send'}."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
