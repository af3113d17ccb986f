"""One HTTP request that ends: within its time, with an answer of a bounded size, or with one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from services.runtime.threads.bounded_request import ask_within
from services.weather.open_meteo import WeatherError

if TYPE_CHECKING:
    import httpx  # `hothouse --help` must not pay for it

__all__ = ["MAX_BYTES", "fetch"]

MAX_BYTES = 4 * 1024 * 1024
LIMIT_S = 30.0


def fetch(url: str, parameters: Mapping[str, str], limit_s: float = LIMIT_S) -> bytes:
    """The body of the answer to a GET. Raises :class:`WeatherError` for whatever else becomes of it."""
    try:
        return ask_within(limit_s, lambda client: _read(client, url, parameters))
    except TimeoutError:
        raise WeatherError(f"the service did not answer within {limit_s:g} s") from None
    except WeatherError:
        raise
    except Exception as error:
        raise WeatherError(f"the service cannot be asked: {type(error).__name__}: {error}") from error


def _read(client: httpx.Client, url: str, parameters: Mapping[str, str]) -> bytes:
    with client.stream("GET", url, params=dict(parameters)) as answer:
        content = b""
        for piece in answer.iter_bytes():
            content += piece
            if len(content) > MAX_BYTES:
                raise WeatherError(f"the service's answer is larger than {MAX_BYTES} bytes")
    if answer.status_code == 400:  # its reason is in its body
        return content
    if answer.status_code != 200:
        said = f"the service answered {answer.status_code} {answer.reason_phrase}"
        if answer.next_request is not None:
            moved_to = answer.next_request.url.copy_with(query=None, userinfo=None)  # the key is in the query
            raise WeatherError(f"{said}: set weather.url to {moved_to} if that is meant")
        raise WeatherError(f"{said}{_reason(content)}", _seconds(answer.headers.get("Retry-After", "")))
    return content


def _reason(content: bytes) -> str:
    """What an answer of Open-Meteo says why, behind a colon."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    reason = found.get("reason") if isinstance(found, dict) else None
    return f": {reason[:200]}" if isinstance(reason, str) else ""


def _seconds(retry_after: str) -> float:
    """The seconds in a header ``Retry-After``; 0 where it is a date, or none.

    >>> _seconds("120"), _seconds("Wed, 21 Oct 2026 07:28:00 GMT")
    (120.0, 0.0)
    """
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
