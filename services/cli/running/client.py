"""HTTP to a running system: which one, with which key, and its problem details as our errors."""

from __future__ import annotations

import json
import re
import ssl
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.config import Settings
from services.errors import ConfigError, HothouseError
from services.key_file import read_key

if TYPE_CHECKING:
    import httpx  # `hothouse --help` must not pay for it

__all__ = ["Client", "NoAnswerError", "connect"]

KEY_HINT = (
    "Name the file that holds the key: --key-file FILE, or client.key_file. "
    "The operator's key is in operator.key in the data folder."
)

AGAIN_HINT = "Ask again. If that comes each time: is it a Hothouse, and is it http or https? Check --url."


class NoAnswerError(HothouseError):
    """Who was asked is there, and did not answer in time, or broke off: what it was asked for may be done."""


class Client:
    """Calls one running Hothouse. ``key`` is sent as a bearer token."""

    def __init__(self, url: str, key: str = "", timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s

    def get(self, path: str, **query: str) -> Any:
        """The JSON answer of a GET; raises :class:`HothouseError` with the sentence of a problem answer."""
        return self._call("GET", path, params=query)

    def post(self, path: str, body: Any = None) -> Any:
        """The JSON answer of a POST; raises as :meth:`get`."""
        return self._call("POST", path, json=body if body is not None else {})

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        # No proxy: the address is ours, and a proxy of the environment would not know loopback. No redirect: the key
        # is for the address that was named. The certificates are the system's, where a CA of the house is installed.
        return httpx.Client(
            headers=headers, timeout=self._timeout_s, trust_env=False, follow_redirects=False,
            verify=ssl.create_default_context(),
        )  # fmt: skip

    def _call(self, method: str, path: str, **content: Any) -> Any:
        import httpx

        try:
            answer = self._http.request(method, f"{self.url}{path}", **content)
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise NoAnswerError(
                f"{self.url} did not answer within {self._timeout_s:.0f} s", "It is busy, or waits for a part that is."
            ) from error
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            raise NoAnswerError(f"{self.url} broke off before it had answered ({error})", AGAIN_HINT) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise HothouseError(
                f"nothing answers at {self.url} ({error})", "Start it with `hothouse up`, or name it with --url."
            ) from error
        if not answer.is_success:
            raise _problem(answer)
        try:
            return json.loads(answer.content) if answer.content else None
        except ValueError as error:
            raise HothouseError(
                f"{self.url}{path} did not answer with JSON", "Is it a Hothouse? Check --url."
            ) from error


def _problem(answer: httpx.Response) -> HothouseError:
    """An RFC 9457 problem as our error; any other body is only counted as its status."""
    elsewhere = answer.headers.get("Location")
    if answer.is_redirect and elsewhere:
        return HothouseError(
            f"{answer.url} sends to {elsewhere}", "Name that address with --url, if it is the right one."
        )
    try:
        content = json.loads(answer.content)
        detail = str(content.get("detail") or content.get("title") or "")
    except (ValueError, AttributeError):
        detail = ""
    kind = NoAnswerError if answer.status_code in (502, 504) else HothouseError
    return kind(
        detail or f"the server answered {answer.status_code} {answer.reason_phrase}",
        KEY_HINT if answer.status_code in (401, 403) else "",
    )


def connect(settings: Settings, url: str | None, key_file: Path | None = None, timeout_s: float = 10.0) -> Client:
    """A client of ``url``, else of ``client.url``, else of the system that runs on this data folder, else of the demo
    that runs in it; with the key of ``key_file``, else of ``client.key_file``.

    Raises :class:`HothouseError` when none runs here, :class:`ConfigError` for a wrong address or key file. Without a
    key file an operator's key is sent, and only to the system that made it; ``client.key_file`` goes to ``client.url``
    only, where that is set.
    """
    folders = {_address(folder): folder for folder in (settings.data_dir / "demo", settings.data_dir)}
    folders.pop("", None)
    configured = settings.client.url
    address = url or configured or next(reversed(folders), "")
    if not address:
        raise HothouseError(
            f"no Hothouse runs on the data folder {settings.data_dir.absolute()}",
            "Start one with `hothouse up` or `hothouse demo`, or name another with --data-dir or --url.",
        )
    if not re.match(r"https?://[^/]", address):
        raise ConfigError(
            f"{address!r} is not the address of a Hothouse", "Write it as http://HOST:PORT (--url, or client.url)."
        )
    if key_file is None and url in (None, configured or url):
        key_file = settings.client.key_file
    return Client(address, _own_key(folders.get(address)) if key_file is None else read_key(key_file), timeout_s)


def _own_key(folder: Path | None) -> str:
    """The operator's key of the system of this data folder; empty if this user may not read it."""
    try:
        return "" if folder is None else (folder / "operator.key").read_text().strip()
    except OSError:
        return ""


def _address(folder: Path) -> str:
    """Where the system of this data folder answers; empty when none runs."""
    try:
        return str(json.loads((folder / "run.json").read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
