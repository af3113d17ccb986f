"""The end-to-end test of the containers, from outside.

    python3 -m tests.compose.run [--keep] [--speed 600] [--port 18000]

Builds the images, brings the whole system up, follows samples from the broker into /predict, InfluxDB and Prometheus,
retrains and swaps under a steady reader, kills the main process of one container after the other, destroys the Ray
worker with its disk and cuts networks; then balances the ledger of every message that the simulated greenhouse
published, and takes everything down. Prints a timeline and a table; a failure keeps the containers' logs. Standard
library only. The exit code is 0 if all held.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.ci.record import FOLDER_VARIABLE
from tests.compose.harm import CUTS, KILLS, LOSSES, harm, kill_system
from tests.compose.probe import Probe
from tests.compose.report import Report, clock, stretches
from tests.compose.security import listens, refusals, secrets_kept
from tests.compose.settings import build_environment, make_secrets
from tests.compose.stack import ROOT, ZONES, Stack, StackError
from tests.compose.waiting import forecasts, until
from tests.patience import budget_s

LOGS = ROOT / "deploy" / "e2e-logs"
FIRST_FORECAST_S = 120.0
AWAY_S = 180.0  # where all of the system is killed
LEARN_FROM_MS = 36 * 3_600_000  # the first day warms the climatology, the last hours are held back
SETTLED = (
    "samples", "plans", "nonsense", "in_rows", "late", "refused", "open", "lost", "twice", "copies", "late_copies",
)  # fmt: skip


def main() -> int:
    """Run the whole story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", default="600", help="greenhouse seconds a second (default: %(default)s)")
    parser.add_argument("--port", type=int, default=18000, help="of the API on loopback (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the containers running")
    given = parser.parse_args()
    report = Report()
    make_secrets()
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(given.port, {**build_environment(Path(folder)), "HOTHOUSE_SPEED": given.speed})
        try:
            _tell(stack, report)
        except (StackError, TimeoutError, OSError, KeyError, ValueError) as error:
            held_up = isinstance(error, StackError | OSError)  # not an answer that is other than it should be
            report.check("the story was told to its end", False, f"{type(error).__name__}: {error}", held_up)
        finally:
            try:
                if report.failed:
                    stack.keep_logs(LOGS)
                    report.say(f"logs are in {LOGS.relative_to(ROOT)}")
            finally:
                if not given.keep:
                    _take_down(stack, report)
    report.print()
    if folder := os.environ.get(FOLDER_VARIABLE):
        report.record((sys.executable, "-m", "tests.compose.run", *sys.argv[1:])).write(Path(folder))
    return 1 if report.failed else 0


def _take_down(stack: Stack, report: Report) -> None:
    stack.compose("down", "--volumes", "--timeout", "20", timeout_s=180)
    for image in ("hothouse-cluster", "hothouse-edge"):  # 6 GB a run, of those that the new ones replaced
        labelled = f"label=org.opencontainers.image.title={image}"
        stack.docker("image", "prune", "--force", "--filter", labelled, timeout_s=180)
    report.say("everything is taken down")


def _tell(stack: Stack, report: Report) -> None:
    stack.compose("down", "--volumes", timeout_s=180)  # of a run that was interrupted
    report.say("building the images")
    stack.compose("build", "simulator", "service", timeout_s=1500)  # the others are of the same two images
    report.say("starting")
    began_s = time.monotonic()
    stack.compose("up", "--detach", "--wait", "--wait-timeout", "300", timeout_s=330)
    until(lambda: set(stack.origins()) == set(ZONES), "a forecast of every zone", 120)
    first_s, limit_s = time.monotonic() - began_s, budget_s(FIRST_FORECAST_S)
    report.check(f"first forecast of every zone within {limit_s:.0f} s", first_s <= limit_s, f"{first_s:.0f} s", True)
    report.checks(refusals(stack))
    report.checks(listens(stack))
    with Probe(stack.port, ZONES[0]) as probe:
        _see_the_way(stack, report)
        _learn(stack, report, probe)
        _harm(stack, report, probe)
        _lose_all(stack, report, probe)
        _see_the_way(stack, report)
    _settle(stack, report)
    report.checks(secrets_kept(stack))


def _see_the_way(stack: Stack, report: Report) -> None:
    """What came over the broker is in Prometheus, InfluxDB and /predict."""
    before = forecasts(stack)
    until(lambda: stack.newest_point() >= max(before.values()), "rows in InfluxDB", 60)
    report.check("rows of every zone in InfluxDB, by Flux", True, f"to {clock(stack.newest_point())}")
    for job, metric in (("gateway", "hothouse_gateway_samples_total"), ("hothouse", "hothouse_samples_accepted_total")):
        until(lambda metric=metric: stack.measured(metric) > 0, f"{metric} is in Prometheus", 60)
        report.check(f"{metric} in Prometheus", True, f"{stack.measured(metric):,.0f} from {job}")
    found = [stack.ask(f"/predict?zone={zone}") for zone in ZONES]
    bands = [
        point["p10"] <= point["p50"] <= point["p90"]
        for answer in found
        for points in answer["forecasts"].values()
        for point in points
    ]
    report.check("/predict of each zone: quantiles in order", bool(bands) and all(bands), f"{len(bands)} points")
    ordered = stack.order(ZONES[0])
    report.check("an order by the API goes through the broker, and alerts do", all(ordered.values()), str(ordered))


