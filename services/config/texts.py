"""Kinds of text in settings, and what is said of one that has another form."""

from __future__ import annotations

import ipaddress
import zoneinfo
from datetime import UTC, datetime
from typing import Annotated

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator

from edge.config import of_form
from edge.wire.topic import is_name

__all__ = [
    "ApiRoute",
    "BucketUrl",
    "CollectorUrl",
    "CronExpression",
    "DiscoveryPrefix",
    "MailAddress",
    "Name",
    "ProxyAddress",
    "RayResource",
    "ServerUrl",
    "TimeZone",
    "WebAddress",
    "WebOrigin",
    "WebUrl",
    "ZoneOrAll",
]  # fmt: skip

CRON_FIELDS = 5


def _time_zone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("must be an IANA time zone such as Europe/Amsterdam") from error
    return value


def _cron_expression(value: str) -> str:
    """Empty, or five fields that some minute of the next fifty years fits."""
    words = "must be minute, hour, day of the month, month and day of the week, such as 0 3 * * * for three each night"
    if not value:
        return value
    if len(value.split()) != CRON_FIELDS:  # CronSim takes seconds, too
        raise ValueError(words)
    try:
        if next(CronSim(value, datetime.now(UTC)), None) is None:
            raise ValueError("names no day that there is")
    except CronSimError as error:
        raise ValueError(f"{words} ({str(error).lower()})") from error
    return value


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError("it is no address, and no network such as 10.0.7.0/24") from error


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError("must be a name as in a topic: letters, digits, '_', '.', '-', at most 64")
    return value


def _zone_or_all(value: str) -> str:
    return value if value == "*" else _name(value)


Name = Annotated[str, AfterValidator(_name)]
ZoneOrAll = Annotated[str, AfterValidator(_zone_or_all)]
MailAddress = Annotated[str, of_form(r"[^\s@,;<>]+@[^\s@,;<>]+", "an address such as grower@example.org")]
ProxyAddress = Annotated[str, AfterValidator(_network)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
CronExpression = Annotated[str, AfterValidator(_cron_expression)]
DiscoveryPrefix = Annotated[
    str, of_form(r"([A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64})*)?", "levels of a topic such as homeassistant, or empty")
]
ApiRoute = Annotated[str, of_form(r"/([A-Za-z0-9._-]{1,64}(/[A-Za-z0-9._-]{1,64})*)?", "/, or a path such as /north")]
WebOrigin = Annotated[str, of_form(r"https?://[^/\s*]+", "an origin such as https://office.example.org")]
WebUrl = Annotated[str, of_form(r"https?://\S+", "an address such as https://weather.example.org/v1/forecast")]
WebAddress = Annotated[str, of_form(r"(https?://\S+)?", "an address such as https://example.org/path, or empty")]
ServerUrl = Annotated[str, of_form(r"(https?://[^\s/?#]+)?", "an address such as http://front:8000, or empty")]
CollectorUrl = Annotated[
    str, of_form(r"(https?://[^\s/?#@]+(/[^\s?#]*)?)?", "an address such as http://collector:4318, or empty")
]
BucketUrl = Annotated[
    str,
    of_form(
        r"((s3|az)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[A-Za-z0-9._=-]+)*/?)?",
        "a bucket and a folder in it such as s3://my-bucket/greenhouse, or empty",
    ),
]
RayResource = Annotated[
    str, of_form(r"([a-z][a-z0-9_-]{0,30})?", "a name of small letters, digits, '_' and '-' such as api, or empty")
]
