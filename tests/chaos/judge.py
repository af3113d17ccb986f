"""The independent judge: what rows and dead letters must come of what arrived. It imports nothing of Hothouse.

    python tests/chaos/judge.py LINES ROWS.parquet [--step-s 60] [--lateness-s 30] [--idle-s 60]

LINES holds one ``receive_ms<TAB>topic<TAB>payload`` a line; ROWS is what ``benchmarks.ingest --rows-out`` made of them.
Written for reading, not for speed: plain dictionaries, a message at a time, from the rules in docs/operations.md.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Key = tuple[str, str, int, str]  # site/zone, device, end_ms, metric
Row = tuple[int, float, float, float, float]  # count, mean, min, max, last
PlanKey = tuple[str, str, str, int]  # site, zone, source, issued_ms
Foreseen = dict[str, list[list[float]]]  # metric -> [[valid_ms, value], ...]

RANGES = {
    "air_temp_c": (-20, 60), "rh_pct": (0, 100), "hd_g_m3": (0, 100), "co2_ppm": (150, 5000),
    "par_umol_m2_s": (0, 3000), "leaf_temp_c": (-20, 60), "soil_vwc_pct": (0, 100), "soil_temp_c": (-20, 60),
    "soil_ec_us_cm": (0, 20000), "vent_lee_pct": (0, 100), "vent_wind_pct": (0, 100), "lamp_pct": (0, 100),
    "out_temp_c": (-50, 60), "out_rh_pct": (0, 100), "wind_m_s": (0, 60), "wind_dir_deg": (0, 360), "rain": (0, 1),
    "irrigation_l_m2": (0, 1e6),
}  # fmt: skip
"""Of the metrics that tests send; a percentage up to 102 is clipped to 100."""
CLIPPED = {name for name in RANGES if name.endswith("_pct") and name != "soil_vwc_pct"}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Reading(NamedTuple):
    """A sample that may pass."""

    zone: str
    device: str
    boot: str
    seq: int
    ts_ms: int
    values: dict[str, float]
    topic: str


@dataclass
class Site:
    """What is open of a site, and what its rows are made by."""

    steps: list[tuple[float, int]]  # (from, step), both in ms
    lateness_ms: int
    own_idle_ms: int  # 0: follows the step
    version: int = 1
    aliases: dict[tuple[str, str, str], str] = field(default_factory=dict)  # zone, device, metric or ""
    curves: dict[tuple[str, str, str], list[tuple[int, float, float]]] = field(default_factory=dict)
    closed_ms: int | None = None
    newest_ms: int | None = None
    heard_ms: int = 0  # when the newest event time came
    quiet_ms: int | None = None
    ticked_ms: int = 0
    tick_ms: int = 0
    open: dict[int, dict[tuple[str, str, str, int], Reading]] = field(default_factory=dict)
    counters: dict[tuple[str, str, str], float] = field(default_factory=dict)

    @property
    def idle_ms(self) -> int:
        return self.own_idle_ms or max(min(60_000, self.steps[-1][1] * 3 // 10), 1000)


class Judge:
    """Give it what arrived with :meth:`take`, in order; then :meth:`finish`."""

    def __init__(self, step_ms: int, lateness_ms: int, idle_ms: int) -> None:
        self.rows: dict[Key, Row] = {}
        self.dead_letters: Counter[tuple[str, str]] = Counter()  # (reason, topic)
        self.accepted = self.duplicates = 0
        self.plans: dict[PlanKey, tuple[int, Foreseen]] = {}  # from when on it is used, and what it says
        self.plans_repeated = self.plans_refused = 0
        self._step_ms = step_ms
        self._defaults = step_ms, lateness_ms, idle_ms
        self._sites: dict[str, Site] = {}
        self._tick: int | None = None
        self._now_ms = 0

    def take(self, receive_ms: int, messages: Iterable[tuple[str, bytes]]) -> None:
        """Messages that the gateway took together, at one receive time."""
        self._now_ms = receive_ms
        if self._tick is None:
            self._tick = receive_ms // (self._step_ms // 10)
        for topic, payload in messages:
            if topic.endswith(("/event", "/plan")):
                self._document(topic, payload)
                continue
            for reading in self._checked(topic, payload):
                self._add(topic.split("/")[2], reading)
        if receive_ms // (self._step_ms // 10) > self._tick:
            self._tick = receive_ms // (self._step_ms // 10)
            for name, site in self._sites.items():
                self._silence(name, site)

    def finish(self) -> None:
        """Everything that is open closes."""
        for name, site in self._sites.items():
            self._close(name, site, max(site.open, default=0))

    def _site(self, name: str) -> Site:
        step_ms, lateness_ms, idle_ms = self._defaults
        return self._sites.setdefault(name, Site([(-math.inf, step_ms)], lateness_ms, idle_ms))

    def _document(self, topic: str, payload: bytes) -> None:
        """A plan, or an event: some change how rows are made; those are taken to be well-formed."""
        name, zone, device, kind = topic.split("/")[2:]
        try:
            event = json.loads(payload)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            self.dead_letters["malformed", topic] += 1
            self.plans_refused += kind == "plan"
        elif kind == "plan" and "source" in event:
            self._plan(topic, name, zone, event)
        elif kind == "event" and event.get("type") in ("settings", "calibration", "alias"):
            site = self._site(name)
            if event["version"] > site.version:
                site.version = event["version"]
                _change(site, event, zone, device)

    def _plan(self, topic: str, name: str, zone: str, plan: dict[str, Any]) -> None:
        """One whose form is right: it holds from the first row on that closes after it came."""
        key = name, zone, plan["source"], plan["issued"]
        wrong = [v for metric, path in plan["values"].items() for _, v in path if not _in_range(metric, v)]
        if wrong:
            self.dead_letters["out_of_range", topic] += 1
            self.plans_refused += 1
        elif key in self.plans:
            self.plans_repeated += 1
        else:
            site = self._site(name)
            now_ms = self._now_ms if site.newest_ms is None else site.newest_ms + site.ticked_ms
            known_ms = max(now_ms, plan["issued"], 0 if site.closed_ms is None else site.closed_ms + 1)
            self.plans[key] = known_ms, plan["values"]

    def _checked(self, topic: str, payload: bytes) -> list[Reading]:
        def refuse(reason: str) -> None:
            self.dead_letters[reason, topic] += 1

        parts = topic.split("/")
        fits = len(parts) == 6 and parts[:2] == ["hothouse", "v1"] and parts[5] == "sample"
        if not fits or not all(NAME.fullmatch(p) or (i == 1 and p == "_site") for i, p in enumerate(parts[2:5])):
            refuse("unknown_topic")
            return []
        if len(payload) > 256 * 1024:
            refuse("oversized")
            return []
        points = _points(payload)
        if points is None:
            refuse("malformed")
            return []
        if not points:
            refuse("no_values")
        passed = []
        for boot, ts, seq, values in points:
            if not 0 <= seq < 2**53:
                refuse("malformed")
            elif ts > self._now_ms + 60_000:
                refuse("future_ts")
            elif ts < max(self._now_ms - 400 * 86_400_000, 946_684_800_000):
                refuse("ancient_ts")
            else:
                good, wrong = _values(values)
                for reason in wrong if good else wrong[:1] or ["no_values"]:
                    refuse(reason)
                if good:
                    passed.append(Reading(parts[3], parts[4], boot, seq, ts, good, topic))
        return passed

    def _add(self, name: str, reading: Reading) -> None:
        site = self._site(name)
        end = _end(site, reading.ts_ms)
        if site.closed_ms is not None and end <= site.closed_ms:
            self.dead_letters["late", reading.topic] += 1
            self._hear(site, reading.ts_ms)
            return
        window = site.open.setdefault(end, {})
        if reading[:4] in window:
            self.duplicates += 1
            return
        window[reading[:4]] = reading
        self.accepted += 1
        if self._hear(site, reading.ts_ms):
            self._close(name, site, min(reading.ts_ms, self._now_ms) - site.lateness_ms)

    def _hear(self, site: Site, ts_ms: int) -> bool:
        trusted = min(ts_ms, self._now_ms)
        if site.newest_ms is not None and trusted <= site.newest_ms:
            return False
        site.newest_ms, site.heard_ms, site.quiet_ms, site.ticked_ms = trusted, self._now_ms, None, 0
        return True

    def _silence(self, name: str, site: Site) -> None:
        if site.newest_ms is None:
            return
        pause_ms = max(site.idle_ms, max(self._step_ms, site.steps[-1][1]) // 5)  # ticks: every tenth of a step
        if site.quiet_ms is None and self._now_ms == site.heard_ms:
            site.tick_ms = self._now_ms
            return  # it may be of a gateway whose clock is behind another's
        if site.quiet_ms is None or self._now_ms - site.tick_ms > pause_ms:
            site.quiet_ms = self._now_ms  # nobody listened meanwhile
        site.ticked_ms += min(self._now_ms - site.tick_ms, self._now_ms - site.quiet_ms)
        site.tick_ms = self._now_ms
        silent_ms = self._now_ms - site.quiet_ms
        if silent_ms >= site.idle_ms:
            # The gateway's clock may be ahead: only after a long silence is it believed, and then by three days.
            received_ms, ticked_ms = self._now_ms - site.idle_ms, site.newest_ms + site.ticked_ms
            is_long = silent_ms >= max(3_600_000, 3 * site.steps[-1][1])
            believed = is_long and received_ms - ticked_ms <= 3 * 86_400_000
            self._close(name, site, (received_ms if believed else min(received_ms, ticked_ms)) - site.lateness_ms)

    def _close(self, name: str, site: Site, watermark_ms: int) -> None:
        target = watermark_ms // _step(site, watermark_ms) * _step(site, watermark_ms)
        if site.closed_ms is not None and target <= site.closed_ms:
            return
        site.closed_ms = target
        for end in sorted(end for end in site.open if end <= target):
            series: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
            for _, reading in sorted(site.open.pop(end).items()):
                for metric, value in reading.values.items():
                    corrected = _corrected(site, reading, metric, value)
                    series.setdefault(_named(site, reading, metric), []).append((reading.ts_ms, corrected))
            for (zone, device, metric), readings in series.items():
                self.rows[f"{name}/{zone}", device, end, metric] = _row(site, (zone, device, metric), readings)


def _in_range(metric: str, value: float) -> bool:
    low, high = RANGES[metric]
    return low <= value <= high


def _step(site: Site, at_ms: int) -> int:
    """The length of the row that an instant belongs to; a change holds for what is after it."""
    return [step for since, step in site.steps if since < at_ms][-1]


def _end(site: Site, at_ms: int) -> int:
    return math.ceil(at_ms / _step(site, at_ms)) * _step(site, at_ms)


def _change(site: Site, event: dict[str, Any], zone: str, device: str) -> None:
    """Rows that are closed stay as they are; all that close later are made as the event says."""
    if event["type"] == "alias":
        _rename(site, zone, device, event.get("metric", ""), event["to"])
    elif event["type"] == "calibration":
        since, name = event.get("from_ms", 0), (zone, device, event["metric"])
        before = [part for part in site.curves.get(name, []) if part[0] < since]
        site.curves[name] = [*before, (since, event.get("scale", 1.0), event.get("offset", 0.0))]
    else:
        site.lateness_ms = event["lateness_s"] * 1000 if "lateness_s" in event else site.lateness_ms
        site.own_idle_ms = event["idle_s"] * 1000 if "idle_s" in event else site.own_idle_ms
        if event.get("step_s", site.steps[-1][1] // 1000) * 1000 != site.steps[-1][1]:
            _change_step(site, event["step_s"] * 1000)


def _rename(site: Site, zone: str, device: str, metric: str, to: str) -> None:
    """A meter goes on from its own newest reading; the one that had the name takes the other's place."""
    before = _name(site, zone, device, metric)
    site.aliases[zone, device, metric] = to
    now = _name(site, zone, device, metric)
    for name in [name for name in site.counters if name[:2] == before[:2] and metric in ("", name[2])]:
        renamed = zone, now[1], now[2] or name[2]
        if renamed == name or renamed[2].split(".")[0] != "irrigation_l_m2":
            continue
        site.counters[renamed], other = site.counters[name], site.counters.get(renamed)
        if other is not None:
            site.counters[name] = other


