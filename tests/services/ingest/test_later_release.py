"""A snapshot's header says whether a later release wrote it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.app import System
from services.config import load_settings
from services.errors import StartError
from services.ingest.snapshots import format_10
from services.ingest.snapshots.later_release import later
from services.ingest.snapshots.parts import PARTS
from services.ingest.snapshots.snapshot_file import FORMAT, MAGIC

HEADER: dict[str, Any] = {
    "format": FORMAT, "epoch": 1, "offset": 7, "segments": [],
    "parts": [{"name": name, "version": form.version, "length": 0, "crc32c": 0} for name, form in PARTS.items()],
}  # fmt: skip
ADVICE = {"name": "advice", "version": 1, "length": 0, "crc32c": 0}


def snapshot(header: dict[str, Any], magic: bytes = MAGIC) -> bytes:
    """A snapshot with that header; its checksum is left out."""
    content = msgspec.msgpack.encode(header)
    return magic + struct.pack("<II", len(content), 0) + content


def changed(name: str) -> dict[str, Any]:
    """The header with a later version of a part."""
    parts = [{**part, "version": part["version"] + (part["name"] == name)} for part in HEADER["parts"]]
    return {**HEADER, "parts": parts}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (snapshot(HEADER, b"HHSNP3\r\n"), "it is of another kind"),
        (snapshot({**HEADER, "format": FORMAT + 1}), f"it has format {FORMAT + 1}"),
        (snapshot({"format": FORMAT + 1, "all": "else is new"}), f"it has format {FORMAT + 1}"),
        (snapshot(changed("newest")), f"its part 'newest' has version {PARTS['newest'].version + 1}"),
        (snapshot(changed("scores")), f"its part 'scores' has version {PARTS['scores'].version + 1}"),
        (snapshot({**HEADER, "parts": [*HEADER["parts"], ADVICE]}), "does not know its part 'advice'"),
    ],
)
def test_a_later_release_is_recognised(content: bytes, says: str) -> None:
    """By its kind, its format, a part's version, or a part that is new."""
    assert says in later(content)


@pytest.mark.parametrize(
    "content",
    [
        snapshot(HEADER), snapshot({**HEADER, "parts": HEADER["parts"][1:]}),
        snapshot({**HEADER, "format": FORMAT - 1}), snapshot({"format": "x"}), snapshot(HEADER)[:40],
        format_10.MAGIC + b"anything", MAGIC, b"no snapshot at all", b"",
    ],
)  # fmt: skip
def test_what_is_damaged_or_older_is_not(content: bytes) -> None:
    """Who reads it copes with that."""
    assert later(content) == ""


def test_hothouse_does_not_start_on_it(tmp_path: Path) -> None:
    """Nothing is changed, and the error says what to do."""
    settings = load_settings(data_dir=tmp_path)
    path = settings.storage_folder / "snapshots" / "p0-00000000000000000007.snapshot"
    path.parent.mkdir(parents=True)
    path.write_bytes(snapshot(changed("newest")))
    there = path.read_bytes()
    with pytest.raises(StartError, match="was written by a later release") as caught, System(settings):
        raise AssertionError("it started")
    assert "Start that release, or restore the backup" in caught.value.words
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == there
