"""What every test gets: no engine and no network unless it asks for them, a clean environment, fixed seeds.

A test that starts Ray, a broker or a browser says so with its marker; the fast tests run first.
"""

from __future__ import annotations

import fcntl
import ipaddress
import itertools
import lzma
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest

from tests.ci.plugin import FailureRecorder
from tests.ci.record import FOLDER_VARIABLE

__all__ = ["FakeClock", "missing", "require_env", "require_program"]

# Products of small matrices on several threads wait for each other: three times as long on a busy machine. numpy reads
# this when it is imported, which no plugin does; processes that tests start inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, database=None, max_examples=50
)
hypothesis.settings.register_profile("dev", deadline=None, max_examples=50)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

ENGINE_MARKERS = ("ray", "chaos", "e2e", "browser")
NETWORK_MARKERS = ("broker", "influx", "kafka", "s3", *ENGINE_MARKERS)
ORDER = ("s3", "broker", "influx", "kafka", "ray", "e2e", "browser", "chaos")
"""Unmarked tests run first, then these groups; within a group the order of the files stays."""


def pytest_configure(config: pytest.Config) -> None:
    """A shell's background job has Ctrl-C switched off, and so would have every program that a test starts.

    `.ci/run` is told what failed; a pytest that a test starts tells it nothing.
    """
    if folder := os.environ.pop(FOLDER_VARIABLE, ""):
        config.pluginmanager.register(FailureRecorder(Path(folder)))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Where a real broker is shared, tests with one run one at a time, also those of another pytest on this machine.

    Waiting for it is no part of a test's time: this comes before the time-out begins to count. A broker that a test
    starts has a port and a folder of its own, and waits for no other.
    """
    server = os.environ.get("HOTHOUSE_TEST_MQTT")
    if not server or item.get_closest_marker("broker") is None:
        return (yield)
    with (Path(tempfile.gettempdir()) / f"hothouse-tests-{server.replace(':', '-')}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    """Commands such as `up` set handlers for the rest of their program, which here is all further tests."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, so that a plain mistake shows before the engine starts."""

    def rank(item: pytest.Item) -> int:
        return max((ORDER.index(mark.name) + 1 for mark in item.iter_markers() if mark.name in ORDER), default=0)

    items.sort(key=rank)


def missing(reason: str) -> NoReturn:
    """Skip a test; with HOTHOUSE_REQUIRE_SERVERS=1 fail it."""
    if os.environ.get("HOTHOUSE_REQUIRE_SERVERS") == "1":
        pytest.fail(f"HOTHOUSE_REQUIRE_SERVERS=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def require_env(name: str) -> str:
    """The value of a ``HOTHOUSE_TEST_*`` variable; without it the test is skipped, or fails (see :func:`missing`)."""
    value = os.environ.get(name)
    if not value:
        missing(f"{name} is not set: it names a real server for this test")
    return value


def require_program(*names: str) -> str:
    """The path of the first of these programs that is installed; else skipped or failed as in :func:`require_env`."""
    for name in names:
        if found := shutil.which(name) or shutil.which(name, path="/usr/sbin"):
            return found
    missing(f"{' or '.join(names)} is not installed")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own HOTHOUSE_* settings reach no test."""
    kept = ("HOTHOUSE_TEST_", "HOTHOUSE_REQUIRE_SERVERS", "HOTHOUSE_SERVERS")
    for name in list(os.environ):
        if name.startswith("HOTHOUSE_") and not name.startswith(kept):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test without an engine marker fails when it starts Ray."""
    if any(request.node.get_closest_marker(name) for name in ENGINE_MARKERS):
        yield
        return

    def refuse(*_: Any, **__: Any) -> NoReturn:
        pytest.fail("a test that starts Ray needs the marker `ray`", pytrace=False)

    if "ray" in sys.modules:  # importing it here would cost every run a second
        monkeypatch.setattr(sys.modules["ray"], "init", refuse)
    before = _ray_runs()
    yield
    if _ray_runs() and not before:
        refuse()


def _ray_runs() -> bool:
    ray = sys.modules.get("ray")
    return bool(ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized())


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without a server's marker fails when it connects to anything but this machine."""
    if any(request.node.get_closest_marker(name) for name in NETWORK_MARKERS):
        return
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(str(address[0])):
            pytest.fail(f"a test without a server marker connected to {address[0]}", pytrace=False)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class FakeClock:
    """A clock that moves only when told to; the same calls as the clocks of the package."""

    def __init__(self, now_ms: int = 1_646_092_800_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return self._now_ms

    def advance(self, seconds: float) -> int:
        """Move forward; returns the new time in milliseconds."""
        self._now_ms += round(seconds * 1000)
        return self._now_ms


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands at 2022-03-01 00:00 UTC."""
    return FakeClock()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """An empty data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first four days of two of the three compartments in ``data/lettuce_2022``, for tests that read them often."""
    source = Path(__file__).parent / "data" / "lettuce_2022"
    folder = tmp_path_factory.mktemp("recording") / "lettuce"
    folder.mkdir()
    shutil.copy(source / "recording.toml", folder)
    for zone in ("Koala", "Reference"):
        with lzma.open(source / f"{zone}.csv.xz", "rt") as whole:
            (folder / f"{zone}.csv").write_text("".join(itertools.islice(whole, 1 + 4 * 288)))
    return folder
