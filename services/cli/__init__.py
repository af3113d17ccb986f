"""The command line ``hothouse``; each module here, in ``running/`` and in ``setup/`` is a group of its commands.

Nothing heavy is imported before a command needs it: ``hothouse --help`` and the site's commands run on the bare
install, without Ray and torch.
"""

from services.runtime.interrupts import quietly_ended

with quietly_ended():  # its imports take half a second, on a small computer some seconds
    from services.cli.root import app, main

__all__ = ["app", "main"]
