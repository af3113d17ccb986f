"""A steady reader of /predict: who asks all the time sees every gap. Standard library only."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from dataclasses import dataclass

from tests.patience import patience_s

__all__ = ["Answer", "Probe"]

EVERY_S = 0.05
TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One question: when, after how long, what was answered."""

    at_s: float
    took_s: float
    status: int  # 0: no answer within a second of a quick, idle machine
    version: str


class Probe:
    """Asks for a zone's forecast every 50 ms from a thread, on a new connection each time. A context manager."""

    def __init__(self, port: int, zone: str) -> None:
        self.answers: list[Answer] = []
        self._port, self._path = port, f"/predict?zone={zone}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def since(self, at_s: float) -> list[Answer]:
        """The answers to what was asked at or after ``at_s`` (monotonic)."""
        return [answer for answer in list(self.answers) if answer.at_s >= at_s]

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time without a good answer."""
        good = [since_s, *(a.at_s + a.took_s for a in self.since(since_s) if a.status == 200), time.monotonic()]
        return max(after - before for before, after in itertools.pairwise(good))

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            began_s = time.monotonic()
            status, version = 0, ""
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=patience_s(TIMEOUT_S))
            try:
                connection.request("GET", self._path)
                answer = connection.getresponse()
                status, body = answer.status, answer.read()
                version = json.loads(body)["model_version"] if status == 200 else ""
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                status = 0
            finally:
                connection.close()
            self.answers.append(Answer(began_s, time.monotonic() - began_s, status, version))