def _change_step(site: Site, step_ms: int) -> None:
    """From the first instant that is not yet passed and ends rows of both lengths; what is open is sorted anew."""
    since, before_ms = site.steps[-1]
    if site.closed_ms is None:
        site.steps = [(-math.inf, step_ms)]
        return
    both = math.lcm(step_ms, before_ms)
    site.steps.append((math.ceil(max(site.closed_ms, since) / both) * both, step_ms))
    waiting = [one for end in sorted(site.open) for one in site.open[end].items()]
    site.open = {}
    for name, reading in waiting:
        site.open.setdefault(_end(site, reading.ts_ms), {}).setdefault(name, reading)


def _named(site: Site, reading: Reading, metric: str) -> tuple[str, str, str]:
    return _name(site, reading.zone, reading.device, metric)


def _name(site: Site, zone: str, device: str, metric: str) -> tuple[str, str, str]:
    called = site.aliases.get((zone, device, metric), metric) if metric else ""
    return zone, site.aliases.get((zone, device, ""), device), called


def _corrected(site: Site, reading: Reading, metric: str, value: float) -> float:
    curve = site.curves.get((reading.zone, reading.device, metric), [])
    holding = [part for part in curve if part[0] <= reading.ts_ms]
    if not holding:
        return value
    corrected, name = value * holding[-1][1] + holding[-1][2], metric.split(".")[0]
    low, high = RANGES[name]
    return corrected % 360 if name == "wind_dir_deg" else min(max(corrected, low), high)


