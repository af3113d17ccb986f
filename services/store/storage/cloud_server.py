"""Step 6 of the way of a reading: S3 and Azure, through ``obstore``.

It asks once: what to do about an answer that does not come is decided in one place for all of them
(:mod:`services.store.storage.object_storage`). What the libraries and servers say becomes our errors here.
"""

from __future__ import annotations

import configparser
import mmap
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from services.errors import (
    AlreadyStoredError,
    ChangedError,
    NotStoredError,
    StorageAwayError,
    StorageError,
    StorageRefusedError,
)
from services.store.storage.object_server import ABSENT, Body, Objects
from services.store.storage.storage import Entry, Stored
from services.store.storage.storage_address import StorageAddress

__all__ = ["CloudServer", "options_of"]

Answer = TypeVar("Answer")

REQUEST_S, CONNECT_S = 10.0, 5
"""For how long a server may say nothing."""
LEAST_BYTES_PER_S = 100_000
"""It says nothing while a put is on its way: as long as the put takes at this rate (0.8 Mbit/s) it may do so, too."""
MOST_S = 86_400.0
"""The library's own limit for a whole request, whatever comes: 30 s, where none is set."""
BUSY_S = 1.0
"""The least pause after "slow down". Servers ask for as much as a rule; their Retry-After does not reach us."""
LARGEST_BYTES = 5_000_000_000
"""What S3 and Azure take as one request. More would be sent in parts, which the library cannot make conditional."""
EARLY_BYTES = 65_536
"""A put of more may be refused, and the connection closed, before it was sent as a whole: then its answer is lost."""
_BUSY, _LATER, _BEHIND_THE_END = (429, 503), (408, 409, 425, 429), 416
_STATUS = re.compile(r"status code: (\d+)")
_NO_OBJECT = ("NoSuchKey", "BlobNotFound")
"""What servers say of an object that is not there. That the bucket or the login is not there is not the same."""
_MACHINES_ROLE = ("169.254.169.254", "169.254.170.2")
"""Where clouds say what a machine, or a container, may do; the library asks there if it is given no login."""
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")


