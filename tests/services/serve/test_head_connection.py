"""The connection to the head is kept, whatever asking for it gives."""

from __future__ import annotations

import threading

from services.serve.head_connection import keep_connection


def test_it_is_asked_again_and_again() -> None:
    """Also after an answer that is an error, and not in the thread that began it."""
    asked, threads = threading.Semaphore(0), set[str]()

    def ask() -> None:
        threads.add(threading.current_thread().name)
        asked.release()
        raise ConnectionError("the head is away")

    keep_connection(ask, every_s=0.001)
    assert all(asked.acquire(timeout=60) for _ in range(3))
    assert threads == {"head-connection"}
