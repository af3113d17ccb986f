"""What a version before wrote is read as it is."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from edge.log.sqlite import SqliteLog
from tests.services.ingest.log_format_2 import PARTITIONS, made_of

DATA = Path(__file__).parents[2] / "data" / "log_format_2"


@pytest.mark.parametrize("records_a_read", [1, 7, 10_000])
def test_a_log_of_the_second_encoding_gives_the_rows_that_it_gave(tmp_path: Path, records_a_read: int) -> None:
    """Rows to the last bit, counts and dead letters are those of the version that wrote it, in whatever reads."""
    path = tmp_path / "log.sqlite"
    path.write_bytes(lzma.decompress((DATA / "log.sqlite.xz").read_bytes()))
    log = SqliteLog(path, PARTITIONS)
    try:
        found = made_of(log, records_a_read)
    finally:
        log.close()
    assert found == json.loads((DATA / "expected.json").read_text())