class CloudServer:
    """The bucket, or container, of an address (:class:`services.store.storage.object_server.ObjectServer`)."""

    def __init__(self, address: StorageAddress) -> None:
        self._address, self.url = address, address.url.rstrip("/")
        self._stores = dict[float, Any]()  # by how long they wait
        self.renew()

    def get(self, key: str, start: int = 0, length: int | None = None) -> Stored:
        """As the contract says."""
        import obstore

        if length == 0:
            return Stored(b"", "")
        options = {} if length is None else {"range": (start, start + length)}

        def ask() -> Stored:
            found = obstore.get(self._store, key, options=options)  # type: ignore[arg-type]
            return Stored(bytes(found.bytes()), _version(found.meta))

        try:
            return self._ask(key, ask)
        except _BehindTheEndError:
            return Stored(b"", "")

    def head(self, key: str) -> Entry | None:
        """As the contract says. One byte is asked for: to a HEAD servers do not say what it is that is not there."""
        import obstore

        def ask() -> Entry:
            meta = obstore.get(self._store, key, options={"range": (0, 1)}).meta
            return _entry(meta)

        try:
            return self._ask(key, ask)
        except NotStoredError:
            return None
        except _BehindTheEndError:
            return Entry(0, self.get(key).version, time.time())

    def put(self, key: str, body: Body, version: str | None) -> str:
        """As the contract says."""
        import obstore

        mode: Any = "overwrite" if version is None else "create" if version == ABSENT else {"e_tag": version}
        size = len(body) if isinstance(body, bytes) else body.stat().st_size
        if size > LARGEST_BYTES:
            raise StorageRefusedError(
                f"{self.url}/{key} would have {size:,} bytes, and {LARGEST_BYTES:,} is the most", "Keep less in it."
            )

        def ask() -> str:
            with _mapped(body) as content:
                store = self._waiting(size / LEAST_BYTES_PER_S)
                return str(obstore.put(store, key, content, mode=mode, use_multipart=False)["e_tag"])

        try:
            return self._ask(key, ask)
        except NotStoredError as error:
            raise ChangedError(f"{self.url}/{key} was removed meanwhile by another writer") from error
        except StorageAwayError:
            if version is not None and size > EARLY_BYTES:
                self._look(key, version)
            raise

    def list_folder(self, folder: str) -> Objects:
        """As the contract says."""
        import obstore

        found = self._ask(folder, lambda: obstore.list_with_delimiter(self._store, prefix=folder or None))
        cut = len(folder) + 1 if folder else 0
        objects = {one["path"][cut:]: _entry(one) for one in found["objects"]}
        return tuple(path[cut:] for path in found["common_prefixes"]), objects

    def delete(self, key: str) -> None:
        """As the contract says."""
        import obstore

        with suppress(NotStoredError):
            self._ask(key, lambda: obstore.delete(self._store, key))

    def renew(self) -> None:
        """As the contract says."""
        try:
            self._stores = {REQUEST_S: _store(self._address, REQUEST_S)}
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def delta_options(self) -> dict[str, str]:
        """As the contract says; credentials are read anew."""
        try:
            _, options = options_of(self._address)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        client = options.pop("client_options")
        options.pop("disable_bulk_delete", None)
        told = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        return told | {
            "allow_http": str(client["allow_http"]).lower(), "conditional_put": "etag",
            "connect_timeout": f"{CONNECT_S}s", "timeout": f"{3 * REQUEST_S:g}s",
            "retry_timeout": f"{self._address.retry_s:g}s",  # max_retries is 10 unsaid, and Polars wants it as a number
        }  # fmt: skip

    def _unreadable(self, error: Exception) -> StorageRefusedError:
        return StorageRefusedError(
            f"the credentials for {self.url} cannot be read: {error}", "Check storage.credentials_file."
        )

    @property
    def _store(self) -> Any:
        return self._stores[REQUEST_S]

    def _waiting(self, seconds: float) -> Any:
        """A store that waits for an answer for at least this long."""
        wait_s = REQUEST_S
        while wait_s < seconds:
            wait_s *= 2  # few different ones: each has connections of its own
        stores = self._stores
        if wait_s not in stores:
            stores[wait_s] = _store(self._address, wait_s)
        return stores[wait_s]

    def _look(self, key: str, version: str) -> None:
        """Raise what the answer to a put on that version would have been, where another is there by now."""
        found = self.head(key)
        if found is not None and version == ABSENT:
            raise AlreadyStoredError(f"{self.url}/{key} is there already")
        if version != ABSENT and (found is None or found.version != version):
            raise ChangedError(f"{self.url}/{key} was changed meanwhile by another writer")

    def _ask(self, key: str, question: Callable[[], Answer]) -> Answer:
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            PreconditionError,
            UnauthenticatedError,
        )

        where = f"{self.url}/{key}"
        try:
            return question()
        except AlreadyExistsError as error:
            raise AlreadyStoredError(f"{where} is there already") from error
        except PreconditionError as error:
            raise ChangedError(f"{where} was changed meanwhile by another writer") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StorageRefusedError(
                f"{self.url} refuses what it is asked: {_reason(error)}",
                "Check the credentials (storage.credentials_file, or the environment) and what they allow.",
            ) from error
        except FileNotFoundError as error:
            if any(word in str(error) for word in _NO_OBJECT):
                raise NotStoredError(f"{where} is not there") from error
            if any(word in str(error) for word in _NO_BUCKET):
                raise StorageRefusedError(
                    f"there is no {self.url}: {_reason(error)}", "Make the bucket, or set storage.url to another."
                ) from error
            raise StorageRefusedError(
                f"{self.url} refuses what it is asked: {_reason(error)}",
                "Check storage.endpoint and the credentials.",
            ) from error
        except (BaseError, OSError) as error:
            if any(host in str(error) for host in _MACHINES_ROLE):
                raise StorageAwayError(
                    f"there is no login for {self.url}: none is named, and this machine has no role ({_reason(error)})",
                    "Set storage.credentials_file, or the variables of the environment (AWS_…, AZURE_…).",
                ) from error
            found = _STATUS.search(str(error))
            status = int(found[1]) if found else 0
            if status == _BEHIND_THE_END:
                raise _BehindTheEndError(f"{where} is shorter") from error
            if 300 <= status < 500 and status not in _LATER:  # a wrong region or endpoint, mostly
                raise StorageRefusedError(
                    f"{self.url} refuses what it is asked: {_reason(error)}",
                    "Check storage.url, storage.endpoint, storage.region and storage.path_style.",
                ) from error
            busy = status in _BUSY
            raise StorageAwayError(
                f"{self.url} {'is too busy' if busy else 'does not answer'}: {_reason(error)}",
                "Check storage.endpoint, and whether the server runs; it is asked again.",
                BUSY_S if busy else 0.0,
            ) from error


