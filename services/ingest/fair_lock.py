"""Step 4 of the way of a reading: a lock that keeps nobody waiting while others take it again and again."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["FairLock"]


class FairLock:
    """Given to threads in the order in which they ask.

    A ``threading.Lock`` goes to whoever comes first once it is free, mostly the thread that just let it go: a shard
    that reads a backlog takes it again within microseconds, and a question would wait for seconds.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()  # held for moments: while one of the two below changes
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._changing:
            if not self._is_taken:
                self._is_taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(self, *_: object) -> None:
        with self._changing:
            if self._waiting:
                self._waiting.popleft().release()  # it stays taken, by that thread
            else:
                self._is_taken = False

    def let_others(self) -> None:
        """Whoever has it lets those who wait have it first, and then goes on with it."""
        if self._waiting:
            self.__exit__()
            self.__enter__()
