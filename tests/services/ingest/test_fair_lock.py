"""The lock between a shard's rounds and questions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from services.ingest.questions import FairLock
from tests.patience import until


def test_it_is_given_in_the_order_in_which_it_is_asked_for() -> None:
    """Also where the one that lets it go asks for it again at once."""
    lock, order, threads = FairLock(), list[str](), list[threading.Thread]()

    def take(name: str) -> Callable[[], None]:
        def taken() -> None:
            with lock:
                order.append(name)

        return taken

    with lock:
        for number, name in enumerate("abc", 1):
            threads.append(threading.Thread(target=take(name)))
            threads[-1].start()
            until(lambda number=number: len(lock._waiting) == number, "it waits")
    take("again")()
    for thread in threads:
        thread.join()
    assert order == ["a", "b", "c", "again"]


def test_one_holds_it_at_a_time() -> None:
    """Many threads that each read, wait for a moment and write."""
    lock, count = FairLock(), 0

    def work() -> None:
        nonlocal count
        for _ in range(200):
            with lock:
                seen = count
                threading.Event().wait(0)
                count = seen + 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 1600


def test_an_error_inside_lets_it_go() -> None:
    """The next one gets it."""
    lock = FairLock()
    with pytest.raises(ValueError, match="inside"), lock:
        raise ValueError("inside")
    with lock:
        pass


def test_whoever_has_it_lets_others_have_it_first() -> None:
    """And goes on with it behind those that waited, not behind those that come later."""
    lock, order = FairLock(), list[str]()

    def take() -> None:
        with lock:
            order.append("other")

    with lock:
        lock.let_others()
        thread = threading.Thread(target=take)
        thread.start()
        until(lambda: lock._waiting, "it waits")
        lock.let_others()
        order.append("again")
    thread.join()
    assert order == ["other", "again"]
