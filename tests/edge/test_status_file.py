"""The file in which a process tells how it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edge.status_file import write_status_file


def test_a_reader_finds_a_whole_one_and_nothing_beside_it(tmp_path: Path) -> None:
    """It is replaced, and no file under another name stays."""
    path = tmp_path / "status.json"
    for content in (b"first", b"second"):
        write_status_file(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    """As /dev/null: for root, a file took the place of the device."""
    pipe = tmp_path / "status"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_status_file(pipe, b"told")
    assert os.read(reading, 10) == b"told"
    os.close(reading)
    assert pipe.is_fifo()


def test_a_link_stays_one(tmp_path: Path) -> None:
    """As /dev/stdout, which leads to a file under `> out`: for root, a file took the place of the link."""
    (tmp_path / "there").mkdir()
    path, target = tmp_path / "status.json", tmp_path / "there" / "out"
    target.write_bytes(b"before")
    path.symlink_to(target)
    write_status_file(path, b"told")
    assert path.is_symlink()
    assert target.read_bytes() == b"told"
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    """Nobody knows the name beside it under which it is written first."""
    path = tmp_path / "nowhere" / "status.json"
    with pytest.raises(FileNotFoundError) as failed:
        write_status_file(path, b"told")
    assert failed.value.filename == str(path)


@pytest.mark.parametrize(("before", "why"), [(b"a longer one", errno.ENOSPC), (b"one", errno.EDQUOT)])
def test_on_a_full_disk_it_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes, why: int
) -> None:
    """Else a process that lives, and knows that the disk is full, gives no sign of life."""
    path = tmp_path / "status.json"
    write_status_file(path, before)

    def full(self: Path, content: bytes) -> int:
        self.touch()
        raise OSError(why, os.strerror(why), str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    write_status_file(path, b"told")
    assert path.read_bytes() == b"told"
    assert list(tmp_path.iterdir()) == [path]
    path.unlink()
    with pytest.raises(OSError, match=os.strerror(why)):
        write_status_file(path, b"told")