def _learn(stack: Stack, report: Report, probe: Probe) -> None:
    """A retraining, and a swap under the steady reader."""
    report.say("waiting for enough history to learn from")
    began_ms = stack.ask(f"/history?zone={ZONES[0]}")["end_ms"][0]
    until(lambda: max(stack.origins().values()) >= began_ms + LEARN_FROM_MS, "36 hours of history", 480)
    asked_s = time.monotonic()
    stack.compose("exec", "-T", "service", "hothouse", "retrain")
    until(lambda: bool(stack.ask("/models")["models"]), "a model is registered", 420, every_s=2)
    report.say(f"v1 is registered after {time.monotonic() - asked_s:.0f} s")
    swap_s = time.monotonic()
    if stack.ask("/status")["slot"]["champion"]["version"] != "v1":
        stack.compose("exec", "-T", "service", "hothouse", "models", "promote", "v1")
    until(lambda: probe.answers[-1].version == "v1", "v1 answers", 120)
    time.sleep(5)
    since = [answer for answer in probe.answers if answer.at_s >= asked_s]
    failed = [answer for answer in since if answer.status != 200]
    took_s = next(a.at_s for a in since if a.version == "v1") - swap_s
    shown = ", ".join(f"{answer.status or 'no answer'} after {answer.took_s:.1f} s" for answer in failed[:3])
    seen = f"{len(since):,} asked, {len(failed)} failed {shown}".strip()
    report.check("no request failed in training and swap", not failed, seen)
    report.check(
        "the new model answers", True, f"{since[0].version} to v1, {max(took_s, 0):.1f} s after it was champion"
    )
    until(lambda: stack.measured("hothouse_swaps_total") >= 1, "the swap is in Prometheus", 60)
    report.check("hothouse_swaps_total in Prometheus", True, f"{stack.measured('hothouse_swaps_total'):.0f}")


def _harm(stack: Stack, report: Report, probe: Probe) -> None:
    for what in (*KILLS, *LOSSES, *CUTS):
        began_s = time.monotonic()
        report.say(f"{what.words} ...")
        took_s = harm(stack, what)
        gap_s = probe.longest_gap_s(began_s)
        report.harms.append((what.words, took_s, gap_s))
        report.say(f"    recovered after {took_s:.0f} s, longest time without /predict {gap_s:.1f} s")
        if what.most_gap_s is not None:
            most_s = budget_s(what.most_gap_s)
            report.check(
                f"{what.words}: at most {most_s:.0f} s without /predict", gap_s <= most_s, f"{gap_s:.1f} s", True
            )


def _lose_all(stack: Stack, report: Report, probe: Probe) -> None:
    """Nothing can answer meanwhile; it must come back by itself."""
    began_s, words = time.monotonic(), "kill -9 system"
    report.say(f"{words} ...")
    took_s = kill_system(stack)
    report.harms.append((words, took_s, probe.longest_gap_s(began_s)))
    limit_s = budget_s(AWAY_S)
    report.check(f"{words}: back within {limit_s:.0f} s", took_s <= limit_s, f"{took_s:.0f} s", True)


def _settle(stack: Stack, report: Report) -> None:
    """Every message that was published, in a row or a dead letter."""
    report.balancing = True
    stopped_ms = stack.stop_simulator()
    report.say(f"the greenhouse stops at {clock(stopped_ms)} of its time; its last rows are closed by what comes later")
    stack.simulate(stopped_ms + 20 * 60_000, stopped_ms + 40 * 60_000)
    until(lambda: stack.newest_point() > stopped_ms - 300_000, "the last rows are in InfluxDB", 90)
    with tempfile.TemporaryDirectory() as folder:
        messages = stack.published(Path(folder))
        found = stack.run_inside(
            "service", "settle.py", "/messages.tsv", mount={messages: "/messages.tsv"}, timeout_s=300
        )
    report.ledger = {name: found[name] for name in SETTLED}
    report.check(
        "every message is in Kafka",
        found["in_log"] == found["published"],
        f"{found['in_log']:,} of {found['published']:,}{stretches(found['never_came'])}",
    )
    report.check(
        "0 lost, 0 counted twice", not (found["lost"] or found["twice"]), f"{found['lost']} and {found['twice']}"
    )
    for line in found["disputed"]:
        report.say(line)
    report.check("samples still in open rows", found["open"] == 0, str(found["open"]))
    other = {name: found[name] for name in ("rows_not_in_influxdb", "rows_other_in_influxdb", "points_without_row")}
    report.check(
        "InfluxDB has the rows of the history", not any(other.values()), f"{found['rows']:,} rows; {json.dumps(other)}"
    )


if __name__ == "__main__":
    sys.exit(main())
