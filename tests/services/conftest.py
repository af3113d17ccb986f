"""What the tests of `services/` share."""

from __future__ import annotations

import os

import pytest

from tests.conftest import NETWORK_MARKERS


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up crash loses no page cache: nothing that a test of one process asserts needs the disk itself.

    A shard's file is made durable some twenty times a step. Who asserts when that happens puts its own `os.fsync` here.
    """
    if not any(request.node.get_closest_marker(name) for name in NETWORK_MARKERS):
        monkeypatch.setattr(os, "fsync", lambda _: None)
