"""How the demo looks: a live terminal view, or the same as lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from edge.wire.topic import SITE_ZONE
from services.demo.outlook_line import outlook_line
from services.demo.probe import ProbeResult
from services.demo.watch import Seen
from services.messages import ForecastPoint, ShownAlert, ZoneForecast
from services.observe.timeline import event_line

__all__ = ["DemoProgress", "alert_line", "headless_line", "live_view", "outlook_lines"]

SHOWN_HORIZONS_MIN = (30, 120, 1440)
BAND_WIDTH = 16  # "1023 (1001-1045)"
SHOWN_TARGETS = (("air_temp_c", "°C", 1), ("rh_pct", "%", 0), ("co2_ppm", "ppm", 0))


class DemoProgress:
    """What the run itself adds to what is seen: how far it is, and what the probe says."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.total_s = 0.0
        self.published = 0
        self.samples_per_s = 0.0
        self.memory_mb = 0.0
        self.probe = ProbeResult(sent=0, failed=0, failures={}, p50_ms=None, p99_ms=None)
        self.url = ""


def live_view(seen: Seen, progress: DemoProgress) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [_head(seen, progress), _Zones(seen)]
    if seen.outlooks:
        parts.append(Panel(Text("\n".join(outlook_lines(seen))), title="tonight and tomorrow, air temperature"))
    if seen.alerts:
        parts.append(Panel(Text("\n".join(map(alert_line, seen.alerts[:6]))), title="alerts", border_style="yellow"))
    events = seen.events[-6:]
    if events:
        parts.append(Panel(Group(*(Text.from_markup(event_line(event)) for event in events)), title="events"))
    if seen.errors:
        parts.append(Panel(Text("\n".join(seen.errors)), title="errors", border_style="red"))
    return Group(*parts)


def headless_line(seen: Seen, progress: DemoProgress) -> str:
    """What :func:`live_view` shows, in one line."""
    versions = sorted({forecast["model_version"] for forecast in seen.forecasts.values()})
    climate = ""
    if seen.forecasts:
        (_, zone), forecast = sorted(seen.forecasts.items())[0]
        now = forecast["now"].get("air_temp_c")
        point = _point(forecast, "air_temp_c", 120)
        if now is not None and point is not None:
            climate = f" | {zone} {now:.1f} °C, in 2 h {point['p50']:.1f} ({point['p10']:.1f} to {point['p90']:.1f})"
    alerts = f" | {len(seen.alerts)} alerts: {alert_line(seen.alerts[0])}" if seen.alerts else ""
    probe = progress.probe
    return (
        f"{progress.elapsed_s:4.0f} s | {stream_time(seen)} | {progress.samples_per_s:,.0f} samples/s"
        f" | {seen.total('zone_rows'):,} rows | {seen.total('forecasts'):,} forecasts"
        f" | model {', '.join(versions) or '–'}"
        f" | /predict {probe['sent']:,} asked, {probe['failed']} failed"
        f"{climate}{alerts}"
    )


def alert_line(alert: ShownAlert) -> str:
    """An alert that fires, in one line.

    >>> alert_line({"zone": "z1", "text": "cold since 04:10; air 1.8 °C"})
    'z1 cold since 04:10; air 1.8 °C'
    >>> alert_line({"site": "demo", "zone": "_site", "text": "drift: out_temp_c is 6 degC below"})
    'demo drift: out_temp_c is 6 degC below'
    """
    where = alert["site"] if alert["zone"] == SITE_ZONE else alert["zone"]
    return f"{where} {alert['text']}"


def outlook_lines(seen: Seen) -> list[str]:
    """What is said of tonight and tomorrow, a line a zone."""
    return [outlook_line(zone, said) for (_, zone), said in sorted(seen.outlooks.items())]


def stream_time(seen: Seen) -> str:
    """The newest closed row's end, in UTC."""
    newest = max((shard.get("origin_ms") or 0 for shard in seen.shards), default=0)
    return f"{datetime.fromtimestamp(newest / 1000, UTC):%d %b %H:%M} UTC" if newest else "no row yet"


def _head(seen: Seen, progress: DemoProgress) -> RenderableType:
    versions = sorted({forecast["model_version"] for forecast in seen.forecasts.values()})
    probe = progress.probe
    failed = probe["failed"]
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        f"[bold]{stream_time(seen)}[/]",
        f"{progress.samples_per_s:,.0f} samples/s",
        f"{seen.total('accepted'):,} samples",
        f"{seen.total('zone_rows'):,} rows",
    )
    grid.add_row(
        f"{progress.elapsed_s:.0f} of {progress.total_s:.0f} s",
        f"{seen.total('forecasts'):,} forecasts",
        f"model [bold]{', '.join(versions) or '–'}[/]",
        _retrainer(seen),
    )
    grid.add_row(
        f"{probe['sent']:,} requests",
        f"[{'red' if failed else 'green'}]{failed} failed[/]",
        f"p99 {probe['p99_ms'] or 0:.1f} ms",
        f"{progress.memory_mb:,.0f} MB",
    )
    return Panel(grid, title="Hothouse", subtitle=progress.url)


def _retrainer(seen: Seen) -> str:
    retrainer = seen.retrainer
    if retrainer is None:
        return ""
    if retrainer["running"]:
        return "[cyan]retraining ...[/]"
    return f"{retrainer['retrains']} retrains, {retrainer['swaps']} swaps"


class _Zones:
    """The table of zones with as many horizons as the terminal has room for: half a number would be a wrong one."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for count in range(len(SHOWN_HORIZONS_MIN), 0, -1):
            table = _zones(self._seen, SHOWN_HORIZONS_MIN[:count])
            if Measurement.get(console, options.update_width(1_000), table).maximum <= options.max_width:
                break
        yield table


def _zones(seen: Seen, horizons: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("p50 (p10-p90)", min_width=13, max_width=16, overflow="fold")
    table.add_column("now", justify="right", min_width=5)
    for horizon in horizons:
        name = f"in {horizon} min" if horizon < 60 else f"in {horizon // 60} h"
        table.add_column(name, justify="right", min_width=BAND_WIDTH)
    for (_, zone), forecast in sorted(seen.forecasts.items()):
        table.add_row(f"[bold]{zone}[/]", "", "[yellow]degraded[/]" if forecast["degraded"] else "")
        for target, unit, digits in SHOWN_TARGETS:
            now = forecast["now"].get(target)
            cells = [_forecast_cell(_point(forecast, target, horizon), digits) for horizon in horizons]
            table.add_row(f"  {unit}", "–" if now is None else f"{now:.{digits}f}", *cells)
    return table


def _forecast_cell(point: ForecastPoint | None, digits: int) -> str:
    if point is None or point["p50"] is None:
        return "–"
    return f"[bold]{point['p50']:.{digits}f}[/] [dim]({point['p10']:.{digits}f}-{point['p90']:.{digits}f})[/]"


def _point(forecast: ZoneForecast, target: str, horizon_min: int) -> ForecastPoint | None:
    points = forecast["forecasts"].get(target, [])
    return next((point for point in points if point["horizon_min"] == horizon_min), None)
