"""Files with a secret are read alike, whatever wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.secret_file import read_secret
from services.key_file import read_key


@pytest.mark.parametrize("written", [b"s3cret", b"s3cret\n", b"s3cret\r\n", b"\xef\xbb\xbfs3cret\r\n", b" s3cret \n\n"])
def test_what_an_editor_adds_is_no_part_of_a_secret(tmp_path: Path, written: bytes) -> None:
    """Ends of lines, and the mark with which editors of Windows begin a file: a login with it would be refused, and
    nobody sees why.
    """
    (file := tmp_path / "password").write_bytes(written)
    assert read_secret(file) == read_key(file) == "s3cret"
