"""A dump of a process's memory would hold passwords and keys: the processes of Hothouse leave none when they crash."""

from __future__ import annotations

import resource

__all__ = ["leave_no_core_dumps"]


def leave_no_core_dumps() -> None:
    """From now on neither this process nor one that it starts writes its memory to a file when it crashes.

    Called first by every program. The limit is one byte where it may be: with 0 Linux writes no file either, but a
    program that ``kernel.core_pattern`` names still gets the memory; with 1 nobody does (core(5), fs/coredump.c).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    least = 0 if hard == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (least, least))
