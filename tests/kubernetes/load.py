"""Twenty requests a second, whatever becomes of them: who waits for an answer before the next question misses failures.

Standard library only.
"""

from __future__ import annotations

import collections
import http.client
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

__all__ = ["Answer", "Load", "Seen"]

PER_S = 20
TIMEOUT_S = 1.0
LATE = "answered late"


@dataclass(frozen=True, slots=True)
class Answer:
    """One question: when, after how long, what was answered."""

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
    """Asks for a zone's forecast on a new connection each time; a context manager."""

    def __init__(self, address: str, zone: str) -> None:
        self.answers: list[Answer] = []
        self._address, self._path = address, f"/predict?zone={zone}"
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(int(PER_S * TIMEOUT_S * 2), thread_name_prefix="load")
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()

    def seen(self, since_s: float) -> Seen:
        """What became of what was asked since then, but for the last second, which may yet be answered."""
        return Seen.of(list(self.answers), since_s, time.monotonic() - TIMEOUT_S)

    def _run(self) -> None:
        next_s = time.monotonic()
        while not self._stop.is_set():
            self._pool.submit(self._ask)
            next_s += 1 / PER_S
            self._stop.wait(max(0.0, next_s - time.monotonic()))

    def _ask(self) -> None:
        began_s = time.monotonic()
        status, version, problem = 0, "", ""
        connection = http.client.HTTPConnection(self._address, 80, timeout=TIMEOUT_S)
        try:
            connection.request("GET", self._path)
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
            if status == 200:
                version = json.loads(body)["model_version"]
            else:
                problem = f"{status} {body[:120]!r}"
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            status, problem = 0, f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        took_s = time.monotonic() - began_s
        if status == 200 and took_s > TIMEOUT_S:  # the socket's time-out is that of each wait, not of all
            status, problem = 0, LATE
        self.answers.append(Answer(began_s, took_s, status, version, problem))
