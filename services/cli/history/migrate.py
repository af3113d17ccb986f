"""``migrate``: a history of a version before, brought over in place."""

from __future__ import annotations

import threading

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from services.cli.base import console, errors, need_cluster, options_of
from services.errors import StartError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(rich_help_panel="At the site", epilog="Example: hothouse --data-dir /var/lib/hothouse migrate")(migrate)


def migrate(ctx: typer.Context) -> None:
    """Bring the history of a version before into the tables that other programs read, in place.

    `hothouse up` does the same before it starts. It may be interrupted, and run again: no row is lost or there twice.
    No system may run on the storage meanwhile.
    """
    settings = options_of(ctx).settings()
    with need_cluster("migrate"):
        from services.app import owners_of
        from services.runtime.folder import FolderLock
        from services.runtime.state_lock import StateLock
        from services.store.storage import storage_of
        from services.store.tables.migration import bring_over
    storage, lost = storage_of(settings), threading.Event()

    def progress(done: int, of: int) -> None:
        if lost.is_set():
            raise StartError("another system has taken the storage over", "Stop it, then run hothouse migrate again.")
        bar.update(task, completed=done, total=of)

    columns = (TextColumn("bringing files over"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        FolderLock(settings.data_dir), StateLock(owners_of(settings), lost.set),
        Progress(*columns, console=errors, transient=True) as bar,
    ):  # fmt: skip
        task = bar.add_task("", total=None)
        count = bring_over(storage, progress)
    what = f"{count:,} files are in the tables now" if count else "there is nothing to bring over"
    console.print(f"{storage.url}: {what}", highlight=False, soft_wrap=True)
