"""What object stores say, in our words: each trouble in one sentence, with what to do next."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from services.cli.setup.check import CheckState
from services.cli.setup.doctor_storage import check_storage
from services.config import Settings, StorageSettings
from services.errors import NotStoredError, StorageAwayError, StorageRefusedError
from services.store.storage import ObjectStorage, Pauses, StorageAddress, cloud_server, open_storage
from services.store.storage.cloud_server import CloudServer
from tests.contracts.faulty_proxy import FaultyProxy
from tests.patience import patience_s
from tests.s3 import s3_address

EXPIRED = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


@contextmanager
def answering(*answers: tuple[int, str], told: list[str] | None = None) -> Iterator[str]:
    """The address of a server that gives these answers, status and body, one after the other, the last for ever."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if told is not None:
                told.append(self.headers.get("Authorization", ""))
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            for name, value in {"ETag": '"1"', "Content-Length": str(len(body)), "Retry-After": "1"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def address(endpoint: str, folder: Path, key: str = "one") -> StorageAddress:
    """A bucket there, with a login in a file."""
    login = folder / "credentials"
    login.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = two\naws_session_token = three\n")
    return StorageAddress(
        url="s3://bucket/folder", endpoint=endpoint, region="us-east-1", path_style=True, credentials_file=str(login)
    )


def test_a_busy_server_is_asked_again_after_a_second(tmp_path: Path) -> None:
    """503 with Retry-After: 1, twice, then it answers."""
    slept = list[float]()
    with answering((503, "<Error><Code>SlowDown</Code></Error>"), (503, ""), (200, "hello")) as endpoint:
        server = CloudServer(address(endpoint, tmp_path))
        storage = ObjectStorage(server, Pauses(sleep=slept.append))
        assert storage.read("a").content == b"hello"
    assert len(slept) == 2
    assert min(slept) >= 1


def test_credentials_that_expired_are_read_again(tmp_path: Path) -> None:
    """The file has newer ones by then: the request is done with these, and nobody hears of it."""
    told = list[str]()
    with answering((200, "1"), (403, EXPIRED), (200, "2"), told=told) as endpoint:
        storage = open_storage(address(endpoint, tmp_path))
        assert storage.read("a").content == b"1"
        address(endpoint, tmp_path, key="another")
        assert storage.read("a").content == b"2"
    assert ["Credential=one/" in one for one in told] == [True, True, False]
    assert "Credential=another/" in told[-1]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (403, EXPIRED, "s3://bucket/folder refuses what it is asked: ExpiredToken: The provided token has expired."),
        (404, "<Error><Code>NoSuchBucket</Code></Error>", "there is no s3://bucket/folder: NoSuchBucket"),
        (404, "<Error><Code>XAdminUserNotFound</Code></Error>", "refuses what it is asked: XAdminUserNotFound"),
        (400, "<Error><Code>AuthorizationHeaderMalformed</Code></Error>", "asked: AuthorizationHeaderMalformed"),
    ],
)
def test_a_refusal_is_one_sentence(status: int, body: str, said: str, tmp_path: Path) -> None:
    """It is asked no more than twice, and never taken for an object that is not there."""
    with answering((status, body)) as endpoint, pytest.raises(StorageRefusedError) as raised:
        open_storage(address(endpoint, tmp_path)).read("a")
    assert said in raised.value.words
    assert raised.value.hint.startswith(("Check ", "Make the bucket"))
    assert "Debug source" not in raised.value.words


def test_what_is_not_there_is_not_a_refusal(tmp_path: Path) -> None:
    """Where the server says that it knows no such object."""
    with answering((404, "<Error><Code>NoSuchKey</Code></Error>")) as endpoint, pytest.raises(NotStoredError):
        open_storage(address(endpoint, tmp_path)).read("a")


def test_nobody_there(tmp_path: Path) -> None:
    """The sentence names the storage and what to look at."""
    server = CloudServer(address("http://127.0.0.1:1", tmp_path))
    with pytest.raises(StorageAwayError, match=r"s3://bucket/folder does not answer") as raised:
        ObjectStorage(server, Pauses(total_s=0)).read("a")
    assert "storage.endpoint" in raised.value.hint


