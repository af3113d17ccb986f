"""HTTP to a running system: which one, with which key, and its problem details as our errors."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from services.config import Settings
from services.errors import ConfigError, HothouseError
from services.key_file import read_key

__all__ = ["Client", "connect"]

KEY_HINT = (
    "Name the file that holds the key: --key-file FILE, or client.key_file. "
    "The operator's key is in operator.key in the data folder."
)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the key is for the address that was named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Nothing to ask instead; the answer becomes an error."""


class Client:
    """Calls one running Hothouse. ``key`` is sent as a bearer token."""

    def __init__(self, url: str, key: str = "", timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s
        # No proxy: the address is ours, and a proxy of the environment would not know loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)

    def get(self, path: str, **query: str) -> Any:
        """The JSON answer of a GET; raises :class:`HothouseError` with the sentence of a problem answer."""
        return self._call("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path, None)

    def post(self, path: str, body: Any = None) -> Any:
        """The JSON answer of a POST; raises as :meth:`get`."""
        return self._call("POST", path, json.dumps(body if body is not None else {}).encode())

    def _call(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            request = urllib.request.Request(f"{self.url}{path}", body, headers, method=method)  # noqa: S310
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            raise _problem(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise HothouseError(
                f"nothing answers at {self.url} ({reason})", "Start it with `hothouse up`, or name it with --url."
            ) from error
        try:
            return json.loads(content) if content else None
        except ValueError as error:
            raise HothouseError(
                f"{self.url}{path} did not answer with JSON", "Is it a Hothouse? Check --url."
            ) from error


def _problem(error: urllib.error.HTTPError) -> HothouseError:
    """An RFC 9457 problem as our error; any other body is only counted as its status."""
    elsewhere = error.headers.get("Location")
    if 300 <= error.code < 400 and elsewhere:
        return HothouseError(
            f"{error.url} sends to {elsewhere}", "Name that address with --url, if it is the right one."
        )
    try:
        content = json.loads(error.read())
        detail = str(content.get("detail") or content.get("title") or "")
    except (ValueError, AttributeError):
        detail = ""
    return HothouseError(
        detail or f"the server answered {error.code} {error.reason}", KEY_HINT if error.code in (401, 403) else ""
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
            f"no Hothouse runs on the data folder {settings.data_dir}",
            "Start one with `hothouse up` or `hothouse demo`, or name another with --data-dir or --url.",
        )
    if not re.match(r"https?://[^/]", address):
        raise ConfigError(
            f"{address!r} is no address of a Hothouse", "Write it as http://HOST:PORT (--url, or client.url)."
        )
    if key_file is None and url in (None, configured or url):
        key_file = settings.client.key_file
    return Client(address, _own_key(folders.get(address)) if key_file is None else read_key(key_file), timeout_s)


def _own_key(folder: Path | None) -> str:
    """The operator's key of the system of this data folder; empty where this user may not read it."""
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
