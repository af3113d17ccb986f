"""``import``: older history, from CSV, Parquet or InfluxDB, into a system that runs."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from edge.wire.topic import SITE_ZONE
from services.cli.base import console, counting_bar, errors, need_cluster, options_of, print_notes, utc_minute
from services.config import Settings
from services.errors import ConfigError, HistoryError, HothouseError
from services.observe.duration import in_words

if TYPE_CHECKING:
    import pyarrow as pa

    from edge.recordings.recording import Recording
    from edge.recordings.replay import RecordingSource
    from services.store.imports.import_job import ImportJob, ImportNote
    from services.store.storage import Storage

__all__ = ["register"]

EXAMPLE = "Example: hothouse import recordings/last-year --site demo --timezone Europe/Amsterdam --dry-run"
LOOK_S = 0.5
WAITING = "waiting for the system"
PATIENCE_S = 20.0
"""A system that runs begins within this."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("import", rich_help_panel="At the site", epilog=EXAMPLE)(import_rows)


def import_rows(
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Argument(help="CSV or Parquet, one file a zone.")] = None,
    site: Annotated[str | None, typer.Option(help="Its site; else recording.toml's, or the folder's name.")] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="The files' clock, as in Europe/Amsterdam; else recording.toml's, the site's, or UTC."),
    ] = None,
    mapping: Annotated[Path | None, typer.Option(help="What columns mean, instead of FOLDER/recording.toml.")] = None,
    influx: Annotated[str | None, typer.Option(help="Address of an InfluxDB to read, instead of a folder.")] = None,
    org: Annotated[str, typer.Option(help="Its organisation (2.x).")] = "-",
    query: Annotated[
        Path | None, typer.Option(help="File with a Flux query: _time, _value, _field, and a tag with the zone's name.")
    ] = None,
    zone_tag: Annotated[str, typer.Option(help="The tag that names the zone.")] = "zone",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what was understood.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the system has learned from it.")] = True,
) -> None:
    """Bring older history into a system, which may run meanwhile.

    Each file is one zone and has the zone's name. It has a column `time` and one for each metric, such as `air_temp_c`.
    FOLDER/recording.toml says what other columns mean (docs/recordings.md).

    Rows are added where there are none, and rows that are there get the values that nobody read. What was read stays,
    and each conflict is counted. Then new learners of the site replay the history in the order of time. The same import
    again changes nothing, and one that was stopped goes on. The token of an InfluxDB is read from
    HOTHOUSE_INFLUX__TOKEN or influx.token_file.
    """
    if (folder is None) == (influx is None):
        raise ConfigError("history comes from a folder or from an InfluxDB", "Name a FOLDER, or give --influx URL.")
    settings = options_of(ctx).settings()
    with need_cluster("import"):
        from services.store.imports.import_job import forget_abandoned, new_job
        from services.store.storage import storage_of
    with ExitStack() as stack:
        if influx is not None:
            if query is None or site is None:
                raise ConfigError("InfluxDB is read by a query, for a site", "Give --query FILE and --site NAME.")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            _fetch(influx, org, settings, query, zone_tag, folder)
        assert folder is not None
        source = _source(folder, mapping, site, timezone, settings)
        rows = _rows(source, settings)
    recording, storage = source.recording, storage_of(settings)
    unknown = _new_zones(storage, recording)
    if unknown:
        console.print(f"[yellow]{escape(unknown)}[/]", highlight=False, soft_wrap=True)
    if dry_run:
        return
    forget_abandoned(storage, time.time())
    job = new_job(storage, recording.site, rows)
    if wait:
        _wait(job)
    else:
        console.print(f"import {job.id}: the system takes it up by itself", highlight=False)