def test_credentials_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A file that is not there, or is none of that form."""
    there = address("http://127.0.0.1:1", tmp_path)
    with pytest.raises(StorageRefusedError, match=r"cannot be read: .*nowhere"):
        CloudServer(replace(there, credentials_file=str(tmp_path / "nowhere")))
    (tmp_path / "credentials").write_text("[other]\n[another]\n")
    with pytest.raises(StorageRefusedError, match=r"has no section \[default\]"):
        CloudServer(there)


def settings_of(where: StorageAddress, **other: str) -> Settings:
    said = {name: getattr(where, name) for name in ("url", "endpoint", "region", "path_style", "credentials_file")}
    return Settings(storage=StorageSettings(**{**said, **other}))


def test_the_doctor_says_what_is_wrong(tmp_path: Path) -> None:
    """A server that refuses, and one that heeds no conditions, with what to do."""
    assert check_storage(Settings()) is None
    with answering((403, EXPIRED)) as endpoint:
        found = check_storage(settings_of(address(endpoint, tmp_path)))
    assert found is not None
    assert (found.state, "ExpiredToken" in found.found) == (CheckState.FAIL, True)
    listed = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>'
    with answering(*[(200, "")] * 4, (200, listed)) as endpoint:
        found = check_storage(settings_of(address(endpoint, tmp_path)))
    assert found is not None
    assert (found.state, "heed conditions" in found.found) == (CheckState.FAIL, True)


@pytest.mark.s3
def test_a_slow_line_is_not_a_server_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 MB at 1 MB/s take three times as long as a server may say nothing: each way they arrive all the same."""
    monkeypatch.setattr(cloud_server, "REQUEST_S", 1.0)
    where, content = s3_address(tmp_path), b"x" * 3_000_000
    with FaultyProxy(where.endpoint, chance=0) as proxy:
        proxy.bytes_per_s = 1_000_000
        storage = ObjectStorage(CloudServer(replace(where, endpoint=proxy.endpoint)), Pauses(total_s=0))
        began_s = time.monotonic()
        storage.put_new("a", content)
        assert time.monotonic() - began_s > 2
        began_s = time.monotonic()
        assert storage.read("a").content == content
        assert time.monotonic() - began_s > 2
        assert len(proxy.requests) == 2


@pytest.mark.s3
def test_a_server_that_says_nothing_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as long as it may say nothing; with a put as long as this may take on the slowest line."""
    monkeypatch.setattr(cloud_server, "REQUEST_S", 0.5)
    where = s3_address(tmp_path)
    with FaultyProxy(where.endpoint, chance=0) as proxy:
        storage = ObjectStorage(CloudServer(replace(where, endpoint=proxy.endpoint)), Pauses(total_s=0))
        proxy.away(hangs=True)
        for ask, least_s in (
            (lambda: storage.read("a"), 0.5), (lambda: storage.put_new("a", b"x"), 0.5),
            (lambda: storage.put_new("a", b"x" * 150_000), 1.5),
        ):  # fmt: skip
            began_s = time.monotonic()
            with pytest.raises(StorageAwayError):
                ask()
            assert least_s <= time.monotonic() - began_s < patience_s(10)


@pytest.mark.s3
def test_an_object_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Before anything is sent: as one request it cannot go, and parts would have no condition."""

    def sparse(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(5_000_000_001)

    with pytest.raises(StorageRefusedError, match="5,000,000,000 is the most"):
        open_storage(s3_address(tmp_path)).put_new("a", sparse)


@pytest.mark.s3
def test_the_doctor_on_a_real_server(tmp_path: Path) -> None:
    """All is well, and nothing is left; then the bucket is not there, then the login is wrong."""
    where = s3_address(tmp_path)
    found = check_storage(settings_of(where))
    assert found is not None
    assert (found.state, found.found) == (CheckState.OK, f"{where.url} can be written, and refuses a second writer")
    assert open_storage(where).list_folder("doctor").names == ()
    found = check_storage(settings_of(where, url="s3://no-such-bucket"))
    assert found is not None
    assert "there is no s3://no-such-bucket" in found.found
    Path(where.credentials_file).write_text("[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n")
    found = check_storage(settings_of(replace(where, url=f"{where.url}/deeper")))
    assert found is not None
    assert (found.state, "refuses" in found.found) == (CheckState.FAIL, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("AWS_SECRET_ACCESS_KEY=wJalrSECRET\n", "has not the form"),
        ("[default]\nwJalrSECRET\n", "has not the form"),
        ("[default]\naws_access_key_id = wJalrSECRET\n", "has no aws_secret_access_key"),
        ("[default]\n[default]\nx = wJalrSECRET\n", "has not the form"),
    ],
)
def test_a_login_that_cannot_be_read_is_told_without_it(tmp_path: Path, text: str, says: str) -> None:
    """One line, which holds nothing of the file; for tables as for objects."""
    file = tmp_path / "login"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b%xyz\n")  # a % is nothing special
    server = CloudServer(StorageAddress(url="s3://bucket", endpoint="http://127.0.0.1:1", credentials_file=str(file)))
    assert server.delta_options()["secret_access_key"] == "b%xyz"
    file.write_text(text)
    for ask in (server.renew, server.delta_options):
        with pytest.raises(StorageRefusedError, match=says) as caught:
            ask()
        assert "SECRET" not in caught.value.words.replace("aws_secret", "")
        assert "\n" not in caught.value.words


def test_a_machine_without_a_login_is_told_what_to_set(tmp_path: Path) -> None:
    """The library then asks the cloud for the machine's role; on a machine of one's own nobody answers there."""
    server = CloudServer(address("http://127.0.0.1:1", tmp_path))

    def ask() -> bytes:
        raise GenericError("Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - No.")

    with pytest.raises(StorageAwayError, match="there is no login for s3://") as raised:
        server._ask("key", ask)
    assert "storage.credentials_file" in raised.value.hint
