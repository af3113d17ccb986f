"""The local broker's log stays short, and who writes to it goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from edge.mqtt.broker_log import shorten
path = Path(sys.argv[1])
print("a" * 600, flush=True)
first = shorten(path, 1000)
print("b" * 600, flush=True)
second = shorten(path, 1000)
print("c", first, second, flush=True)
"""


def run(path: Path, mode: str, said: Path | None = None) -> None:
    """The code, with its output in ``said``, which looks at ``path``."""
    with (said or path).open(mode) as output:
        subprocess.run([sys.executable, "-c", CODE, str(path)], stdout=output, check=True)


def test_a_long_log_begins_anew_and_keeps_what_it_held(tmp_path: Path) -> None:
    """What is written next stands at its beginning."""
    log = tmp_path / "broker.log"
    run(log, "ab")
    assert log.read_text() == "c False True\n"
    assert len((tmp_path / "broker.log.1").read_text()) == 1202


def test_a_file_that_we_do_not_write_to_is_left_alone(tmp_path: Path) -> None:
    """Somebody may have started the broker by hand, with its output elsewhere."""
    log = tmp_path / "broker.log"
    log.write_text("x" * 2000)
    run(log, "ab", tmp_path / "other.log")
    assert len(log.read_text()) == 2000
