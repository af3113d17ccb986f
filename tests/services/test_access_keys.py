"""Named keys: what each may do, until when; changes are seen at once, and none is lost."""

from __future__ import annotations

import json
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.access_keys import KEYS_FILE, SCOPES, AccessKeys
from services.errors import LOOK_AT_THE_DISK, ConfigError, StorageAwayError
from services.serve.api.auth import HashedKey, Keys
from services.serve.api.problems import ProblemError
from services.store.storage import Entry, MemoryServer, ObjectStorage, Pauses, Stored
from tests.contracts.faulty_server import FaultyServer
from tests.patience import until

NOW_MS = 1_646_092_800_000
DAY_MS = 86_400_000


def said(keys: Keys, key: str, *, order: bool) -> int:
    """The status that a request with this key gets."""
    try:
        (keys.require_operator if order else keys.require_reader)(f"Bearer {key}")
    except ProblemError as error:
        return error.status
    return 200


@pytest.mark.parametrize(("scope", "order"), list(zip(SCOPES, (403, 200, 200), strict=True)))
def test_a_scope_allows_what_those_before_it_allow(tmp_path: Path, scope: str, order: int) -> None:
    """All may read; the operator's and the administrator's may give orders."""
    named = AccessKeys(tmp_path)
    keys = Keys("op-key", None, named, read_needs_key=True)
    key = named.add("somebody", scope, NOW_MS)  # type: ignore[arg-type]
    assert (said(keys, key, order=False), said(keys, key, order=True)) == (200, order)
    assert said(keys, key + "x", order=False) == 403


def test_a_key_that_was_revoked_is_refused_at_once(tmp_path: Path) -> None:
    """Who follows the file sees what another process did to it, without a restart; the others stay."""
    keys = Keys("op-key", None, AccessKeys(tmp_path), read_needs_key=True)
    other = AccessKeys(tmp_path)
    one, two = (other.add(name, "read", NOW_MS) for name in ("one", "two"))
    assert [said(keys, key, order=False) for key in (one, two)] == [200, 200]
    other.revoke("one")
    assert [said(keys, key, order=False) for key in (one, two)] == [403, 200]


def test_a_key_ends(tmp_path: Path) -> None:
    """Until its time it is taken, from then on refused, with its name."""
    now = [NOW_MS]
    named = AccessKeys(tmp_path)
    keys = Keys("op-key", None, named, read_needs_key=True, wall_ms=lambda: now[0])
    key = named.add("guest", "read", NOW_MS, NOW_MS + DAY_MS)
    now[0] += DAY_MS - 1
    assert said(keys, key, order=False) == 200
    now[0] += 1
    with pytest.raises(ProblemError, match="the key guest has expired"):
        keys.require_reader(f"Bearer {key}")


def test_the_file_tells_no_key_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    """What is kept is a hash."""
    key = AccessKeys(tmp_path).add("one", "read", NOW_MS)
    kept = (tmp_path / KEYS_FILE).read_text()
    assert key not in kept
    assert key.removeprefix("hothouse_") not in kept
    assert stat.S_IMODE((tmp_path / KEYS_FILE).stat().st_mode) == 0o600
    assert len(key) > 40


