"""A shard whose storage is a bucket that nobody can reach for a while: the stream goes on, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from edge.log import Log, NewRecord
from services.config import load_settings
from services.log import open_settings_log
from tests.chaos.stored_shard import PARTITION, content, saved, undisturbed, written_config
from tests.contracts.faulty_proxy import FaultyProxy
from tests.patience import patience_s
from tests.patience import until as wait_until
from tests.s3 import s3_address
from tests.services.ingest.rig import day

pytestmark = [pytest.mark.s3, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS_A_S = 4
"""Steps of the site that come in a second."""
MOST_GROWN_MB = 100
LAG_S, HUNG_S = 5.0, 20.0
"""A request that hangs is given up after 10 s; one is asked then for every three such times."""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultyProxy]:
    """The way to the bucket."""
    with FaultyProxy(s3_address(tmp_path).endpoint, chance=0) as made:
        yield made


@pytest.mark.parametrize(
    ("away_s", "hangs"),
    [(20.0, False), (20.0, True), *(pytest.param(300.0, hangs, marks=pytest.mark.long) for hangs in (False, True))],
    ids=["refused", "hangs", "for five minutes", "hangs for five minutes"],
)  # fmt: skip
def test_the_stream_goes_on_while_the_bucket_is_away(
    proxy: FaultyProxy, away_s: float, hangs: bool, tmp_path: Path
) -> None:
    """Samples are read as they come, and the figures name the storage. Once it is back every row is there, once, as if
    nothing had been; what waited was bounded, and what was asked of the bucket meanwhile few.
    """
    where = replace(s3_address(tmp_path), endpoint=proxy.endpoint)
    config = written_config(tmp_path, where, "retry_s = 2.0")
    settings = load_settings(config)
    settings.data_dir.mkdir()
    figures_file = settings.data_dir / "shard-0.json"

    def figures() -> dict[str, Any]:
        return dict(json.loads(figures_file.read_text())) if figures_file.exists() else {}

    stream_s = away_s + 20
    records = list(day(round(STEPS_A_S * stream_s)))
    with closing(open_settings_log(settings)) as log:
        shard = subprocess.Popen([sys.executable, "-m", "tests.chaos.shard_process", str(config), "0", "1"])
        stream = Stream(log, records, len(records) / stream_s)
        try:
            with stream:
                wait_until(lambda: saved(settings) > 0, "the shard saves")
                wait_until(lambda: figures().get("backlog") == 0, "the shard has read what there is")
                began_mb = psutil.Process(shard.pid).memory_info().rss / 1e6
                before = saved(settings)
                proxy.away(hangs=hangs)
                asked = proxy.count()
                wait_until(lambda: "storage" in figures()["last_error"], "the figures name the storage")
                assert where.url in figures()["last_error"]
                began_s = time.monotonic()
                lags_s = list[float]()
                while time.monotonic() - began_s < away_s:
                    log.append(records[:1])  # late by now: a dead letter
                    sent, sent_s = stream.sent, time.monotonic()
                    wait_until(lambda sent=sent: figures()["offsets"][str(PARTITION)] >= sent, "what was sent is read")
                    lags_s.append(time.monotonic() - sent_s)
                    time.sleep(0.2)
                assert shard.poll() is None
                grown_mb = psutil.Process(shard.pid).memory_info().rss / 1e6 - began_mb
                asked = proxy.count() - asked
                taken = figures()
                proxy.back()
                wait_until(lambda: saved(settings) > before, "it saves again")
                wait_until(lambda: not figures()["last_error"], "the figures name nothing")
            wait_until(lambda: saved(settings) >= max(log.end_offset(n) for n in range(log.partitions)), "all is saved")
        finally:
            shard.terminate()
            ended = shard.wait(patience_s(60))
        expected = undisturbed(config, log, tmp_path / "undisturbed")
    found = content(settings)
    print(
        f"away {away_s:g} s: lag at most {max(lags_s):.1f} s, {grown_mb:+.0f} MB, {asked} requests, {taken['failures']}"
    )
    assert ended == 0
    assert max(lags_s) < patience_s(HUNG_S if hangs else LAG_S)
    assert grown_mb < MOST_GROWN_MB
    assert taken["failures"]["storage"] >= 1
    for kind in ("zones", "devices", "letters", "alerts"):
        assert found[kind] == expected[kind], kind
    assert found["letters"]
    assert found["origins"] == sorted(set(found["origins"]))


class Stream:
    """Records that come into a log, so many a second, while it is entered; the rest at its end."""

    def __init__(self, log: Log, records: list[NewRecord], per_s: float) -> None:
        self.sent = 0
        self._log, self._records, self._per_s = log, records, per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._append(len(self._records))

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._stop.wait(0.1):
            self._append(min(round((time.monotonic() - began_s) * self._per_s), len(self._records)))

    def _append(self, until: int) -> None:
        if until > self.sent:
            self._log.append(self._records[self.sent : until])
            self.sent = until
