"""Runs the stages of `.ci/run` in their order, within their time.

    python3 -m tests.ci.run --spent SECONDS < STAGES

A line of STAGES is a name, the minutes that it takes on two cores, and a shell command. Where all
that failed in a stage may be races (record.py), they run once more, alone, and if they pass the stage is green. The
stages behind a red one run all the same, so that one run tells all that is wrong. No stage begins after minute 60, nor
one that would not end before minute 85. The exit code is 0 if every stage that ran is green.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.ci.record import FOLDER_VARIABLE, Record

__all__ = ["Run", "Stage", "read_stages"]

LAST_STAGE_S = 60 * 60.0
LAST_RERUN_S = 75 * 60.0
"""What runs again may begin later than a stage: most of it is short, and `make e2e` ends before minute 90."""
END_S = 85 * 60.0
"""A stage that would not end by then is left out: at minute 90 all is cut short, and nothing would be known."""


@dataclass(frozen=True)
class Stage:
    """A part of CI: a name, what a shell runs, and how many minutes that takes on two cores."""

    name: str
    command: str
    minutes: float = 0.0


def read_stages(lines: Iterable[str]) -> list[Stage]:
    """The stages, a line each; empty lines and comments are none. Raises ``ValueError`` where a line lacks a part."""
    found = []
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, minutes, command, *_ = [*line.split(None, 2), "", ""]
        if not minutes.isdigit() or not command:
            raise ValueError(f"the stage {name!r} lacks something: a line is a name, minutes and a command")
        found.append(Stage(name, command.strip(), float(minutes)))
    return found


@dataclass
class Run:
    """One run of CI; ``clock_s`` counts from its beginning."""

    clock_s: Callable[[], float]
    rerun: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def all(self, stages: Sequence[Stage]) -> int:
        """Run them and say what came out; the exit code."""
        for stage in stages:
            if self.clock_s() > LAST_STAGE_S or self.clock_s() + 60 * stage.minutes > END_S:
                self.left_out.append(stage.name)
                continue
            began_s = self.clock_s()
            _say(f"{stage.name} begins: {stage.command}")
            problem = self._problem(stage)
            _say(f"{stage.name}: {_words(self.clock_s() - began_s)}")
            if problem:
                self.failed.append(f"{stage.name} failed: {problem}")
        print("\n".join(self.closing()), flush=True)
        return 1 if self.failed else 0

    def closing(self) -> list[str]:
        """The last lines: what ran again, how it ended, what was left out."""
        again = [f"  {line}" for line in self.rerun] or ["  nothing"]
        ended = "; ".join(self.failed) or "all that ran is green"
        left_out = ", ".join(self.left_out) or "nothing"
        return [
            "RERUN (failed, and passed alone)", *again,
            f"[ci] {ended}; {_words(self.clock_s())}; left out for want of time: {left_out}",
        ]  # fmt: skip

    def _problem(self, stage: Stage) -> str:
        """Run a stage, and its races once more: what is wrong with it, or nothing."""
        code, records = _run(["bash", "-euo", "pipefail", "-c", stage.command])
        if code == 0:
            return ""
        if len(records) != 1:  # none: not pytest, or it crashed; several: one of them may have crashed
            return f"exit code {code}"
        (first,) = records
        if refusal := first.refusal():
            return refusal
        named = ", ".join(first.races)
        if self.clock_s() > LAST_RERUN_S:
            return f"no time is left to run again: {named}"
        _say(f"{stage.name}: once more, alone: {named}")
        code, records = _run(first.again)
        if code != 0:
            return f"failed twice, or something else did: {named}"
        if [record.skipped for record in records] != [()]:
            return f"what ran once more did not run all of: {named}"
        self.rerun += [f"{stage.name}: {race}" for race in first.races]
        return ""


def _run(command: Sequence[str]) -> tuple[int, list[Record]]:
    """A command's exit code, and what it says of its failures."""
    with tempfile.TemporaryDirectory(prefix="hothouse-rerun-") as folder:
        environment = {**os.environ, FOLDER_VARIABLE: folder}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
        return done.returncode, Record.read_all(Path(folder))


def _say(words: str) -> None:
    print(f"[ci] {words}", flush=True)


def _words(seconds: float) -> str:
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def main() -> int:
    """Run what stands on standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spent", type=float, default=0.0, help="seconds that have gone since the beginning")
    began_s = time.monotonic() - parser.parse_args().spent
    return Run(lambda: time.monotonic() - began_s).all(read_stages(sys.stdin))


if __name__ == "__main__":
    sys.exit(main())