def _fetch(url: str, org: str, settings: Settings, query: Path, zone_tag: str, folder: Path) -> None:
    """Write what an InfluxDB answers into ``folder``, as files of a recording."""
    from services.cli.history.influx_tables import read_influx

    with errors.status("asking InfluxDB ...") as status:
        read_influx(
            url, org, settings.influx, query, zone_tag, folder,
            lambda count: status.update(f"asking InfluxDB ... {count:,} values"),
        )  # fmt: skip


def _source(
    folder: Path, mapping: Path | None, site: str | None, timezone: str | None, settings: Settings
) -> RecordingSource:
    """The recording in ``folder``; raises :class:`HothouseError` where it cannot be understood."""
    from edge.recordings.recording import RecordingError
    from edge.recordings.replay import RecordingSource

    try:
        clock = timezone or _clock(folder, mapping, site, settings)
        with counting_bar("reading", DownloadColumn()) as told:
            return RecordingSource(folder, mapping, site, clock, log_notes=False, progress=told)
    except RecordingError as error:
        raise HothouseError(str(error), "docs/recordings.md says what a folder holds.") from error


def _rows(source: RecordingSource, settings: Settings) -> pa.Table:
    """The zone rows of a recording, shown; raises :class:`HothouseError` where times or columns make no sense."""
    import pyarrow.compute as pc

    from services.cli.history.history_rows import history_rows

    recording, stream = source.recording, settings.stream
    primary = {one.name: one.primary for one in settings.sites}.get(recording.site) or source.primary
    with counting_bar("making rows", TaskProgressColumn()) as told:
        rows = history_rows(source, 1000 * stream.step_s, 1000 * stream.lateness_s, 1000 * stream.idle_s, primary, told)
    now_ms = time.time() * 1000
    is_past = source.end_ms is not None and source.end_ms <= now_ms
    if is_past and len(rows) and pc.max(rows["end_ms"]).as_py() > now_ms:
        rows = rows.filter(pc.field("end_ms") <= now_ms)  # more may come into a row that has not ended
    if not len(rows):
        raise HothouseError("there is no row with a zone in it", "Look at the columns' names: docs/recordings.md.")
    _show(recording, len(rows), stream.step_s)
    if source.start_ms < 0:  # learners number steps from 1970 on
        raise ConfigError(
            f"some rows are of {utc_minute(source.start_ms)}, before 1970",
            "Give times with their year, of four digits.",
        )
    if not is_past:
        raise ConfigError("some rows are of the future", "Look at --timezone, and at the clock of whoever wrote them.")
    return rows


def _new_zones(storage: Storage, recording: Recording) -> str:
    """A warning about zones that have not sent yet, or about which that is not known; else empty."""
    from services.cli.history.sending_zones import new_zones, sending_sites, sending_zones

    try:
        with errors.status("looking which zones send ..."):
            zones = _zones(recording)
            sending = sending_zones(storage, recording.site, zones)
            sites = [] if sending else sending_sites(storage)
            return new_zones(recording.site, zones, sending, sites)
    except (HistoryError, OSError) as error:  # an import need not wait for the repair of a damaged file
        return f"Which zones send is not known: {error}"


def _zones(recording: Recording) -> list[str]:
    """The zones that have values of their own: a file with the weather alone is the site's."""
    having = {table.zone for table in recording.tables if len(table.times_ms)}
    return [zone for zone in recording.zones if zone in having]


def _clock(folder: Path, mapping: Path | None, site: str | None, settings: Settings) -> str | None:
    """The time zone of the site's settings, where neither the command nor recording.toml says one."""
    from edge.recordings.columns import Mapping, load_mapping
    from edge.recordings.zone_file import name_of

    beside = mapping or folder / "recording.toml"
    said = load_mapping(beside) if beside.exists() else Mapping()
    named = site or said.site or name_of(folder.resolve().name, "site")
    known = {one.name: one.timezone for one in settings.sites}
    return None if said.timezone else known.get(named)


