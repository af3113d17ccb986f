"""The id of an installation, and the names that follow from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.config import load_settings
from services.errors import StartError
from services.installation import INSTALLATION_FILE, app_name_of, installation_of, namespace_of
from services.store.storage import MemoryServer, ObjectStorage, Pauses
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
