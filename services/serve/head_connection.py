"""Keeps a replica's connection to the head of its cluster open, so that no request waits for a new one.

Each new head starts a proxy, which makes itself known to every replica. With that, Ray asks the head for the proxy's
class, in the thread that answers requests (``push_proxy_handle`` in Ray Serve 2.60). The connection broke with the old
head, and nothing makes it again before somebody asks: requests stood still for two seconds and more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NoReturn

__all__ = ["ask_head", "keep_connection"]

_log = logging.getLogger(__name__)
EVERY_S = 0.5


def keep_connection(ask: Callable[[], object], every_s: float = EVERY_S) -> None:
    """Ask all the time, in a thread that ends with the process. While the head is away that thread waits."""
    threading.Thread(target=_keep_asking, args=(ask, every_s), name="head-connection", daemon=True).start()


def ask_head() -> None:
    """Ask for a key that nobody sets, by the connection that Ray's own questions take."""
    from ray.experimental.internal_kv import _internal_kv_get

    _internal_kv_get(b"hothouse")


def _keep_asking(ask: Callable[[], object], every_s: float) -> NoReturn:
    while True:
        try:
            ask()
        except Exception as error:  # whatever Ray raises while the head is away
            _log.debug("the head does not answer: %s", error)
        time.sleep(every_s)
