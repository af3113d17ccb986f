"""Answers of the API for a terminal; 80 columns are enough for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from services.cli.running.part_words import part_words
from services.observe.duration import in_words

if TYPE_CHECKING:
    from services.messages import ForecastPoint, ModelRow, ZoneForecast, ZoneMixture  # with NumPy

__all__ = ["figures_table", "forecast_view", "model_view", "parts_table", "zones_view"]

UNITS = {"air_temp_c": "air °C", "rh_pct": "humidity %", "co2_ppm": "CO₂ ppm", "vpd_kpa": "VPD kPa"}
DECIMALS = {"rh_pct": 0, "co2_ppm": 0, "vpd_kpa": 2}
LEAST_SHARE = 0.005
SHOWN_MIN = (30, 120, 1440)
BAND_WIDTH = 16  # "1023 (1001-1045)"
MAE_SHOWN = (("air_temp_c", 60), ("air_temp_c", 1440))
STYLES = {"champion": "bold green", "refused": "dim", "withdrawn": "yellow", "shadow": "cyan"}


def forecast_view(answers: Sequence[ZoneForecast]) -> RenderableType:
    """``ZoneForecast`` answers: a heading and a line a target for each zone, the columns in line."""
    parts: list[RenderableType] = []
    for index, answer in enumerate(answers):
        degraded = f"  [yellow]degraded: {escape(', '.join(answer['degraded']))}[/]" if answer["degraded"] else ""
        heading = f"[bold]{answer['site']}/{answer['zone']}[/]  model {answer['model_version']}{degraded}"
        parts += [Text.from_markup(heading), _zone_table(answer, show_header=index == 0)]
    return Group(*parts)


def _zone_table(answer: ZoneForecast, *, show_header: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, show_header=show_header, padding=(0, 1, 0, 0))
    table.add_column("p50 (p10-p90)", min_width=13)
    table.add_column("now", justify="right", min_width=5)
    for minutes in SHOWN_MIN:
        table.add_column(f"in {in_words(60 * minutes)}", justify="right", min_width=BAND_WIDTH)
    for target, points in answer["forecasts"].items():
        by_horizon = {point["horizon_min"]: point for point in points}
        bands = (_band(by_horizon.get(minutes), target) for minutes in SHOWN_MIN)
        table.add_row(UNITS.get(target, target), _number(answer["now"].get(target), target), *bands)
    return table


def _number(value: float | None, target: str) -> str:
    return "-" if value is None else f"{value:.{DECIMALS.get(target, 1)}f}"


def _band(point: ForecastPoint | None, target: str) -> str:
    if point is None:
        return "-"
    low, mid, high = (_number(value, target) for value in (point["p10"], point["p50"], point["p90"]))
    return f"{mid} [dim]({low}-{high})[/]"


def model_view(rows: Sequence[ModelRow]) -> RenderableType:
    """``ModelRow`` objects, newest first, three lines each: what it is, how well it did, what the gate said."""
    parts: list[RenderableType] = [Text("Held-back error as model / persistence / 24-hour naive", style="dim")]
    for row in rows:
        trained = row["trained_on"]
        made = datetime.fromtimestamp(row["created_ms"] / 1000, UTC)
        span = f"{str(trained.get('from', '?'))[:10]} to {str(trained.get('to', '?'))[:10]}"
        errors = "   ".join(
            f"{UNITS[target]} {in_words(60 * minutes)}: {_mae(row['held_back_mae'], target, minutes)}"
            for target, minutes in MAE_SHOWN
        )
        reason = f"forced: {row['reason']}" if row["forced"] else row["reason"]
        if pruned := row.get("pruned"):  # an older system does not say
            day = datetime.fromtimestamp(pruned["at_ms"] / 1000, UTC)
            reason = f"{reason}\nIts files were pruned on {day:%Y-%m-%d}; it cannot serve again."
        style = STYLES.get(row["stage"], "")
        parts += [
            Text(
                f"{row['version']}  {row['stage']}  {_kind(row)}made {made:%Y-%m-%d %H:%M} UTC, trained on {span}",
                style=style,
            ),
            Padding(Text(f"{errors}\n{reason}", style=style), (0, 0, 0, 4)),
        ]
    return Group(*parts)


def _kind(row: ModelRow) -> str:
    """What it is made of, where its version does not say so: the network's place may be held by another kind."""
    kind = row.get("kind", "")  # an older system does not say
    return f"{kind}, " if kind and kind != row.get("expert") else ""


def zones_view(zones: Sequence[ZoneMixture]) -> RenderableType:
    """``ZoneMixture`` objects: what serves a zone, and what each expert weighs in its mixture; zones that have the same
    stand together.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in zones:
        lines = [f"in {in_words(60 * minutes):<8}{_shares(one['weights'], minutes)}" for minutes in SHOWN_MIN]
        serving = ", ".join(f"{expert} {version}" for expert, version in one["serving"].items())
        alike.setdefault((serving, *lines), []).append(f"{one['site']}/{one['zone']}")
    parts: list[RenderableType] = [
        Text("What each expert weighs in the mixture of a zone, mean over targets", style="dim")
    ]
    for (serving, *lines), names in alike.items():
        parts += [Text(f"{', '.join(names)}  {serving}"), Padding(Text("\n".join(lines)), (0, 0, 0, 4))]
    return Group(*parts)


def _shares(weights: Mapping[str, Mapping[str, float]], minutes: int) -> str:
    """The experts that weigh a percent or more at a horizon, the heaviest first."""
    found = {expert: by_horizon.get(str(minutes)) for expert, by_horizon in weights.items()}
    known = sorted(((share, expert) for expert, share in found.items() if share is not None), reverse=True)
    return ", ".join(f"{expert} {share:.0%}" for share, expert in known if share >= LEAST_SHARE) or "-"


def parts_table(components: Mapping[str, Mapping[str, object]]) -> Table:
    """What each part has done, in words."""
    table = Table(title="Parts", title_justify="left", show_header=False)
    table.add_column("part", style="bold")
    table.add_column("words", overflow="fold")
    for name, figures in sorted(components.items()):
        table.add_row(name, escape(part_words(name, figures)))
    return table


def figures_table(components: Mapping[str, Mapping[str, object]]) -> Table:
    """What each part counts: its whole numbers and short texts; tables of numbers as ``name.key``."""
    table = Table(title="Parts", title_justify="left", show_header=False)
    table.add_column("part", style="bold")
    table.add_column("figures", overflow="fold")
    for name, figures in sorted(components.items()):
        shown = [
            f"{key} {value}" for key, value in _flat(figures) if isinstance(value, (int, float, str)) and value != ""
        ]
        table.add_row(name, escape(", ".join(shown)))
    return table


def _flat(figures: Mapping[str, object]) -> list[tuple[str, object]]:
    return [
        (f"{key}.{part}", inner) if part else (key, inner)
        for key, value in figures.items()
        for part, inner in (value.items() if isinstance(value, Mapping) else [("", value)])
    ]


def _mae(held_back: Mapping[str, Mapping[str, Mapping[str, float]]], target: str, horizon_min: int) -> str:
    at = held_back.get(target, {}).get(str(horizon_min), {})
    found = [at.get(name) for name in ("model", "persistence", "naive_24h")]
    return " / ".join("-" if value is None else f"{value:.2f}" for value in found)
