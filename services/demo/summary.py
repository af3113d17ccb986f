"""The demo's summary: what went in, what came out, and whether it may be called a success."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from models.evaluation.scoring import Score
from services.demo.probe import ProbeResult
from services.ingest.figures import ShardFigures
from services.messages import TrainedOn

__all__ = ["DemoModel", "DemoSummary", "SampleLedger", "checks", "ledger", "print_summary", "write_summary"]

SHOWN_HORIZONS_MIN = (30, 60, 180, 360, 720, 1440)
Column = Literal["model", "persistence", "naive_24h", "n"]
SHOWN_FORECASTERS: tuple[tuple[Column, str], ...] = (
    ("model", "served"),
    ("persistence", "persistence"),
    ("naive_24h", "24-h naive"),
    ("n", "n"),
)
SECONDS_FOR_SWAPS = 180.0
EXPECTED_SWAPS = 2


class SampleLedger(TypedDict):
    """What became of each published sample; the four outcomes are disjoint."""

    published: int
    accepted: int
    duplicates: int
    late: int
    rejected: dict[str, int]
    rows: int


class DemoModel(TypedDict):
    """A model that the demo trained."""

    version: str
    weights_sha256: str
    trained_on: TrainedOn
    held_back_mae: dict[str, dict[str, dict[str, float]]]
    served: bool
    forced: bool
    stage: str
    reason: str


class DemoSummary(SampleLedger):
    """What ``--summary`` writes."""

    published_warm_up: int
    published_live: int
    forecasts: int
    retrains: int
    swaps: int
    models: list[DemoModel]
    probe: ProbeResult
    mae: dict[str, dict[str, Score]]  # target -> horizon in minutes
    first_forecast_s: float
    peak_memory_mb: int
    gateway_restarts: int
    errors: list[str]
    recording: str
    ran_s: float
    retrain_every_s: float
    promote: str


def ledger(published: int, shards: Sequence[ShardFigures]) -> SampleLedger:
    """Add up what became of each published sample.

    >>> ledger(5, [{"accepted": 3, "duplicates": 1, "late": 0, "rejected": {"malformed": 1}, "zone_rows": 2}])
    {'published': 5, 'accepted': 3, 'duplicates': 1, 'late': 0, 'rejected': {'malformed': 1}, 'rows': 2}
    """
    rejected: dict[str, int] = {}
    for shard in shards:
        for reason, count in shard["rejected"].items():
            rejected[reason] = rejected.get(reason, 0) + count
    return SampleLedger(
        published=published,
        accepted=sum(shard["accepted"] for shard in shards),
        duplicates=sum(shard["duplicates"] for shard in shards),
        late=sum(shard["late"] for shard in shards),
        rejected=rejected,
        rows=sum(shard["zone_rows"] for shard in shards),
    )


def checks(summary: DemoSummary) -> list[tuple[str, bool, str]]:
    """The claims that decide the exit code: ``(claim, holds, what was seen)``.

    Two retrainings are only claimed of a run that was long enough for them, and two swaps only where no gate may
    refuse a model.
    """
    counted = (
        summary["accepted"] + summary["duplicates"] + summary["late"] + sum(summary["rejected"].values())
    )  # fmt: skip
    probe = summary["probe"]
    found = [
        (
            "every published sample is accounted for",
            counted == summary["published"],
            f"{summary['published']:,} published, {counted:,} counted",
        ),
        ("forecasts were made", summary["forecasts"] > 0, f"{summary['forecasts']:,}"),
        ("no request failed", probe["sent"] > 0 and probe["failed"] == 0, _failed_requests(probe)),
        ("no part reported an error", not summary["errors"], "; ".join(summary["errors"][:3]) or "none"),
    ]
    if summary["retrain_every_s"] and summary["ran_s"] >= SECONDS_FOR_SWAPS:
        found.append(("retrained at least twice", summary["retrains"] >= EXPECTED_SWAPS, str(summary["retrains"])))
        weights = {model["weights_sha256"] for model in summary["models"] if model["served"]}
        if summary["promote"] == "always":
            found.append((
                "swapped at least twice, to different models",
                summary["swaps"] >= EXPECTED_SWAPS and len(weights) >= EXPECTED_SWAPS,
                f"{summary['swaps']} swaps, {len(weights)} different weights",
            ))  # fmt: skip
    return found


def _failed_requests(probe: ProbeResult) -> str:
    """How many of how many, and why.

    >>> _failed_requests({"sent": 3616, "failed": 2, "failures": {"ReadTimeout": 2}, "p50_ms": 3.6, "p99_ms": 9.9})
    '2 of 3,616: ReadTimeout 2'
    """
    count = f"{probe['failed']:,} of {probe['sent']:,}"
    reasons = ", ".join(f"{reason} {times:,}" for reason, times in sorted(probe["failures"].items()))
    return f"{count}: {reasons}" if reasons else count


def write_summary(summary: DemoSummary, path: Path) -> None:
    """Write the summary as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")


