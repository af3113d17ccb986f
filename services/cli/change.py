"""``change settings``, ``calibrate`` and ``alias``: events that change rows, published as an operator's device does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.base import Group, console, options_of

if TYPE_CHECKING:
    from edge.wire.events import Change
    from services.config import Settings

__all__ = ["PANEL", "Version", "publish_change", "register", "version_or_now"]

PANEL = "At the site"
Site = Annotated[str, typer.Argument(help="Name of the site.")]
Zone = Annotated[str, typer.Argument(help="Its zone; _site for the weather station.")]
Device = Annotated[str, typer.Argument(help="The device, by the name that it sends.")]
Version = Annotated[
    int | None,
    typer.Option("--change-version", min=2, help="Greater than the site's earlier ones; default: the time in seconds."),
]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(cls=Group, no_args_is_help=True, help="Change how rows are made, through an event of the log.")
    group.command(epilog="Example: hothouse change settings demo --lateness-s 60")(settings)
    example = "Example: hothouse change calibrate demo north-1 climate air_temp_c --offset -0.4"
    group.command(epilog=example)(calibrate)
    group.command(epilog="Example: hothouse change alias demo north-1 climate-new climate")(alias)
    app.add_typer(group, name="change", rich_help_panel=PANEL)


def settings(
    ctx: typer.Context, site: Site,
    step_s: Annotated[int | None, typer.Option(help="Length of a row in seconds.")] = None,
    lateness_s: Annotated[int | None, typer.Option(help="How long a row waits for samples out of order.")] = None,
    idle_s: Annotated[int | None, typer.Option(help="A silent site's rows close this long after.")] = None,
    version: Version = None,
) -> None:  # fmt: skip
    """Give a site's rows another step, lateness or idle time from the next row on."""
    from edge.wire.events import SettingsChange

    if step_s is lateness_s is idle_s is None:
        raise typer.BadParameter("name at least one of --step-s, --lateness-s, --idle-s")
    _check_age(options_of(ctx).settings(), step_s, lateness_s)
    publish_change(
        ctx, (site, "_site", "operator"), SettingsChange(version_or_now(version), step_s, lateness_s, idle_s)
    )


def _check_age(known: Settings, step_s: int | None, lateness_s: int | None) -> None:
    """Raises :class:`ConfigError` for rows that come so late that their forecasts are too old from the beginning."""
    from services.errors import ConfigError

    stream, limit_s = known.stream, known.forecast.stale_after_s
    least_s = (step_s or stream.step_s) + (stream.lateness_s if lateness_s is None else lateness_s)
    if (step_s is not None or lateness_s is not None) and least_s > limit_s:
        raise ConfigError(
            f"forecast.stale_after_s is {limit_s}, and with these rows forecasts get {least_s} s old while all is "
            "well: /predict would refuse them",
            f"Set forecast.stale_after_s to {least_s} or more first, here and where Hothouse runs.",
        )


def calibrate(
    ctx: typer.Context, site: Site, zone: Zone, device: Device,
    metric: Annotated[str, typer.Argument(help="The metric, by the name that the device sends.")],
    offset: Annotated[float, typer.Option(help="Added to each value, after the scale.")] = 0.0,
    scale: Annotated[float, typer.Option(help="Each value is multiplied by it.")] = 1.0,
    from_ms: Annotated[int, typer.Option(help="Samples from this Unix time in ms on; closed rows stay.")] = 0,
    version: Version = None,
) -> None:  # fmt: skip
    """Correct what a sensor says: value times scale plus offset, in every row that closes from now on."""
    from edge.wire.events import Calibration

    publish_change(ctx, (site, zone, device), Calibration(version_or_now(version), metric, offset, scale, from_ms))


def alias(
    ctx: typer.Context, site: Site, zone: Zone, device: Device,
    to: Annotated[str, typer.Argument(help="What it is called from now on; its own name takes an alias back.")],
    metric: Annotated[str, typer.Option(help="Rename only this metric of the device.")] = "",
    version: Version = None,
) -> None:  # fmt: skip
    """Let rows call a device, or one of its metrics, by another name."""
    from edge.wire.events import Alias

    publish_change(ctx, (site, zone, device), Alias(version_or_now(version), to, metric))


def version_or_now(given: int | None) -> int:
    """The version of a change: the time in seconds, where none was given."""
    return int(time.time()) if given is None else given


def _await_next_version(version: int | None) -> None:
    """Of a site only changes with a higher version count: the next command must not find the second of this one."""
    while int(time.time()) == version:
        time.sleep(0.02)


def publish_change(ctx: typer.Context, where: tuple[str, str, str], change: Change) -> None:
    """Publish a change of (site, zone, device), after a check that the gateway takes it."""
    from edge.wire.events import decode_change, encode_change
    from edge.wire.topic import parse_topic
    from services.message_broker import publish  # `hothouse --help` need not pay for an MQTT client

    topic, payload = f"hothouse/v1/{'/'.join(where)}/event", encode_change(change)
    parsed = parse_topic(topic)
    if parsed is None:
        raise typer.BadParameter(f"{'/'.join(where)} does not name a site, a zone and a device")
    try:
        decode_change(parsed, payload)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    publish(options_of(ctx).settings(), "hothouse-change", topic, payload)
    _await_next_version(change.version)
    console.print(f"published on {topic}: {payload.decode()}", markup=False, highlight=False, soft_wrap=True)
