"""HTTP to the running system: its address from the data folder, its problem details as our errors."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from services.config import Settings
from services.errors import HothouseError

__all__ = ["Client", "connect"]


class Client:
    """Calls one running Hothouse. ``key`` is sent as a bearer token."""

    def __init__(self, url: str, key: str = "", timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s
        # No proxy: the address is ours, and a proxy of the environment would not know loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

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
    try:
        content = json.loads(error.read())
        detail = str(content.get("detail") or content.get("title") or "")
    except (ValueError, AttributeError):
        detail = ""
    hint = "The operator's key is in operator.key in the data folder." if error.code in (401, 403) else ""
    return HothouseError(detail or f"the server answered {error.code} {error.reason}", hint)


def connect(settings: Settings, url: str | None, timeout_s: float = 10.0) -> Client:
    """A client of ``url``, else of the system that runs on this data folder, else of the demo that runs in it.

    Raises :class:`HothouseError` when none runs here. An operator's key is sent only to the system that made it,
    never to another ``url``.
    """
    folders = {_address(folder): folder for folder in (settings.data_dir / "demo", settings.data_dir)}
    folders.pop("", None)
    address = url or next(reversed(folders), "")
    if not address:
        raise HothouseError(
            f"no Hothouse runs on the data folder {settings.data_dir}",
            "Start one with `hothouse up` or `hothouse demo`, or name another with --data-dir or --url.",
        )
    key_file = folders[address] / "operator.key" if address in folders else None
    key = key_file.read_text().strip() if key_file is not None and key_file.exists() else ""
    return Client(address, key, timeout_s)


def _address(folder: Path) -> str:
    """Where the system of this data folder answers; empty when none runs."""
    try:
        return str(json.loads((folder / "run.json").read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