def print_summary(console: Console, summary: DemoSummary, found: list[tuple[str, bool, str]]) -> None:
    """Print the closing tables."""
    console.print()
    console.print(_error_table(summary["mae"]))
    if summary["models"]:
        console.print(_model_table(summary["models"]))
    probe = summary["probe"]
    lines = [
        f"[bold]{summary['published']:,}[/] samples published = {summary['accepted']:,} accepted"
        f" + {summary['duplicates']:,} duplicates + {summary['late']:,} late"
        f" + {sum(summary['rejected'].values()):,} rejected",
        f"[bold]{summary['rows']:,}[/] rows, [bold]{summary['forecasts']:,}[/] forecasts,"
        f" the first after {summary['first_forecast_s']} s; peak memory {summary['peak_memory_mb']:,} MB",
        f"[bold]{probe['sent']:,}[/] requests to /predict, {probe['failed']} failed,"
        f" p50 {probe['p50_ms']} ms, p99 {probe['p99_ms']} ms",
    ]
    lines += [f"{'[green]✓' if holds else '[red]✗'} {claim}[/] ({escape(seen)})" for claim, holds, seen in found]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _error_table(mae: Mapping[str, Mapping[str, Score]]) -> Table:
    """A section a target: its name, then a line a forecaster; at most 80 columns wide."""
    table = Table(title="Mean absolute error of the forecasts that matured while it ran", title_justify="left")
    table.add_column("")
    for horizon in SHOWN_HORIZONS_MIN:
        table.add_column(f"{horizon} min" if horizon < 60 else f"{horizon // 60} h", justify="right")
    for target, horizons in mae.items():
        table.add_row(f"[bold]{target}[/]")
        for row, (key, name) in enumerate(SHOWN_FORECASTERS):
            cells = [_cell(horizons.get(str(horizon)), key) for horizon in SHOWN_HORIZONS_MIN]
            last = row == len(SHOWN_FORECASTERS) - 1
            table.add_row(f"  {name}", *cells, style="bold" if row == 0 else "", end_section=last)
    return table


def _cell(cell: Score | None, key: Column) -> str:
    value = cell[key] if cell and cell["n"] else None
    if value is None:
        return "–"
    return f"{value:,.0f}" if key == "n" or value >= 1000 else f"{value:.3g}"


def _model_table(models: list[DemoModel]) -> Table:
    table = Table(title="Models", title_justify="left")
    table.add_column("version")
    table.add_column("weights")
    table.add_column("trained from, to")
    table.add_column("verdict", overflow="fold")
    for model in models:
        trained_on = model["trained_on"]
        verdict = "in shadow" if model["stage"] == "shadow" else "refused"
        if model["stage"] == "withdrawn":
            verdict = "[yellow]withdrawn[/]"
        elif model["served"]:
            verdict = "[yellow]promotion forced[/]" if model["forced"] else "[green]promoted[/]"
        table.add_row(
            model["version"],
            str(model["weights_sha256"])[:8],
            f"{_day(trained_on.get('from'))}\n{_day(trained_on.get('to'))}",
            f"{verdict}: {escape(model['reason'])}",
        )
    return table


def _day(time: object) -> str:
    return str(time or "?")[:16].replace("T", " ")
