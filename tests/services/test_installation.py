"""The id of an installation, and the names that follow from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.config import load_settings
from services.errors import StartError
from services.installation import (
    INSTALLATION_FILE,
    KNOWN_FILE,
    app_name_of,
    installation_of,
    namespace_of,
    refuse_an_emptied_storage,
    remember_installation,
)
from services.store.storage import FolderStorage, MemoryServer, ObjectStorage, Pauses, Storage
from services.store.storage.folder_storage import LOCK
from tests.contracts.faulty_server import FaultyServer


def test_an_id_is_made_once_and_kept_with_the_state(tmp_path: Path) -> None:
    """The same state has the same id, also under another name; another state has another."""
    first = installation_of(tmp_path / "a")
    assert installation_of(tmp_path / "a") == first
    (tmp_path / "a").rename(tmp_path / "moved")
    assert installation_of(tmp_path / "moved") == first
    assert installation_of(tmp_path / "b") != first


def test_threads_make_one_id(tmp_path: Path) -> None:
    """Whoever is first, all have the same, and nothing is left beside it."""
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(installation_of, [tmp_path] * 32))) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name != LOCK] == [INSTALLATION_FILE]


def test_the_id_of_a_bucket_is_that_of_all_its_machines() -> None:
    """Two that make one at once have the same, also where answers are lost."""
    server = MemoryServer()
    machines = [ObjectStorage(FaultyServer(server, seed), Pauses(total_s=1e6, sleep=lambda _: None)) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(installation_of, machines))) == 1


def test_two_installations_share_no_name_on_a_cluster(tmp_path: Path) -> None:
    """Namespaces differ, and so do Serve's applications; on a runtime of our own the application has its plain name."""
    joined = [load_settings(data_dir=tmp_path / name, ray={"address": "head:6379"}) for name in ("a", "b")]
    assert len({namespace_of(settings) for settings in joined}) == 2
    assert len({app_name_of(settings) for settings in joined}) == 2
    alone = load_settings(data_dir=tmp_path / "a")
    assert (namespace_of(alone), app_name_of(alone)) == (namespace_of(joined[0]), "hothouse")


@pytest.mark.parametrize("content", [b"", b"hothouse", b"\xff" * 12, b"../../../etc"])
def test_a_damaged_id_is_an_error_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    """It is not replaced silently: what runs under the old one would be lost sight of."""
    (tmp_path / INSTALLATION_FILE).write_bytes(content)
    with pytest.raises(StartError, match=INSTALLATION_FILE):
        installation_of(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_storage_that_is_empty_all_at_once_is_no_new_one(kind: str, tmp_path: Path) -> None:
    """A folder that is not mounted, a bucket of another name: nothing is written there, and the sentence says why."""

    def fresh(name: str) -> Storage:
        return FolderStorage(tmp_path / name) if kind == "folder" else ObjectStorage(MemoryServer())

    data_dir, storage, empty = tmp_path / "data", fresh("storage"), fresh("empty")
    refuse_an_emptied_storage(data_dir, storage)  # a first start
    remember_installation(data_dir, storage)
    refuse_an_emptied_storage(data_dir, storage)
    with pytest.raises(StartError, match=f"is empty, and .* belongs to the installation {installation_of(storage)}"):
        refuse_an_emptied_storage(data_dir, empty)
    assert not (tmp_path / "empty").exists()
    empty.put("snapshots/p0.epoch", b"1")  # a backup was brought back, which holds no id
    refuse_an_emptied_storage(data_dir, empty)
    remember_installation(data_dir, empty)
    assert (data_dir / KNOWN_FILE).read_text().strip() == installation_of(empty) != installation_of(storage)


def test_who_wants_to_begin_anew_removes_one_file(tmp_path: Path) -> None:
    """The one that the sentence names."""
    data_dir, storage = tmp_path / "data", FolderStorage(tmp_path / "storage")
    remember_installation(data_dir, storage)
    storage.delete(INSTALLATION_FILE)
    with pytest.raises(StartError) as error:
        refuse_an_emptied_storage(data_dir, storage)
    assert error.value.hint.endswith(f"remove {data_dir / KNOWN_FILE}.")
    (data_dir / KNOWN_FILE).unlink()
    refuse_an_emptied_storage(data_dir, storage)
    remember_installation(data_dir, storage)
