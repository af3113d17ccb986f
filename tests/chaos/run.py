"""The chaos experiment: ``python -m tests.chaos.run [--minutes 10] [--log kafka] [--seed N]``.

Devices of some sites publish, with bad messages among the good; meanwhile parts are killed with SIGKILL, disks are full
and the number of shards changes, at moments drawn from the seed. In the end the ledger is settled and printed; exit
code 0 only where nothing was lost, nothing was counted twice, and every row and dead letter is the judge's.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from influxdb_client.rest import ApiException
from rich.console import Console
from rich.table import Table
from urllib3.exceptions import HTTPError

from edge.log import partition_of
from services.errors import HistoryError
from services.log import open_settings_log
from tests.chaos.influx import influx_differences
from tests.chaos.ledger import account
from tests.chaos.system import IDLE_S, LATENESS_S, STEP_S, System, WholeSystem, wait_until
from tests.chaos.traffic import Traffic
from tests.patience import patience_s

__all__ = ["main"]

SITES, ZONES, INTERVAL_MS = 4, 2, 250
LATE_MS = (STEP_S + LATENESS_S + 5) * 1000
RESIZE = "another number of shards"
"""A kind of harm, too: all are stopped in good order, another number is started."""


@dataclass(frozen=True)
class Harm:
    """Something that was done to the system."""

    at_s: float
    what: str
    recovered_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and print its ledger; the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.log == "kafka" and not os.environ.get("HOTHOUSE_SERVERS"):
        parser.error("HOTHOUSE_SERVERS must name the script that starts a Kafka (CONTRIBUTING.md), or use --log sqlite")
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    console = Console(width=110)
    console.print(f"log: {given.log}, {given.minutes:g} min, seed {seed}", highlight=False)
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hothouse-chaos-")))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            wrong = _experiment(folder, given, seed, console)
        except BaseException:
            for path in sorted(folder.glob("*.log")):
                console.print(f"--- the end of {path.name}", *path.read_text(errors="replace").splitlines()[-8:],
                              sep="\n", markup=False, highlight=False)  # fmt: skip
            raise
    console.print(*wrong[:20], sep="\n", markup=False)
    return 1 if wrong else 0


def _experiment(folder: Path, given: argparse.Namespace, seed: int, console: Console) -> list[str]:
    """Run one; print timeline and ledger; what is wrong."""
    sites = [f"chaos-{secrets.token_hex(3)}-{number}" for number in range(SITES)]
    kind = WholeSystem if given.whole else System
    with kind(folder, given.log, shards=2) as system:
        traffic = Traffic(sites, ZONES, INTERVAL_MS, system.broker.address, folder, seed, LATE_MS)
        traffic.start()
        system.moves()
        harms = []
        for harm in _torment(system, random.Random(seed), given.minutes * 60):
            harms.append(harm)
            console.print(f"{harm.at_s:6.1f} s  {harm.what}: {harm.recovered_s:.1f} s", highlight=False)
        console.print("the devices stop; every row closes ...")
        traffic.finish()
        _let_close(system, sites)
        points, differ = _settle_influx(system, sites) if system.influx else (0, [])
        system.stop()
        with closing(open_settings_log(system.settings)) as read:
            found = account(folder, system.settings, read, system.offsets())
    console.print(_recoveries(harms), found.table())
    total = found.total
    console.print(f"{found.rows} rows and {found.dead_letters} dead letters recomputed by the judge: "
                  f"{len(found.wrong)} differ", highlight=False)  # fmt: skip
    if system.influx:
        console.print(f"{points} values in InfluxDB: {len(differ)} differ from the history", highlight=False)
    console.print(", ".join(f"{name} {count}" for name, count in traffic.figures().items()), highlight=False)
    wrong = found.wrong + differ
    verdict = f"lost {total['lost']}, counted twice {total['twice']}"
    console.print(f"[bold {'red' if wrong or total['lost'] or total['twice'] else 'green'}]{verdict}[/]")
    return wrong + ([verdict] if total["lost"] or total["twice"] else [])


def _torment(system: System, rng: random.Random, seconds: float) -> Iterator[Harm]:
    """Harm after harm, each kind once before any comes again, until the time is over and each was seen."""
    start_s, rounds = time.monotonic(), 0
    deck: list[str] = []
    while time.monotonic() - start_s < seconds or (rounds == 1 and deck):
        if not deck:
            deck, rounds = [*system.kinds, RESIZE], rounds + 1
            rng.shuffle(deck)
        time.sleep(rng.uniform(0.5, max(1.0, seconds / 60)))
        what, at_s = deck.pop(), time.monotonic()
        if what == RESIZE:
            system.restart_shards(rng.choice([n for n in (1, 2, 3, 4) if n != system.shards]))
        else:
            system.harm(what, rng)
        system.moves()
        yield Harm(at_s - start_s, what, time.monotonic() - at_s)


def _let_close(system: System, sites: Sequence[str]) -> None:
    """Wait until every row has closed, because its site is silent, and all of that is saved.

    Silence is what ticks of the log saw: it begins anew after a message that the broker still had, and after a gap.
    """
    silence_ms = (STEP_S + LATENESS_S + IDLE_S + 3) * 1000
    with closing(open_settings_log(system.settings)) as log:
        ends = {p: log.end_offset(p) for p in {partition_of(site, log.partitions) for site in sites}}
        newest_ms = dict.fromkeys(ends, time.time_ns() // 1_000_000)
        since_ms = newest_ms.copy()

        def silent() -> bool:
            time.sleep(0.5)
            for p in ends:
                for record in log.read(p, ends[p], 1000):
                    if record.kind != "tick" or record.receive_ms - newest_ms[p] > IDLE_S * 1000:
                        since_ms[p] = record.receive_ms
                    newest_ms[p], ends[p] = record.receive_ms, record.offset + 1
            return all(newest_ms[p] - since_ms[p] > silence_ms for p in ends)

        wait_until(silent, "rows close", 120)
    wait_until(lambda: all(system.offsets().get(p, 0) >= end for p, end in ends.items()), "all is read and saved")


def _settle_influx(system: System, sites: Sequence[str]) -> tuple[int, list[str]]:
    """How many values InfluxDB has, and what differs from the history: nothing, or what it is when patience ends.

    While the shards run: a silent site has rows as well, and one that closes as they stop comes with the next start.
    """
    deadline_s = time.monotonic() + patience_s(60)
    while True:
        is_last = time.monotonic() > deadline_s
        try:
            points, differ = influx_differences(system.influx, system.settings, sites)
        except (HistoryError, OSError, HTTPError, ApiException):  # a file is being replaced, or InfluxDB is slow
            if is_last:
                raise
        else:
            if is_last or not differ:
                return points, differ
        time.sleep(0.5)


def _recoveries(harms: Sequence[Harm]) -> Table:
    """How long each kind of harm was felt: from its beginning until new samples were in the log and in snapshots."""
    table = Table(title="Seconds until new samples were saved again", title_justify="left")
    for column in ("what", "times", "median", "longest"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for what in sorted({harm.what for harm in harms}):
        took = [harm.recovered_s for harm in harms if harm.what == what]
        table.add_row(what, str(len(took)), f"{statistics.median(took):.1f}", f"{max(took):.1f}")
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description="Kill parts; settle the ledger.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of traffic; default: %(default)s")
    parser.add_argument("--log", choices=("kafka", "sqlite"), default="kafka", help="default: %(default)s")
    parser.add_argument("--seed", type=int, help="of what happens when; default: drawn, and printed")
    parser.add_argument("--whole", action="store_true", help="the shards on Ray and all the rest, as `hothouse up`")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave everything in this new folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