def _points(payload: bytes) -> list[tuple[str, int, int, dict[str, Any]]] | None:
    try:
        message = json.loads(payload, parse_constant=_no_constant)
        boot = message["boot"]
        points = [message] if message.get("samples") is None else message["samples"]
        found = [(boot, point["ts"], point["seq"], point["values"]) for point in points]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    for boot, ts, seq, values in found:
        numbers = isinstance(values, dict) and all(v is None or type(v) in (int, float) for v in values.values())
        if not (isinstance(boot, str) and type(ts) is int and type(seq) is int and numbers):
            return None
    if found and not (8 <= len(boot) <= 64 and boot.isascii()):
        return None
    return found


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _values(values: dict[str, Any]) -> tuple[dict[str, float], list[str]]:
    good: dict[str, float] = {}
    wrong = []
    for name, value in values.items():
        base = re.sub(r"\.[0-9]{1,2}$", "", name)
        if value is None:
            continue
        if base not in RANGES:
            wrong.append("unknown_metric")
            continue
        low, high = RANGES[base]
        if low <= value <= high:
            good[name] = value
        elif base in CLIPPED and high < value <= 102:
            good[name] = high
        else:
            wrong.append("out_of_range")
    return good, wrong


def _row(site: Site, name: tuple[str, str, str], readings: list[tuple[int, float]]) -> Row:
    """``readings`` stand in the order of their ids."""
    values = [float(value) for _, value in readings]
    in_time = [float(value) for _, value in sorted(readings, key=lambda reading: reading[0])]
    metric = name[2].split(".")[0]
    if metric == "wind_dir_deg":
        east = north = 0.0
        for value in values:
            east, north = east + math.sin(math.radians(value)), north + math.cos(math.radians(value))
        still = math.hypot(east, north) < 1e-9 * len(values)
        mean = math.nan if still else math.degrees(math.atan2(east, north)) % 360
    elif metric == "irrigation_l_m2":
        mean, before = 0.0, site.counters.get(name, in_time[0])
        for value in in_time:
            mean += value - before if value >= before else value
            before = value
        site.counters[name] = in_time[-1]
    else:
        total = 0.0
        for value in values:  # one after another: sum() rounds differently from Python 3.12 on
            total += value
        mean = total / len(values)
    return len(values), mean, min(values), max(values), in_time[-1]