def test_of_changes_at_once_none_is_lost(tmp_path: Path) -> None:
    """Each writer adds to what the others wrote."""
    writers = [
        threading.Thread(target=lambda n=n: [AccessKeys(tmp_path).add(f"{n}-{m}", "read", NOW_MS) for m in range(5)])
        for n in range(6)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(one.name for one in AccessKeys(tmp_path).listed()) == sorted(
        f"{n}-{m}" for n in range(6) for m in range(5)
    )


def test_mistakes_are_told(tmp_path: Path) -> None:
    """A name that is taken, one that is not there, and a damaged file have a sentence each."""
    named = AccessKeys(tmp_path)
    with pytest.raises(ConfigError, match="there is no key named one; there are no keys"):
        named.revoke("one")
    named.add("one", "read", NOW_MS)
    with pytest.raises(ConfigError, match="there is a key named one already"):
        named.add("one", "admin", NOW_MS)
    kept = json.loads((tmp_path / KEYS_FILE).read_text())
    kept["keys"][0]["scope"] = "everything"
    (tmp_path / KEYS_FILE).write_text(json.dumps(kept))
    with pytest.raises(ConfigError, match="cannot be read: Invalid enum value 'everything'"):
        named.listed()
    keys = Keys("op-key", None, named, read_needs_key=True)
    assert (said(keys, "x", order=False), said(keys, "op-key", order=False)) == (503, 200)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"the keys in .*file/keys.json cannot be changed: ") as refused:
        AccessKeys(tmp_path / "file").add("one", "read", NOW_MS)
    assert refused.value.hint == LOOK_AT_THE_DISK


def test_reading_stays_open_where_nothing_else_is_said(tmp_path: Path) -> None:
    """A key that was added for orders closes nothing."""
    named = AccessKeys(tmp_path)
    named.add("one", "operate", NOW_MS)
    Keys("op-key", None, named).require_reader(None)
    with pytest.raises(ProblemError, match="reading needs a key"):
        Keys("op-key", None, named, read_needs_key=True).require_reader(None)


class Asked(ObjectStorage):
    """A bucket that notes which threads ask it, and answers reads no more once it is ``away``."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.poll_s = 0.01
        self.away = False
        self.refused = 0
        self.threads = set[threading.Thread]()

    def entry(self, key: str) -> Entry | None:
        """Answered also while reads are not."""
        self.threads.add(threading.current_thread())
        return super().entry(key)

    def read(self, key: str) -> Stored:
        """Refused while it is away."""
        self.threads.add(threading.current_thread())
        if self.away:
            self.refused += 1
            raise StorageAwayError("the bucket is away")
        return super().read(key)


def test_keys_in_a_bucket_are_those_of_all_machines(caplog: pytest.LogCaptureFixture) -> None:
    """A machine that follows them sees a change at its next look; no request asks the bucket. While that is away, or
    what it holds is damaged, what was read last holds.
    """
    server = MemoryServer()
    here, there = ObjectStorage(server), Asked(server)
    two = AccessKeys(here).add("two", "read", NOW_MS)
    keys = Keys.load(HashedKey.of("op-key"), AccessKeys(there), None, read_needs_key=True)
    there.threads.clear()
    assert (said(keys, two, order=False), said(keys, "x", order=False)) == (200, 403)
    one = AccessKeys(here).add("one", "read", NOW_MS)
    until(lambda: said(keys, one, order=False) == 200, "the key is taken", 10)
    AccessKeys(here).revoke("one")
    until(lambda: said(keys, one, order=False) == 403, "the key is refused", 10)
    there.away = True
    three = AccessKeys(here).add("three", "read", NOW_MS)
    until(lambda: there.refused > 1, "the change is seen, and cannot be read", 10)
    assert [said(keys, key, order=False) for key in (two, three)] == [200, 403]
    there.away = False
    until(lambda: said(keys, three, order=False) == 200, "the key is taken once the bucket answers", 10)
    here.put(KEYS_FILE, b"{}")
    until(lambda: "missing required field" in caplog.text, "it is told that they are damaged", 10)
    assert said(keys, three, order=False) == 200
    assert threading.current_thread() not in there.threads


def test_of_changes_to_a_bucket_at_once_none_is_lost() -> None:
    """Each writer adds to what the others wrote, also where answers are lost."""
    server = MemoryServer()
    pauses = Pauses(total_s=1e6, sleep=lambda _: None)

    def add(seed: int) -> None:
        AccessKeys(ObjectStorage(FaultyServer(server, seed), pauses)).add(f"k{seed}", "read", NOW_MS)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert sorted(one.name for one in AccessKeys(ObjectStorage(server)).listed()) == ["k0", "k1", "k2", "k3"]
