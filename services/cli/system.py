"""``hothouse up`` and ``hothouse demo``: the commands that run the whole system."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from edge.config import stray_variables
from edge.wire.plan import PlanMessage
from services.cli.base import console, errors, need_cluster, need_out, options_of
from services.cli.running.alert_lines import ALERTS_EVERY_S, alert_lines
from services.cli.running.error_lines import ERRORS_EVERY_S, error_lines
from services.cli.running.gateway_lines import GATEWAY_EVERY_S, gateway_lines
from services.cli.setup.watching import LOOK_S, trouble_lines
from services.config import Settings
from services.errors import ConfigError
from services.runtime.interrupts import ended_by_signals, queued_signals
from services.runtime.threads.repeating import Repeating

__all__ = ["register", "takes_the_network"]


class Promotion(StrEnum):
    """What decides about a new model in a demonstration."""

    GATE = "gate"
    ALWAYS = "always"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(rich_help_panel="The whole system", epilog="Example: hothouse up --port 8000")(up)
    app.command(rich_help_panel="The whole system", epilog="Example: hothouse demo --minutes 3 --summary s.json")(demo)


def up(
    ctx: typer.Context,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the API; 0: a free one.")] = None,
) -> None:
    """Run the system until Ctrl-C: broker or connection, gateway, log, shards, forecaster, API, learning."""
    settings = options_of(ctx).settings(**({} if port is None else {"api": {"port": port}}))
    if settings.uplink.to:
        raise ConfigError(
            f"uplink.to is {settings.uplink.to!r}: this log is a buffer, emptied as its records leave",
            "Run `hothouse gateway` here, or unset it.",
        )
    for name in stray_variables():  # in a container settings are variables: one that names none is mistyped
        errors.print(f"warning: the variable {name} is no setting, and is not read", markup=False, soft_wrap=True)
    with need_cluster("up"):
        import services.app  # noqa: F401 - now, as long as SIGTERM may end it at once: nothing is running yet
    with ended_by_signals():
        _run_until_told(settings)


def _run_until_told(settings: Settings) -> None:
    from services.app import System

    with System(settings, say=lambda stage: console.print(f"[dim]{stage} ...[/]")) as system:
        stopped = queued_signals()
        console.print(f"Hothouse runs at [bold]{system.shown_url}[/]   (Ctrl-C stops it)", soft_wrap=True)
        if settings.mqtt.gateway == "here":
            console.print(f"devices publish to MQTT at {system.broker.host}:{system.broker.port}", highlight=False)
        if takes_the_network(settings):
            port = system.broker.port
            line = f"those on the network at port {port} of this computer; `hothouse devices add` makes logins"
            console.print(line, highlight=False, soft_wrap=True)
        if system.broker.username:
            line = f"as {system.broker.username}, password in {system.broker.password_file}"
            console.print(line, highlight=False, soft_wrap=True)
        alerts = Repeating(alert_lines(system.settings, system.url), ALERTS_EVERY_S, "alerts")
        gateway = Repeating(gateway_lines(lambda: system.gateway_problem), GATEWAY_EVERY_S, "gateway")
        parts = Repeating(error_lines(system.settings, system.url), ERRORS_EVERY_S, "parts that fail")
        with Repeating(trouble_lines(system.settings), LOOK_S, "devices"), alerts, gateway, parts:
            stopped.get()
        console.print("[dim]stopping ...[/]")


def takes_the_network(settings: Settings) -> bool:
    """Whether the broker of ours listens where other machines may reach it."""
    mqtt = settings.mqtt
    if mqtt.host or mqtt.gateway != "here" or mqtt.listen in ("", "localhost"):
        return False
    try:
        return not ip_address(mqtt.listen).is_loopback
    except ValueError:  # a name
        return True


def demo(
    ctx: typer.Context,
    headless: Annotated[bool, typer.Option("--headless", help="Print lines instead of the live view.")] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes that it runs after the warm-up.")] = 10.0,
    summary: Annotated[Path | None, typer.Option(help="Write the summary to this file, as JSON.")] = None,
    recording: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Replay this folder (one file a zone) instead of simulating."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="TOML file that names the recording's columns.")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="IANA time zone of the recording.")] = None,
    latitude: Annotated[float | None, typer.Option(min=-90, max=90, help="Where the recording was made.")] = None,
    longitude: Annotated[float | None, typer.Option(min=-180, max=180, help="Where the recording was made.")] = None,
    ahead: Annotated[
        Path | None, typer.Option(help="Publish these plans beside the recording, as `backtest --ahead` reads them.")
    ] = None,
    ahead_source: Annotated[list[str] | None, typer.Option(help="Only the plans of this source; repeatable.")] = None,
    warm_days: Annotated[
        float, typer.Option(min=0.1, max=400, help="Days of history that are processed first, for a first forecast.")
    ] = 14.0,
    speed: Annotated[float, typer.Option(min=1, help="Greenhouse seconds per second.")] = 900.0,
    retrain_every: Annotated[
        float, typer.Option(min=0, help="Seconds between scheduled retrainings; 0: no schedule.")
    ] = 15.0,
    promote: Annotated[Promotion, typer.Option(help="Who decides about a new model.")] = Promotion.ALWAYS,
    zones: Annotated[int, typer.Option(min=1, max=500, help="Simulated zones.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0: a free one.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder afterwards.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder of the demonstration.")] = None,
) -> None:
    """Show the whole system on this machine: a simulated or recorded greenhouse, forecasts, retraining and swaps."""
    if summary is not None and not summary.absolute().parent.is_dir():
        raise ConfigError(
            f"--summary {summary}: the folder {summary.absolute().parent} does not exist", "Make it first."
        )
    if summary is not None:
        need_out(summary, "the summary")
    if ahead is not None and recording is None:
        raise ConfigError("--ahead is for a recording", "Add --recording FOLDER. The simulation has plans of its own.")
    if ahead_source and ahead is None:
        raise ConfigError("--ahead-source names plans of a file", "Add --ahead FILE.")
    with need_cluster("demo"):
        from services.backtest.ahead import replayed_plans
        from services.demo import DemoOptions, run_demo
    plans: list[PlanMessage] = []
    if ahead is not None and recording is not None:
        plans, notes = replayed_plans(ahead, ahead_source or [], recording, mapping, timezone)
        for note in notes:
            console.print(f"[dim]{escape(note)}[/]", highlight=False, soft_wrap=True)
    code = run_demo(
        DemoOptions(
            headless=headless,
            minutes=minutes,
            summary=summary,
            recording=recording,
            mapping=mapping,
            timezone=timezone,
            latitude=latitude,
            longitude=longitude,
            plans=tuple(plans),
            warm_days=warm_days,
            speed=speed,
            retrain_every=retrain_every,
            promote=promote.value,
            zones=zones,
            seed=seed,
            port=port,
            keep=keep,
            data_dir=data_dir if data_dir is not None else options_of(ctx).data_dir,
            config=options_of(ctx).config,
        )
    )
    raise typer.Exit(code)
