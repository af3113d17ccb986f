"""``simulate``, ``replay`` and ``gateway``: what runs at the site, on the bare install.

The options of ``simulate`` and ``replay`` are those of the program in ``edge`` itself; the broker of the settings is
given first, so that an option on the command line wins. The gateway takes the settings as they are.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import typer

from services.cli.base import options_of
from services.config import Settings

__all__ = ["register"]

PANEL = "At the site"
PASS_ON: dict[str, Any] = {
    "rich_help_panel": PANEL,
    "add_help_option": False,  # the program's own help lists its own options
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(**PASS_ON)(simulate)
    app.command(**PASS_ON)(replay)
    app.command(**PASS_ON)(gateway)


def simulate(ctx: typer.Context) -> None:
    """Simulate a greenhouse and publish its sensors over MQTT, as devices do."""
    _publish(ctx, "simulate")


def replay(ctx: typer.Context) -> None:
    """Publish a recording (a folder of CSV or Parquet, one file a zone) over MQTT, as devices do."""
    _publish(ctx, "replay")


def gateway(ctx: typer.Context) -> None:
    """Take samples from MQTT into the log, and acknowledge each once it is durable."""
    from edge.gateway.command import main

    raise typer.Exit(main(ctx.args, prog="hothouse gateway", settings=options_of(ctx).settings()))


def _publish(ctx: typer.Context, kind: str) -> NoReturn:
    from edge.simulator.publisher.command import main

    settings = options_of(ctx).settings()
    running = {} if settings.mqtt.host else _running(settings)
    options = [kind, *_broker_options(running.get("mqtt") or settings.mqtt.model_dump()), *ctx.args]
    is_elsewhere = any(option.startswith("--host") for option in ctx.args)
    wall_clock = running.get("clock") == "wall" and not is_elsewhere
    raise typer.Exit(main(options, prog="hothouse", wall_clock=wall_clock))


def _running(settings: Settings) -> dict[str, Any]:
    """What the system that runs on this data folder says of itself; empty where none does."""
    try:
        found = json.loads((settings.data_dir / "run.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _broker_options(mqtt: dict[str, Any]) -> list[str]:
    """Where the broker is; the program's own defaults where none is known."""
    if not mqtt["host"]:
        return []
    options = ["--host", str(mqtt["host"]), "--port", str(mqtt["port"])]
    for name in ("username", "password_file", "tls_ca_file", "tls_cert_file", "tls_key_file"):
        if mqtt.get(name):
            options += [f"--{name.replace('_', '-')}", str(mqtt[name])]
    return options
