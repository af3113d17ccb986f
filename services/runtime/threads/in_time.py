"""A call that knows no limit of its own, with one: it runs in a thread, which is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["in_time"]

Answer = TypeVar("Answer")


def in_time(limit_s: float, call: Callable[[], Answer], name: str) -> Answer:
    """What ``call`` returns, or raises. Raises ``TimeoutError`` where it takes over ``limit_s`` seconds.

    ``name`` is the thread's. It ends with the process, and nobody waits for it then.

    >>> in_time(60, lambda: 7, "count")
    7
    """
    answer: Future[Answer] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return answer.result(timeout=limit_s)
