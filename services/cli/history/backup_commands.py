"""``backup`` and ``restore``: the whole state in one file."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from edge.log import LogError
from services.cli.base import console, errors, need_cluster, options_of
from services.config import Settings
from services.errors import LOOK_AT_THE_DISK, BackupError, StartError
from services.runtime.interrupts import ended_by_signals

if TYPE_CHECKING:
    from services.store.backup import Backup

__all__ = ["register"]

FILES = ("keys.json", "home-assistant.json", "broker/devices.json")
"""Beside the storage. Secrets are made anew at the next start."""
MLFLOW = "mlflow"
LOG_PATIENCE_S = 60.0
_log = logging.getLogger(__name__)
Tell = Callable[[int, int], None]


def register(app: typer.Typer) -> None:
    """Add both commands to ``app``."""
    panel = "At the site"
    app.command(rich_help_panel=panel, epilog="Example: hothouse backup /mnt/usb/monday.tar")(backup)
    app.command(rich_help_panel=panel, epilog="Example: hothouse restore /mnt/usb/monday.tar")(restore)


def backup(
    ctx: typer.Context, out: Annotated[Path, typer.Argument(help="Where to write the backup, a tar file.")]
) -> None:
    """Write the whole state into one file: rows, forecasts, what was learned, models, keys' hashes and the log.

    The system may run meanwhile. Passwords and the operator's key are not in the file: they are made anew. With
    log.kind "kafka" the log is not in it, with learn.mlflow_uri neither is the registry: keep those by their own means.
    """
    settings = options_of(ctx).settings()
    with need_cluster("backup"):
        from services.learn.tracking.registry_file import REGISTRY_FILE
        from services.store.backup import LOG, RESTORING, Sources, write_backup
        from services.store.storage import storage_of
    if out.exists():
        raise BackupError(f"{out} is there already", "Name another file, or remove that one.")
    if not (folder := out.absolute().parent).is_dir():  # the disk that is meant may not be mounted
        raise BackupError(f"the folder {folder} does not exist", "Make it, or mount the disk that it is on.")
    about = {
        "version": importlib.metadata.version("hothouse"), "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "log": settings.log.kind, "bucket": bool(settings.storage.url),
    }  # fmt: skip
    databases = {name: settings.data_dir / name for name in (LOG, REGISTRY_FILE)}
    sources = Sources(
        storage_of(settings), partial(_files, settings), {n: p for n, p in databases.items() if p.exists()}
    )
    if not (sources.databases or sources.storage.list_folder("").folders):
        raise BackupError(
            f"{settings.data_dir.absolute()} holds no state", "Name another: hothouse --data-dir DIR backup ..."
        )
    if sources.storage.entry(RESTORING) is not None:
        raise BackupError(
            f"{sources.storage.url} holds half of a backup: hothouse restore is at work, or was interrupted",
            "Wait for its end, or run it again.",
        )
    with ended_by_signals(), _bar("copying") as tell:
        try:
            made = write_backup(out, sources, about, tell)
        except OSError as error:
            raise BackupError(f"the backup {out} cannot be made: {error}", LOOK_AT_THE_DISK) from error
    _say(f"{len(made.members):,} parts, {out.stat().st_size / 1e6:,.1f} MB, in {out}")
    if settings.log.kind != "sqlite":
        _say("the log is in Kafka, not in the backup")


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file that hothouse backup wrote.", exists=True, dir_okay=False)],
) -> None:
    """Bring a backup back, into an empty data folder and storage. Every byte of the file is checked first.

    No system may run on the data folder or the storage meanwhile.
    """
    settings = options_of(ctx).settings()
    with need_cluster("restore"):
        from services.app import owners_of
        from services.log import open_settings_log
        from services.runtime.folder import FolderLock
        from services.runtime.state_lock import StateLock
        from services.store.backup import check_log_of
        from services.store.backup import restore as bring_back
        from services.store.storage import storage_of
    lost = threading.Event()
    with (
        ended_by_signals(), FolderLock(settings.data_dir), StateLock(owners_of(settings), lost.set),
        _bar("bringing back") as tell,
    ):  # fmt: skip

        def progress(count: int, size: int) -> None:
            if lost.is_set():
                raise StartError("another system has taken the storage over", "Stop it, then restore again.")
            tell(count, size)

        def accept(backup: Backup) -> None:
            _check_settings(settings, backup.about)
            if settings.log.kind != "sqlite":
                _await_log(lambda: _check_log(backup))

        def _check_log(backup: Backup) -> None:
            with closing(open_settings_log(settings)) as log:
                check_log_of(backup, log)

        try:
            made = bring_back(file, storage_of(settings), settings.data_dir, progress, accept)
        except OSError as error:
            raise BackupError(
                f"{file} cannot be brought back: {error}",
                f"{LOOK_AT_THE_DISK} Remove what is in {storage_of(settings).url} and {settings.data_dir} of it.",
            ) from error
    _say(
        f"{len(made.members):,} parts of {made.about['made']} are in {storage_of(settings).url} and {settings.data_dir}"
    )


def _await_log(check: Callable[[], None]) -> None:
    """Check the log. Where all starts at once it may take a while to answer."""
    deadline_s = time.monotonic() + LOG_PATIENCE_S
    while True:
        try:
            return check()
        except LogError as error:
            if time.monotonic() > deadline_s:
                raise BackupError(f"the log, which is not in the backup, does not answer: {error}") from error
            _log.info("the log does not answer yet: %s", error)
        time.sleep(1.0)


def _files(settings: Settings) -> Mapping[str, Path]:
    # Folders of models may go meanwhile, which `rglob` does not bear.
    artefacts = (Path(folder, name) for folder, _, names in os.walk(settings.storage_folder / MLFLOW) for name in names)
    found = [*(settings.data_dir / name for name in FILES), *artefacts]
    return {str(path.relative_to(settings.data_dir)): path for path in found if path.is_file()}


def _check_settings(settings: Settings, about: Mapping[str, Any]) -> None:
    """What a backup holds lies elsewhere with other settings."""
    for name, has, wants in (
        ("log.kind", settings.log.kind, about["log"]),
        ("storage.url", bool(settings.storage.url), about["bucket"]),
    ):
        if has != wants:
            raise BackupError(f"the backup was made with another {name}", f"Set {name} as it was, then restore again.")


@contextmanager
def _bar(what: str) -> Iterator[Tell]:
    columns = (SpinnerColumn(), TextColumn(what), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("", total=None, told="")
        yield lambda count, size: bar.update(task, told=f"{count:,} parts, {size / 1e6:,.0f} MB")


def _say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
