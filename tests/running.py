"""What has :meth:`run` and :meth:`stop`, in a thread of its own for as long as a test needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from edge.gateway import Gateway, loop
from tests.patience import patience_s

__all__ = ["running", "running_gateway"]

FOR_EVER_S = 3600.0


class Runner(Protocol):
    """Works in :meth:`run` until :meth:`stop`."""

    def run(self) -> object: ...
    def stop(self) -> object: ...


@contextmanager
def running(runner: Runner) -> Iterator[threading.Thread]:
    """Stopped in the end, if it has not ended by then."""
    thread = threading.Thread(target=runner.run, name=type(runner).__name__, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        runner.stop()
        thread.join(patience_s(120))
        assert not thread.is_alive()


@contextmanager
def running_gateway(gateway: Gateway) -> Iterator[Gateway]:
    """Stopped once its writer has done all that it will: the gateway does not leave before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_STOP_S", FOR_EVER_S)
        with running(gateway):
            yield gateway
