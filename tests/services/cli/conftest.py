"""A running Hothouse, and an empty folder to ask it from."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.cli.fake_hothouse import FakeHothouse
from tests.services.serve.system import System, alerted_system


@pytest.fixture
def fake() -> Iterator[FakeHothouse]:
    """A running Hothouse, as far as the command line can tell."""
    hothouse = FakeHothouse()
    thread = threading.Thread(target=hothouse.server.serve_forever, name="fake", args=(0.01,))
    thread.start()
    yield hothouse
    hothouse.server.shutdown()
    hothouse.server.server_close()
    thread.join()


@pytest.fixture
def running(fake: FakeHothouse, tmp_path: Path) -> FakeHothouse:
    """The same, found through the data folder, with its operator's key."""
    folder = tmp_path / "hothouse-data"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"url": fake.url, "pid": 1}))
    (folder / "operator.key").write_text("the-key\n")
    return fake


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def system() -> Iterator[System]:
    """One with alerts, whose client asks it without a network."""
    made = alerted_system()
    yield made
    made.client.close()
