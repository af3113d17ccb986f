"""A backup that somebody made up is refused whole, and writes nothing."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from services.errors import BackupError
from services.store.backup import INDEX, restore
from services.store.storage import FolderStorage
from tests.services.store.backups import quiet


def forged(to: Path, info: tarfile.TarInfo) -> Path:
    """A backup whose index fits, with a member that no backup has."""
    info.size = 1 if info.isreg() else 0
    members = {info.name: hashlib.sha256(b"x").hexdigest()}
    index = json.dumps({"format": 1, "made": "now", "log": "sqlite", "bucket": False, "members": members}).encode()
    about = tarfile.TarInfo(INDEX)
    about.size = len(index)
    with tarfile.open(to, "w") as tar:
        tar.addfile(info, io.BytesIO(b"x"))
        tar.addfile(about, io.BytesIO(index))
    return to


@pytest.mark.parametrize(
    "name",
    [
        "../escaped", "data/../../escaped", "{}/escaped", "storage/x/../../../escaped", "storage/{}/escaped",
        "data/{}/escaped", "storage/x//escaped", "data/./escaped", "storage/x/", "storage/",
    ],
)  # fmt: skip
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    """A forged file is refused whole, and what is elsewhere stays as it was."""
    (tmp_path / "escaped").write_text("of before")
    file = forged(tmp_path / "b.tar", tarfile.TarInfo(name.format(tmp_path)))
    with pytest.raises(BackupError, match="is none of its parts"):
        restore(file, FolderStorage(tmp_path / "new" / "storage"), tmp_path / "new" / "data", quiet)
    assert (tmp_path / "escaped").read_text() == "of before"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    """What follows a link would be written where it leads."""
    info = tarfile.TarInfo("storage/x")
    info.type, info.linkname = kind, "/etc"
    with pytest.raises(BackupError, match="'storage/x' is none of its parts"):
        restore(forged(tmp_path / "b.tar", info), FolderStorage(tmp_path / "storage"), tmp_path / "data", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def test_a_file_with_holes_is_refused(tmp_path: Path) -> None:
    """Of 512 bytes a tar can say that they are 8 TB of zeros; nothing is read of them, and nothing is written."""
    name, size = b"storage/rows", 8 * 1024**4
    head = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.GNU_FORMAT))
    head[156:157] = tarfile.GNUTYPE_SPARSE
    head[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (tmp_path / "b.tar").write_bytes(bytes(head) + bytes(1024))
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert tar.getmembers()[0].size == size
    with pytest.raises(BackupError, match="'storage/rows' is none of its parts"):
        restore(tmp_path / "b.tar", FolderStorage(tmp_path / "storage"), tmp_path / "data", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]
