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

    options = [kind, *_broker_options(options_of(ctx).settings()), *ctx.args]
    raise typer.Exit(main(options, prog="hothouse"))


def _broker_options(settings: Settings) -> list[str]:
    """Where the broker is: the configured one, else the local one of the system that runs on this data folder."""
    mqtt: dict[str, Any] = settings.mqtt.model_dump()
    if not settings.mqtt.host:
        try:
            mqtt = json.loads((settings.data_dir / "run.json").read_text())["mqtt"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
    options = ["--host", str(mqtt["host"]), "--port", str(mqtt["port"])]
    for name in ("username", "password_file", "tls_ca_file"):
        if mqtt.get(name):
            options += [f"--{name.replace('_', '-')}", str(mqtt[name])]
    return options
