"""Says where an event loop was held up: no request is answered meanwhile, and nothing else tells why."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

__all__ = ["watch_loop"]

_log = logging.getLogger(__name__)
LIMIT_S = 0.25
EVERY_S = 0.05
MOST_FRAMES = 12


def watch_loop(limit_s: float = LIMIT_S, every_s: float = EVERY_S) -> None:
    """Log it whenever the loop of this thread is held up for over ``limit_s``: for how long, and what ran at that time.

    Looks every ``every_s``, from a thread that ends with the loop or the process. Call it in the loop.
    """
    beats = _Beats(asyncio.get_running_loop(), every_s)
    beats.beat()
    watched = threading.get_ident()
    threading.Thread(target=_watch, args=(beats, watched, limit_s, every_s), name="loop-watch", daemon=True).start()


class _Beats:
    """When the loop was last seen to go on, on a monotonic clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float) -> None:
        self._loop, self._every_s = loop, every_s
        self.newest_s = 0.0

    def beat(self) -> None:
        """In the loop, again and again."""
        self.newest_s = time.monotonic()
        self._loop.call_later(self._every_s, self.beat)

    @property
    def ended(self) -> bool:
        """Nothing beats any more."""
        return self._loop.is_closed()


def _watch(beats: _Beats, watched: int, limit_s: float, every_s: float) -> None:
    while not beats.ended:
        before_s = time.monotonic()
        time.sleep(every_s)
        now_s = time.monotonic()  # first: a beat that comes meanwhile makes it less
        newest_s = beats.newest_s
        if now_s - newest_s < limit_s:
            continue
        where = _where(watched)
        while beats.newest_s == newest_s and not beats.ended:
            time.sleep(every_s / 4)
        held_s = beats.newest_s - newest_s - every_s
        if held_s < limit_s - every_s:  # it has ended, or went on just then
            continue
        # A thread that only sleeps comes late where the processor is another's, or one thread keeps Python's lock.
        _log.warning(
            "the event loop was held up for %.2f s; the thread that looks came %.2f s late and saw there:\n%s",
            held_s, now_s - before_s - every_s, where,
        )  # fmt: skip


def _where(thread: int) -> str:
    """What a thread does now, the innermost calls last."""
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)[-MOST_FRAMES:]).rstrip() if frame else "no thread"
