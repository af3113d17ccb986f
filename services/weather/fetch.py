"""One HTTP request that ends: within its time, with an answer of a bounded size, or with one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
        raise WeatherError(f"the service answered {answer.status_code} {answer.reason_phrase}")
    return content
