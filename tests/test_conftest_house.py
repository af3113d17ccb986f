"""The guards of tests/conftest.py: they bite, and they let through what is meant to pass."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from tests.conftest import FakeClock, require_env

ROOT = Path(__file__).parents[1]


def test_a_unit_test_cannot_connect_elsewhere() -> None:
    """Connecting to a machine that is not this one fails a test without a server's marker."""
    with socket.socket() as client, pytest.raises(pytest.fail.Exception, match=r"192\.0\.2\.1"):
        client.connect(("192.0.2.1", 80))


def test_loopback_is_allowed() -> None:
    """A unit test may talk to a server of its own on loopback."""
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())


def test_a_missing_server_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its variable a test of a real server is skipped, and the reason names the variable."""
    monkeypatch.delenv("HOTHOUSE_REQUIRE_SERVERS", raising=False)
    monkeypatch.delenv("HOTHOUSE_TEST_MQTT", raising=False)
    with pytest.raises(pytest.skip.Exception, match="HOTHOUSE_TEST_MQTT"):
        require_env("HOTHOUSE_TEST_MQTT")


def test_a_missing_server_fails_where_servers_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """With HOTHOUSE_REQUIRE_SERVERS=1 the same test fails instead."""
    monkeypatch.setenv("HOTHOUSE_REQUIRE_SERVERS", "1")
    monkeypatch.delenv("HOTHOUSE_TEST_MQTT", raising=False)
    with pytest.raises(pytest.fail.Exception, match="HOTHOUSE_TEST_MQTT"):
        require_env("HOTHOUSE_TEST_MQTT")


def test_own_settings_do_not_leak_in() -> None:
    """No HOTHOUSE_ setting of the developer's shell is visible to a test."""
    assert not [name for name in os.environ if name.startswith("HOTHOUSE_") and "__" in name]


def test_the_clock_moves_only_when_told(clock: FakeClock) -> None:
    """A fake clock stands still until it is advanced."""
    before = clock.now_ms()
    assert clock.now_ms() == before
    assert clock.advance(1.5) == before + 1500


def test_the_recording_is_there(recording: Path) -> None:
    """The recording fixture holds two zones."""
    assert sorted(path.name for path in recording.glob("*.csv")) == ["Koala.csv", "Reference.csv"]


def test_engines_are_started_in_the_folders_that_make_test_reads_for_them() -> None:
    """Its part with engines reads these folders alone; a test elsewhere would be in no part."""
    makefile = (ROOT / "Makefile").read_text()
    named = re.search(r"^engine := (.*)\nengine_folders := (.*)$", makefile, re.M)
    assert named
    marked = re.compile(rf"^[^\"'\n]*\bmark\.({'|'.join(named[1].split(' or '))})\b", re.M)
    found = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py") if marked.search(path.read_text())}
    assert {path.rpartition("/")[0] for path in found if not path.startswith("tests/ci/")} == set(named[2].split())


def test_no_test_file_imports_another() -> None:
    """What several files share stands in one that has no tests: who changes a test need not read others."""
    imports = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_\w+", re.MULTILINE)
    files = (ROOT / "tests").rglob("*.py")
    assert [str(file.relative_to(ROOT)) for file in files if imports.search(file.read_text())] == []
