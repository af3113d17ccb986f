"""Answers of the API as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

__all__ = ["component_table", "forecast_table", "model_table"]

UNITS = {"air_temp_c": "air °C", "rh_pct": "humidity %", "co2_ppm": "CO₂ ppm", "vpd_kpa": "VPD kPa"}
DECIMALS = {"co2_ppm": 0, "vpd_kpa": 2}
SHOWN_MIN = (30, 120, 1440)
MAE_SHOWN = (("air_temp_c", 60), ("air_temp_c", 1440))
STYLES = {"champion": "bold green", "refused": "dim"}


def forecast_table(answers: Sequence[Mapping[str, Any]]) -> Table:
    """``ZoneForecast`` answers as a table, one line a zone and target."""
    table = Table(title="Forecast (p10-p90 in brackets)", title_justify="left")
    table.add_column("zone")
    table.add_column("")
    for heading in ("now", *(_span(minutes) for minutes in SHOWN_MIN)):
        table.add_column(heading, justify="right")
    table.add_column("model")
    table.add_column("degraded")
    for answer in answers:
        for index, (target, points) in enumerate(answer["forecasts"].items()):
            first = index == 0
            by_horizon = {point["horizon_min"]: point for point in points}
            table.add_row(
                f"{answer['site']}/{answer['zone']}" if first else "",
                UNITS.get(target, target),
                _number(answer["now"].get(target), target),
                *(_band(by_horizon.get(minutes), target) for minutes in SHOWN_MIN),
                answer["model_version"] if first else "",
                escape(", ".join(answer["degraded"])) if first else "",
                end_section=index == len(answer["forecasts"]) - 1,
            )
    return table


def _span(minutes: int) -> str:
    return f"{minutes // 60} h" if minutes >= 60 else f"{minutes} min"


def _number(value: float | None, target: str) -> str:
    return "-" if value is None else f"{value:.{DECIMALS.get(target, 1)}f}"


def _band(point: Mapping[str, Any] | None, target: str) -> str:
    if point is None:
        return "-"
    low, mid, high = (_number(point[name], target) for name in ("p10", "p50", "p90"))
    return f"{mid} [dim]({low}-{high})[/]"


def model_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """``ModelRow`` objects, newest first; errors as model / persistence / 24-hour naive."""
    table = Table(title="Models", title_justify="left")
    for heading in (
        "version",
        "stage",
        "made (UTC)",
        "trained on",
        *(_mae_heading(*shown) for shown in MAE_SHOWN),
        "gate",
    ):
        table.add_column(heading)
    for row in rows:
        trained = row["trained_on"]
        made = datetime.fromtimestamp(row["created_ms"] / 1000, UTC)
        table.add_row(
            row["version"],
            row["stage"],
            f"{made:%Y-%m-%d %H:%M}",
            f"{str(trained.get('from', '?'))[:10]} to {str(trained.get('to', '?'))[:10]}",
            *(_mae(row["held_back_mae"], *shown) for shown in MAE_SHOWN),
            escape(f"forced: {row['reason']}" if row["forced"] else row["reason"]),
            style=STYLES.get(row["stage"], ""),
        )
    return table


def component_table(components: Mapping[str, Mapping[str, Any]]) -> Table:
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


def _flat(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        (f"{key}.{part}", inner) if part else (key, inner)
        for key, value in figures.items()
        for part, inner in (value.items() if isinstance(value, Mapping) else [("", value)])
    ]


def _mae_heading(target: str, horizon_min: int) -> str:
    return f"MAE {UNITS[target]} {_span(horizon_min)}"


def _mae(held_back: Mapping[str, Any], target: str, horizon_min: int) -> str:
    at = held_back.get(target, {}).get(str(horizon_min), {})
    found = [at.get(name) for name in ("model", "persistence", "naive_24h")]
    return " / ".join("-" if value is None else f"{value:.2f}" for value in found)
