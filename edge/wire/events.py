"""Step 2 of the way of a reading: events that change rows: a site's settings, a sensor's calibration, another name, a
zone that leaves.

They are published as events, checked here, and take effect at their place in the log and nowhere else. ``version``
counts a site's changes up: one that is not above those before it has been seen already, or came too late, and is
ignored. So an event that is delivered twice counts once.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from edge.log.contract import NewRecord
from edge.wire.topic import SITE_ZONE, Topic, is_name, parse_topic
from edge.wire.vocabulary import VOCABULARY, Metric, base_metric

__all__ = [
    "Alias", "Calibration", "Change", "Retirement", "RowChange", "SettingsChange", "decode_change", "encode_change",
    "site_retirement",
]  # fmt: skip

Version = Annotated[int, msgspec.Meta(ge=2, le=2**31 - 1)]
Millis = Annotated[int, msgspec.Meta(ge=0, le=2**47)]
HOUR_S = 3_600


class SettingsChange(msgspec.Struct, frozen=True, tag="settings", omit_defaults=True, forbid_unknown_fields=True):
    """A site's rows get another step, lateness or idle time; what is left out stays as it is."""

    version: Version
    step_s: int | None = None
    lateness_s: int | None = None
    idle_s: int | None = None


class Calibration(msgspec.Struct, frozen=True, tag="calibration", omit_defaults=True, forbid_unknown_fields=True):
    """From ``from_ms`` on, ``value * scale + offset`` is what the device's ``metric`` says."""

    version: Version
    metric: str
    offset: float = 0.0
    scale: float = 1.0
    from_ms: Millis = 0


class Alias(msgspec.Struct, frozen=True, tag="alias", omit_defaults=True, forbid_unknown_fields=True):
    """The device, or only its ``metric`` if given, is called ``to``. An alias to its own name takes this back."""

    version: Version
    to: str
    metric: str = ""


class Retirement(msgspec.Struct, frozen=True, tag="retire", omit_defaults=True, forbid_unknown_fields=True):
    """The zone leaves until its next sample; for zone ``_site`` the whole site leaves, once it has no other zone.

    An operator's event carries a ``version``, which counts the zone's retirements; no row shows it. An event for
    silence carries ``until_ms``, the end of the zone's newest row with a sample. It has no effect if a later sample
    came.
    """

    version: Version | None = None
    until_ms: Millis | None = None


RowChange = SettingsChange | Calibration | Alias
"""Changes of how rows are made; a :class:`Retirement` changes which zones have rows."""

Change = RowChange | Retirement

_TYPES = ("settings", "calibration", "alias", "retire")
_DECODER = msgspec.json.Decoder(Change)


def encode_change(change: Change) -> bytes:
    """The payload of the event."""
    return msgspec.json.encode(change)


def decode_change(where: Topic, payload: bytes) -> Change | None:
    """The change that an event published at ``where`` makes; ``None`` for an event of another type.

    Raises ``ValueError`` with one sentence for a change that cannot be made.

    >>> decode_change(Topic("s", "z", "d", "event"), b'{"type":"alias","version":2,"to":"climate"}')
    Alias(version=2, to='climate', metric='')
    >>> decode_change(Topic("s", "z", "d", "event"), b'{"crop":"lettuce"}') is None
    True
    """
    document: Any = msgspec.json.decode(payload)
    if not isinstance(document, dict) or document.get("type") not in _TYPES:
        return None
    change: Change = _DECODER.decode(payload)  # a msgspec.ValidationError is a ValueError
    if isinstance(change, SettingsChange):
        _check_settings(change, where)
    elif isinstance(change, Calibration):
        _check_calibration(change)
    elif isinstance(change, Retirement):
        _check_retirement(change, where)
    elif change.metric:
        if _known(change.metric).kind != _known(change.to).kind:
            raise ValueError(f"{change.metric} and {change.to} are of different kinds")
    elif not is_name(change.to):
        raise ValueError("to must be a device's name")
    return change


def site_retirement(record: NewRecord) -> Retirement | None:
    """The retirement of a whole site, if the record is one: the site gets no ticks until its next sample.

    >>> payload = encode_change(Retirement(until_ms=1646092800000))
    >>> site_retirement(NewRecord("s", "event", 0, payload, "hothouse/v1/s/_site/operator/event"))
    Retirement(version=None, until_ms=1646092800000)
    """
    where = parse_topic(record.topic) if record.kind == "event" else None
    if where is None or where.zone != SITE_ZONE:
        return None
    try:
        change = decode_change(where, record.payload)
    except (ValueError, RecursionError):
        return None
    return change if isinstance(change, Retirement) else None


def _check_retirement(change: Retirement, where: Topic) -> None:
    if (change.version is None) == (change.until_ms is None):
        raise ValueError("a retirement needs either version or until_ms")
    if where.zone == SITE_ZONE and change.until_ms is None:
        raise ValueError(f"{SITE_ZONE} cannot be retired alone: it leaves after the site's last zone")


def _check_settings(change: SettingsChange, where: Topic) -> None:
    if where.zone != SITE_ZONE:
        raise ValueError(f"settings are those of a site: publish them in zone {SITE_ZONE}")
    if change.step_s is not None and not (10 <= change.step_s <= HOUR_S and HOUR_S % change.step_s == 0):
        raise ValueError("step_s must be between 10 and 3600 and divide an hour, such as 60, 300 or 900")
    if change.lateness_s is not None and not 0 <= change.lateness_s <= 3600:
        raise ValueError("lateness_s must be between 0 and 3600")
    if change.idle_s is not None and not 1 <= change.idle_s <= 3600:
        raise ValueError("idle_s must be between 1 and 3600")


def _check_calibration(change: Calibration) -> None:
    kind = _known(change.metric).kind
    if kind == "counter":
        raise ValueError(f"{change.metric} counts up: it cannot be calibrated")
    if kind == "angle" and change.scale != 1:
        raise ValueError(f"{change.metric} is an angle: it has an offset and no scale")
    if not (math.isfinite(change.offset) and math.isfinite(change.scale) and change.scale != 0):
        raise ValueError("offset and scale must be finite, and scale not 0")


def _known(name: str) -> Metric:
    metric = VOCABULARY.get(name) or VOCABULARY.get(base_metric(name))
    if metric is None:
        raise ValueError(f"{name[:64]} is not in the vocabulary")
    return metric