class _BehindTheEndError(StorageError):
    """An object has none of the bytes that were asked for."""


def _entry(meta: Any) -> Entry:
    return Entry(meta["size"], _version(meta), meta["last_modified"].timestamp())


def _version(meta: Any) -> str:
    return str(meta["e_tag"])


def _reason(error: BaseException) -> str:
    """What a server said, in a few words: its code and message where it sent XML, else the first line.

    >>> _reason(ValueError("Generic S3 error: 403 Forbidden: <Error><Code>AccessDenied</Code><Message>No.</Message>"))
    'AccessDenied: No.'
    """
    text = str(error)
    said = [text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in ("Code", "Message")]
    if said[0]:
        return ": ".join(part for part in said if part)
    return text.splitlines()[0] if text else type(error).__name__


@contextmanager
def _mapped(body: Body) -> Iterator[Any]:
    """A file as memory that the system may take back at any time; the library would read the whole of it."""
    if isinstance(body, bytes) or not body.stat().st_size:
        yield b"" if isinstance(body, Path) else body
        return
    with body.open("rb") as file:
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _store(address: StorageAddress, wait_s: float) -> Any:
    from obstore.store import AzureStore, S3Store

    scheme, options = options_of(address)
    options["client_options"] |= {"read_timeout": timedelta(seconds=wait_s), "timeout": timedelta(seconds=MOST_S)}
    bucket, _, prefix = address.url.partition("://")[2].partition("/")
    kinds: dict[str, Any] = {"s3": S3Store, "az": AzureStore}
    return kinds[scheme](bucket, prefix=prefix.strip("/") or None, retry_config={"max_retries": 0}, **options)


def options_of(address: StorageAddress) -> tuple[str, dict[str, Any]]:
    """The scheme of an address, and what ``obstore`` is told besides the bucket. Raises what the login's file makes."""
    scheme = address.url.partition("://")[0]
    options: dict[str, Any] = {
        "client_options": {
            "connect_timeout": timedelta(seconds=CONNECT_S), "allow_http": address.endpoint.startswith("http://"),
        },
    }  # fmt: skip
    file = Path(address.credentials_file) if address.credentials_file else None
    if scheme == "az":
        key = file.read_text().strip() if file else ""
        return scheme, options | _given(endpoint=address.endpoint, account_name=address.account, account_key=key)
    given = _given(endpoint=address.endpoint, region=address.region) | (_profile(file) if file else {})
    # One object a delete: not every server knows the other way.
    style: dict[str, Any] = {"virtual_hosted_style_request": not address.path_style, "disable_bulk_delete": True}
    return scheme, options | given | style


def _given(**options: str) -> dict[str, Any]:
    """Those that are not empty: for the others the library looks at the environment."""
    return {name: value for name, value in options.items() if value}


def _profile(file: Path) -> dict[str, str]:
    """The login in a file as ``~/.aws/credentials``: its section ``default``, or its only one.

    Raises ``OSError``, and ``ValueError`` with words that quote nothing of the file: its lines are secrets.
    """
    parser = configparser.ConfigParser(interpolation=None)  # a secret may hold a %
    with file.open() as text:
        try:
            parser.read_file(text)
        except (configparser.Error, UnicodeDecodeError):
            raise ValueError(f"{file} has not the form of ~/.aws/credentials") from None
    sections = parser.sections()
    if "default" not in sections and len(sections) != 1:
        raise ValueError(f"{file} has no section [default]")
    found = parser["default" if "default" in sections else sections[0]]
    for name in ("aws_access_key_id", "aws_secret_access_key"):
        if name not in found:
            raise ValueError(f"{file} has no {name}")
    login = {"access_key_id": found["aws_access_key_id"], "secret_access_key": found["aws_secret_access_key"]}
    return login | ({"token": found["aws_session_token"]} if "aws_session_token" in found else {})
