"""The publisher's ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge.simulator.publisher.ledger import Ledger
from edge.wire.reading import Sample


def test_the_ledger_counts_samples_not_clocks(tmp_path: Path) -> None:
    """Published counts true samples and disturbances; clock messages are apart; resent ones count in both."""
    ledger = Ledger(tmp_path / "status.json")
    ledger.connected("MQTT 5")
    ledger.instant(60_000)
    for kind, again in (("clock", False), ("sample", False), ("malformed", False), ("sample", True)):
        ledger.sent(kind, again)
        ledger.acked(kind, "Not authorized" if again else "")
    ledger.finish(complete=False)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status == ledger.status
    assert (status["published"], status["acked"], status["refused"], status["resent"]) == (3, 2, 1, 1)
    assert (status["clock_messages"], status["disturbances"], status["now_ms"]) == (1, {"malformed": 1}, 60_000)
    assert (status["done"], status["complete"], status["protocol"]) == (True, False, "MQTT 5")
    assert "Not authorized" in status["last_error"]


def test_the_status_file_is_there_from_the_start_and_alone(tmp_path: Path) -> None:
    """A reader finds a complete status at once, and no half-written file beside it ever stays."""
    ledger = Ledger(tmp_path / "status.json")
    assert json.loads((tmp_path / "status.json").read_text())["done"] is False
    ledger.finish(complete=True)
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("kind", ["ids_file", "messages_file"])
def test_a_full_disk_names_the_file(kind: str) -> None:
    """Without a name it passed for a fault of ours."""
    ledger = Ledger(**{kind: Path("/dev/full")})
    ledger.identify(Sample("s", "z", "d", "0011223344556677", 4, 60_000, {"rh_pct": 70.0}))
    ledger.message("sample", "hothouse/v1/s/z/d/sample", b"{}")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        ledger._save()


def test_ids_are_written_a_line_each(tmp_path: Path) -> None:
    """The ids file names each true sample."""
    ledger = Ledger(ids_file=tmp_path / "ids")
    ledger.identify(Sample("s", "z", "d", "0011223344556677", 4, 60_000, {"rh_pct": 70.0}))
    ledger.finish(complete=True)
    assert (tmp_path / "ids").read_text() == "z d 0011223344556677 4 60000\n"


def test_messages_are_written_a_line_each(tmp_path: Path) -> None:
    """The messages file holds each message as it is sent, and what kind it is."""
    ledger = Ledger(messages_file=tmp_path / "messages")
    ledger.message("sample", "hothouse/v1/s/z/d/sample", b'{"boot":"0011223344556677"}')
    ledger.message("malformed", "hothouse/v1/s/z/d/sample", b"{")
    ledger.finish(complete=True)
    lines = (tmp_path / "messages").read_bytes().splitlines()
    assert [line.split(b"\t") for line in lines] == [
        [b"sample", b"hothouse/v1/s/z/d/sample", b'{"boot":"0011223344556677"}'],
        [b"malformed", b"hothouse/v1/s/z/d/sample", b"{"],
    ]


def test_what_goes_wrong_is_told_once() -> None:
    """Whoever waits for a broker that is not there sees why, not a line a try; a later loss is told again."""
    told: list[str] = []
    ledger = Ledger(tell=told.append)
    for _ in range(3):
        ledger.error("the broker at b:1 cannot be reached")
    assert ledger.summary == "published nothing: the broker at b:1 cannot be reached"
    ledger.connected("MQTT 5")
    ledger.error("connection lost")
    ledger.error("the broker at b:1 cannot be reached")
    assert told == ["the broker at b:1 cannot be reached", "connection lost", "the broker at b:1 cannot be reached"]


def test_the_summary_says_what_came_of_it() -> None:
    """One sentence: how many samples of which time, what was published beside them, and what the broker took."""
    ledger = Ledger()
    assert ledger.summary == "published nothing: there was no sample in that time"
    for ts_ms in (1_646_092_800_000, 1_646_093_100_000):
        ledger.instant(ts_ms)
        for kind, again in (
            ("clock", False),
            ("sample", False),
            ("malformed", False),
            ("sample", True),
            ("malformed", True),
        ):
            ledger.sent(kind, again)
            ledger.acked(kind)
    samples = "2 samples of 2 instants, 2022-03-01 00:00 to 00:05 UTC"
    published = f"published {samples} (besides: 2 disturbances, 4 messages sent again)"
    assert ledger.summary == f"{published}; stopped before the end"
    ledger.finish(complete=True)
    assert ledger.summary == f"{published}; the broker acknowledged all"
    ledger.acked("sample", "Not authorized")
    assert ledger.summary == f"{published}; 1 refused, last error: the broker refused a message: Not authorized"
