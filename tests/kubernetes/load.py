"""Twenty requests a second, whatever becomes of them: who waits for an answer before the next question misses failures.

Standard library only.
"""

from __future__ import annotations

import collections
import http.client
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass

from tests.compose.stack import ROOT, StackError

__all__ = ["Answer", "Load", "Seen", "ask"]

PER_S = 20
TIMEOUT_S = 1.0
LATE = "answered late"


@dataclass(frozen=True, slots=True)
class Answer:
    """One question: when it was to be asked, after how long it was answered, and what."""

    at_s: float
    took_s: float
    status: int  # 0: none within a second
    version: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of the questions of a time."""

    asked: int
    failed: int
    longest_gap_s: float
    problems: str  # what failed, and how often
    failed_s: tuple[float, float] = (0.0, 0.0)  # when the first and the last failed, from the beginning

    @classmethod
    def of(cls, answers: list[Answer], since_s: float, until_s: float) -> Seen:
        """Of those asked in [since, until).

        >>> good = [Answer(t / 2, 0.1, 200, "v1") for t in (0, 1, 4)]
        >>> Seen.of([*good, Answer(1.0, 1.0, 0, "", "timed out")], 0.0, 3.0)
        Seen(asked=4, failed=1, longest_gap_s=1.5, problems='1 timed out', failed_s=(1.0, 1.0))
        """
        asked = [each for each in answers if since_s <= each.at_s < until_s]
        failed = [each for each in asked if each.status != 200]
        good = [since_s, *sorted(a.at_s + a.took_s for a in asked if a.status == 200), until_s]
        gap_s = max(after - before for before, after in itertools.pairwise(good))
        if not failed:
            return cls(len(asked), 0, gap_s, "")
        at_s = [each.at_s - since_s for each in failed]
        times = collections.Counter(each.problem for each in failed)
        problems = [f"{count} {problem}" for problem, count in times.most_common()]
        if late_s := [each.took_s for each in failed if each.problem == LATE]:
            problems.append(f"these after {min(late_s):.2f} to {max(late_s):.2f} s")
        return cls(len(asked), len(failed), gap_s, ", ".join(problems), (min(at_s), max(at_s)))

    @property
    def words(self) -> str:
        """What became of them, in a line.

        >>> Seen(100, 2, 1.5, "timed out", (1.0, 4.25)).words
        '100 asked, 2 failed 1.0 to 4.2 s after the beginning: timed out'
        """
        when = f" {self.failed_s[0]:.1f} to {self.failed_s[1]:.1f} s after the beginning: {self.problems}"
        return f"{self.asked:,} asked, {self.failed} failed{when if self.failed else ''}"


class Load:
    """Asks for a zone's forecast, in a process of its own; a context manager."""

    def __init__(self, address: str, zone: str) -> None:
        self.answers: list[Answer] = []
        self._command = (sys.executable, "-m", "tests.kubernetes.load", address, zone)
        self._thread = threading.Thread(target=self._read, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # which ends it
        self._thread.join()
        self._process.wait()

    def seen(self, since_s: float) -> Seen:
        """What became of what was asked since then, but for the last seconds, which may yet be answered.

        Raises :class:`StackError` where nobody asks any more.
        """
        if self._process.poll() is not None:
            raise StackError(f"who asks twenty times a second has ended with {self._process.returncode}")
        return Seen.of(list(self.answers), since_s, time.monotonic() - TIMEOUT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.answers.append(Answer(*json.loads(line)))


def ask(address: str, path: str, due_s: float) -> Answer:
    """One question on a new connection, which was to be asked at that time."""
    status, version, problem = 0, "", ""
    connection = http.client.HTTPConnection(address, 80, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        status, body = answer.status, answer.read()
        if status == http.HTTPStatus.OK:
            version = json.loads(body)["model_version"]
        else:
            problem = f"{status} {body[:120]!r}"
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        status, problem = 0, f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    took_s = time.monotonic() - due_s
    if status == http.HTTPStatus.OK and took_s > TIMEOUT_S:  # the socket's time-out is that of each wait, not of all
        status, problem = 0, LATE
    return Answer(due_s, took_s, status, version, problem)


def main() -> None:
    """Ask until standard input ends; a line of JSON for each answer.

    Who asks a system is on another machine, and waits for no processor of the system's. Here it goes before all else,
    where the machine allows that: pods kept such a process waiting for two seconds, and its requests looked late.
    """
    address, zone = sys.argv[1:]
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError as error:
        print(f"who asks may have to wait for a processor, and count that: {error}", file=sys.stderr)
    stop, lock = threading.Event(), threading.Lock()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()

    def one(due_s: float) -> None:
        answer = ask(address, f"/predict?zone={zone}", due_s)
        with lock:
            print(json.dumps(astuple(answer)), flush=True)

    with ThreadPoolExecutor(int(PER_S * TIMEOUT_S * 4)) as pool:
        due_s = time.monotonic()
        while not stop.wait(max(0.0, due_s - time.monotonic())):
            pool.submit(one, due_s)
            due_s += 1 / PER_S


if __name__ == "__main__":
    main()
