"""A shard whose storage is a bucket is killed with SIGKILL while it writes: as if nothing had been."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from services.config import Settings, load_settings
from services.log import open_settings_log
from services.store.storage import address_of, open_storage, storage_of
from tests.chaos.stored_shard import PARTITION, content, saved, undisturbed, written_config
from tests.ci.record import balance
from tests.patience import patience_s
from tests.patience import until as wait_until
from tests.s3 import s3_address
from tests.services.ingest.rig import day

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 4
STEPS = 60


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings of a system whose storage is a bucket, with a log in a file."""
    return written_config(tmp_path, s3_address(tmp_path))


def started(config: Path) -> subprocess.Popen[bytes]:
    """A shard of all partitions."""
    return subprocess.Popen([sys.executable, "-m", "tests.chaos.shard_process", str(config), "0", "1"])


def test_a_kill_at_any_moment_loses_nothing_on_a_bucket(config: Path, tmp_path: Path) -> None:
    """Samples come in while the shard is killed again and again: afterwards every row is in the bucket, once, and a
    restart goes on from the snapshot there. Nothing of it is on this machine's disk.
    """
    settings, rng = load_settings(config), random.Random(17)
    settings.data_dir.mkdir()
    records = list(day(STEPS))
    with closing(open_settings_log(settings)) as log:
        process = started(config)
        try:
            for number, start in enumerate(range(0, len(records), len(records) // (KILLS + 1))):
                log.append(records[start : start + len(records) // (KILLS + 1)])
                log.append(records[:2])  # but for the first time they are late
                if number < KILLS:
                    wait_until(
                        lambda before=number: epoch(settings) > before, "the shard has begun"
                    )  # fmt: skip
                    time.sleep(rng.uniform(0, 0.6))  # wherever it is then: in a flush, a snapshot, between them
                    process.kill()
                    process.wait()
                    process = started(config)
            wait_until(lambda: saved(settings) >= log.end_offset(PARTITION), "everything is saved")
            process.send_signal(signal.SIGTERM)
            assert process.wait(patience_s(60)) == 0
        finally:
            process.kill()
            process.wait()
        expected = undisturbed(config, log, tmp_path / "undisturbed")
    found = content(settings)
    with balance():
        assert found["zones"] == expected["zones"]
        assert found["devices"] == expected["devices"]
        assert len(found["zones"]) > 2 * (STEPS - 3)
        assert found["letters"] == expected["letters"]
        assert len({letter.offset for letter in found["letters"]}) >= KILLS
        assert found["alerts"] == expected["alerts"]
        assert found["origins"] == sorted(set(found["origins"]))
    assert epoch(settings) == KILLS + 1
    assert not settings.storage_folder.exists()


def test_two_writers_of_a_partition_on_a_bucket(config: Path) -> None:
    """The second takes it over, and the first ends with one sentence that says so."""
    settings = load_settings(config)
    settings.data_dir.mkdir()
    with closing(open_settings_log(settings)) as log:
        log.append(list(day(40))[:5])
        command = [sys.executable, "-m", "tests.chaos.shard_process", str(config), "0", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
            wait_until(lambda: epoch(settings) == 1, "the first has begun")
            second = started(config)
            try:
                wait_until(lambda: epoch(settings) == 2, "the second has begun")
                log.append(list(day(40))[5:])
                _, said = first.communicate(timeout=patience_s(60))
            finally:
                second.kill()
                second.wait()
        assert first.returncode != 0
        assert f"partition {PARTITION} was taken over by another writer (epoch 2)" in said.splitlines()[-1]


def epoch(settings: Settings) -> int:
    """How often partition 0 was claimed."""
    found = open_storage.__wrapped__(address_of(settings)).list_folder("snapshots").names
    if "p0.epoch" not in found:
        return 0
    return int(storage_of(settings).read("snapshots/p0.epoch").content.split()[0])
