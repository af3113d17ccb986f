"""One HTTP request that ends: within its time, with an answer of a bounded size, or with one sentence."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from functools import cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from services.weather.open_meteo import WeatherError

if TYPE_CHECKING:
    import httpx  # `hothouse --help` must not pay for it

__all__ = ["MAX_BYTES", "fetch"]

MAX_BYTES = 4 * 1024 * 1024
LIMIT_S = 30.0


def fetch(url: str, parameters: Mapping[str, str], limit_s: float = LIMIT_S) -> bytes:
    """The body of the answer to a GET. Raises :class:`WeatherError` for whatever else becomes of it.

    A server that sends a byte now and then keeps each single read short of its time-out; so the request runs in a
    thread, which is given up after ``limit_s``.
    """
    import httpx

    # No redirect: the address is the one that was named. A key in the parameters would follow it.
    client = httpx.Client(timeout=limit_s, follow_redirects=False, verify=_certificates())
    done: SimpleQueue[bytes | Exception] = SimpleQueue()
    late = WeatherError(f"the service did not answer within {limit_s:g} s")

    def work() -> None:
        try:
            done.put(_read(client, url, parameters))
        except httpx.TimeoutException:
            done.put(late)
        except Exception as error:
            done.put(error)

    threading.Thread(target=work, name="weather-request", daemon=True).start()
    try:
        found = done.get(timeout=limit_s)
    except Empty:
        raise late from None
    finally:
        client.close()
    if isinstance(found, WeatherError):
        raise found
    if isinstance(found, Exception):
        raise WeatherError(f"the service cannot be asked: {type(found).__name__}: {found}") from found
    return found


@cache
def _certificates() -> ssl.SSLContext:
    """The system's, where a CA of the house is installed."""
    return ssl.create_default_context()


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