def _show(recording: Recording, rows: int, step_s: int) -> None:
    """What was understood."""
    print_notes(recording.notes)
    shown = Table("zone", "metrics", "from (UTC)", "to")
    weather = any(table.zone == SITE_ZONE for table in recording.tables)
    of_rows = _zones(recording)
    for zone in (*of_rows, *([SITE_ZONE] if weather else [])):
        tables = [table for table in recording.tables if table.zone == zone and len(table.times_ms)]
        metrics = sorted({metric for table in tables for metric in table.metrics})
        ends = [of(int(of(table.times_ms)) for table in tables) for of in (min, max)] if tables else []
        first, last = map(utc_minute, ends) if ends else "--"
        shown.add_row(zone, ", ".join(metrics), first, last)
    console.print(shown)
    if not all(source.is_utc for source in recording.sources):
        how = "another clock: --timezone NAME, or `timezone` of the site in the settings"
        line = f"times are read as the clock in {recording.timezone} shows them; {how}"
        console.print(line, highlight=False, soft_wrap=True)
    zones = "one zone" if len(of_rows) == 1 else f"{len(of_rows)} zones"
    console.print(f"site {recording.site}: {rows:,} row{'s' if rows != 1 else ''} of {zones}", highlight=False)
    every_s = recording.interval_ms / 1000
    if every_s > step_s:
        share = f"one row in {f'{every_s / step_s:,.1f}'.removesuffix('.0')} holds one"
        console.print(
            f"values come every {in_words(every_s)}, a row is of {in_words(step_s)}: about {share}", highlight=False
        )


def _wait(job: ImportJob) -> None:
    """Show how far it is until all that can is learned, then what came of it."""
    from services.store.imports.import_job import progress, words

    began_s, note = time.monotonic(), _note_of(job)
    added_s: float | None = None  # when all rows were there
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task, is_told, shown = bar.add_task(WAITING, total=100), False, WAITING
        while note["state"] != "done":
            now_s = time.monotonic()
            pct, what = progress(note)
            what = what if pct else WAITING
            bar.update(task, completed=pct, description=what)
            if what != shown and not errors.is_terminal:  # a log shows no bar
                errors.print(f"{what} ...", highlight=False)
            shown = what
            if not pct and not is_told and now_s - began_s > PATIENCE_S:
                is_told = True
                errors.print("No system on this data folder has taken the import up yet. It will at its next start; "
                             "Ctrl-C leaves it there.", highlight=False)  # fmt: skip
            if note["state"] == "added":
                added_s = now_s if added_s is None else added_s
                if _waits_for_zones(note, now_s - added_s):
                    break
            time.sleep(LOOK_S)
            note = _note_of(job)
    console.print(words(note), highlight=False)
    if absent := sorted(set(note["zones"]) - set(note["grown"])):
        console.print(f"learned later, once they send: {', '.join(absent)}", highlight=False)


def _waits_for_zones(note: ImportNote, added_for_s: float) -> bool:
    """Whether an import whose rows have been there for so long goes on only once zones send that have not yet: all
    others are learned, or none has begun to be.
    """
    if note["grown"] and note["grown_pct"] == 100:
        return True
    return not note["grown_pct"] and added_for_s > PATIENCE_S


def _note_of(job: ImportJob) -> ImportNote:
    """How far it is. A storage that is away for a moment ends no wait; raises :class:`HothouseError` after that."""
    began_s, told = time.monotonic(), False
    while True:
        try:
            return job.note()
        except OSError as error:
            if time.monotonic() - began_s > PATIENCE_S:
                raise HothouseError(
                    f"how far the import is cannot be read: {error}",
                    "A system that runs goes on with it once the storage is back; the same command then shows how far.",
                ) from error
            if not told:
                told = True
                errors.print(f"the storage does not say how far it is: {error}", markup=False, soft_wrap=True)
        except ValueError as error:
            raise HothouseError(
                f"how far the import is cannot be understood: {error}",
                "Run the command of the version that the system has.",
            ) from error
        time.sleep(LOOK_S)
