"""``plan import`` publishes a grower's plan from a CSV file; ``plan show`` says what is foreseen for a zone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.base import Group, console, options_of, print_json, utc_minute
from services.cli.change import PANEL
from services.cli.running.ask import AsJson, KeyFile, Url
from services.errors import ConfigError, HothouseError

if TYPE_CHECKING:
    from services.config import Settings

__all__ = ["register"]

SHOWN = 4
"""Values of a metric that are shown: what holds now, where that is known, and the next ones."""


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(
        cls=Group, no_args_is_help=True, help="Plans: what is foreseen, of weather, setpoints and the crop."
    )
    group.command("import", epilog="Example: hothouse plan import week.csv --zone demo/north-1")(import_)
    group.command(epilog="Example: hothouse plan show demo/north-1")(show)
    app.add_typer(group, name="plan", rich_help_panel=PANEL)


def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="CSV with a column `time`, one for each metric, and optionally `zone`.")],
    zone: Annotated[
        str,
        typer.Option(metavar="SITE[/ZONE]", help="Zone that it is for; with a site alone, the column `zone` says it."),
    ],
    source: Annotated[str, typer.Option(help="Who plans; a newer plan of the same source replaces this one.")] = (
        "grower"
    ),
    check: Annotated[bool, typer.Option("--check", help="Only say what would be published.")] = False,
) -> None:
    """Publish the plan in a CSV file: the intended values, from each time on.

    Times are ISO 8601; without an offset they follow the site's own clock (its `timezone` in the settings). Columns
    have the names of metrics: `sp_heat_c`, `sp_co2_ppm`, `vent_lee_pct`; an empty cell says nothing.
    """
    from edge.wire.plan import decode_plan, encode_plan
    from services.cli.plan_file import PlanFileError, read_plans

    settings = options_of(ctx).settings()
    site, _, only = zone.partition("/")
    try:
        messages = read_plans(file, settings.site(site).timezone, only)
    except PlanFileError as error:
        raise HothouseError(f"{file}: {error}", "docs/plans.md shows such a file.") from error
    now_ms = _now_ms(settings)
    ready = []
    for name, values in messages.items():
        topic, payload = _message(site, name, source, now_ms, values)
        decoded = decode_plan(topic, payload, now_ms)
        if decoded.plan is None or decoded.refusals:
            raise HothouseError(f"{file}: {decoded.refusals[0].detail}", "Nothing was published.")
        ready.append((topic, encode_plan(decoded.plan), decoded.plan))
    if not check:
        from services.message_broker import publish

        for topic, payload, _ in ready:
            publish(settings, "hothouse-plan", topic, payload)
    clock = settings.site(site).timezone
    console.print(f"times without an offset are read by the clock in {clock}", highlight=False, soft_wrap=True)
    for topic, _, plan in ready:
        points = sum(map(len, plan.values.values()))
        what = f"{points} value{'s' if points != 1 else ''} of {', '.join(plan.values)}, until {_words(plan.last_ms)}"
        said = "would be published on" if check else "published on"
        console.print(f"{said} {topic}: {what}", markup=False, highlight=False, soft_wrap=True)


def show(
    ctx: typer.Context,
    zone: Annotated[str, typer.Argument(help="Zone, or site/zone.")],
    url: Url = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what is foreseen for a zone: the newest plan of each source, what holds of it now, and its next values."""
    from urllib.parse import quote

    from services.cli.running.client import connect

    options = options_of(ctx)
    site, _, name = zone.rpartition("/")
    client = connect(options.settings(), url or options.url, key_file or options.key_file)
    found: dict[str, Any] = client.get(f"/zones/{quote(name)}/plan", **({"site": site} if site else {}))
    if as_json:
        return print_json(found)
    where = f"{found['site']}/{found['zone']}"
    if not found["plans"]:
        console.print(f"nothing is foreseen for {where}", markup=False, highlight=False)
    for plan in found["plans"]:
        for_whom = " for the whole site" if plan["zone"] == "_site" else ""
        title = f"{where}: {plan['kind']} plan of {plan['source']}{for_whom}, issued {_words(plan['issued_ms'])}"
        console.print(title, markup=False, highlight=False, soft_wrap=True)
        now_ms = found["stream_ms"] or plan["issued_ms"]
        for metric, path in plan["values"].items():
            coming = _holding(plan["kind"], path, now_ms) + [point for point in path if point[0] > now_ms]
            shown = ", ".join(f"{_words(ms)[11:] if ms > now_ms else 'now'} {value:g}" for ms, value in coming[:SHOWN])
            more = f" … until {_words(coming[-1][0])}" if len(coming) > SHOWN else ""
            console.print(f"  {metric}: {shown or 'over'}{more}", markup=False, highlight=False, soft_wrap=True)


def _holding(kind: str, path: list[list[float]], now_ms: int) -> list[list[float]]:
    """The value that holds now: of a setpoint the last one, for a day at most, else one that is of this moment."""
    from edge.wire.plan import SETPOINT_HOLD_MS

    held_ms = SETPOINT_HOLD_MS if kind == "setpoint" else 0
    return [point for point in path if now_ms - held_ms <= point[0] <= now_ms][-1:]


def _message(site: str, zone: str, source: str, now_ms: int, values: dict[str, Any]) -> tuple[str, bytes]:
    import msgspec

    from edge.wire.plan import plan_topic

    body = {"issued": now_ms, "source": source, "values": values}
    return plan_topic(site, zone, "operator"), msgspec.json.encode(body)


def _now_ms(settings: Settings) -> int:
    if settings.gateway.clock == "replayed":
        raise ConfigError(
            "this system's clock is that of a replay, which a file's plan cannot be issued by",
            "Publish it with PUT /zones/{zone}/plan, which issues it by the clock of the stream.",
        )
    return time.time_ns() // 1_000_000


def _words(ms: float) -> str:
    return f"{utc_minute(ms)} UTC"