def judge_lines(lines: Iterable[tuple[int, str, bytes]], step_ms: int, lateness_ms: int, idle_ms: int) -> Judge:
    """Judge lines; those of one receive time that follow each other were taken together."""
    judge = Judge(step_ms, lateness_ms, idle_ms)
    batch: list[tuple[str, bytes]] = []
    at_ms: int | None = None
    for receive_ms, topic, payload in lines:
        if at_ms is not None and receive_ms != at_ms:
            judge.take(at_ms, batch)
            batch = []
        at_ms = receive_ms
        batch.append((topic, payload))
    if at_ms is not None:
        judge.take(at_ms, batch)
    judge.finish()
    return judge


def pairs(messages: Iterable[Any]) -> list[tuple[str, bytes]]:
    """A gateway's messages as :meth:`Judge.take` reads them; nothing of ours is imported here."""
    return [(message.topic, message.payload) for message in messages]


def differences(expected: dict[Key, Row], found: dict[Key, Row]) -> list[str]:
    """What is missing, too much or different, one sentence each."""
    wrong = [f"missing: {key}" for key in expected.keys() - found.keys()]
    wrong += [f"too much: {key}" for key in found.keys() - expected.keys()]
    wrong += [
        f"different: {key}: {found[key]} instead of {expected[key]}"
        for key in expected.keys() & found.keys()
        if repr(tuple(map(float, found[key]))) != repr(tuple(map(float, expected[key])))
    ]
    return sorted(wrong)


def main() -> int:
    """Compare files; exit code 1 when they differ."""
    import pyarrow.parquet as pq

    parser = argparse.ArgumentParser(description="Recompute every row of what arrived, and compare.")
    parser.add_argument("lines", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--step-s", type=int, default=60)
    parser.add_argument("--lateness-s", type=int, default=30)
    parser.add_argument("--idle-s", type=int, default=60, help="0: 3/10 of a step, at most 60 s")
    given = parser.parse_args()
    parts = (line.split(b"\t", 2) for line in given.lines.read_bytes().splitlines())
    lines = ((int(receive), topic.decode(errors="replace"), payload) for receive, topic, payload in parts)
    judge = judge_lines(lines, given.step_s * 1000, given.lateness_s * 1000, given.idle_s * 1000)
    table = pq.read_table(given.rows)
    found = {
        (r["zone"], r["device"], r["end_ms"], r["metric"]): (r["count"], r["mean"], r["min"], r["max"], r["last"])
        for r in table.to_pylist()
    }
    wrong = differences(judge.rows, found)
    print("\n".join(wrong[:20]))
    print(
        f"{len(judge.rows)} rows expected, {len(found)} found, {len(wrong)} differ; letters {dict(judge.dead_letters)}"
    )
    return 1 if wrong or len(found) != len(table) else 0


if __name__ == "__main__":
    sys.exit(main())
