"""``change settings``, ``calibrate`` and ``alias``: events that change rows, published as an operator's device does."""

from __future__ import annotations

import json
import secrets
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.base import console, options_of
from services.config import Settings
from services.errors import ConfigError, HothouseError

if TYPE_CHECKING:
    from edge.change import Change
    from edge.mqtt import MqttAddress

__all__ = ["register"]

WAIT_S = 10.0
PANEL = "At the site"
Site = Annotated[str, typer.Argument(help="Name of the site.")]
Zone = Annotated[str, typer.Argument(help="Its zone; _site for the weather station.")]
Device = Annotated[str, typer.Argument(help="The device, by the name that it sends.")]
Version = Annotated[
    int | None,
    typer.Option("--change-version", min=2, help="Above all before it at the site; else the time in seconds."),
]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Change what rows are made by, through an event of the log.")
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
    from edge.change import SettingsChange

    if step_s is lateness_s is idle_s is None:
        raise typer.BadParameter("name at least one of --step-s, --lateness-s, --idle-s")
    _publish(ctx, (site, "_site", "operator"), SettingsChange(_version(version), step_s, lateness_s, idle_s))


def calibrate(
    ctx: typer.Context, site: Site, zone: Zone, device: Device,
    metric: Annotated[str, typer.Argument(help="The metric, by the name that the device sends.")],
    offset: Annotated[float, typer.Option(help="Added to each value, after the scale.")] = 0.0,
    scale: Annotated[float, typer.Option(help="Each value is multiplied by it.")] = 1.0,
    from_ms: Annotated[int, typer.Option(help="Samples from this Unix time in ms on; closed rows stay.")] = 0,
    version: Version = None,
) -> None:  # fmt: skip
    """Correct what a sensor says: value times scale plus offset, in every row that closes from now on."""
    from edge.change import Calibration

    _publish(ctx, (site, zone, device), Calibration(_version(version), metric, offset, scale, from_ms))


def alias(
    ctx: typer.Context, site: Site, zone: Zone, device: Device,
    to: Annotated[str, typer.Argument(help="What it is called from now on; its own name takes an alias back.")],
    metric: Annotated[str, typer.Option(help="Rename only this metric of the device.")] = "",
    version: Version = None,
) -> None:  # fmt: skip
    """Let rows call a device, or one of its metrics, by another name."""
    from edge.change import Alias

    _publish(ctx, (site, zone, device), Alias(_version(version), to, metric))


def _version(given: int | None) -> int:
    return int(time.time()) if given is None else given


def _publish(ctx: typer.Context, where: tuple[str, str, str], change: Change) -> None:
    from edge.change import decode_change, encode_change
    from edge.reading import parse_topic

    topic, payload = f"hothouse/v1/{'/'.join(where)}/event", encode_change(change)
    parsed = parse_topic(topic)
    if parsed is None:
        raise typer.BadParameter(f"{'/'.join(where)} does not name a site, a zone and a device")
    try:
        decode_change(parsed, payload)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _send(_address(options_of(ctx).settings()), topic, payload)
    console.print(f"published on {topic}: {payload.decode()}", markup=False, highlight=False, soft_wrap=True)


def _send(address: MqttAddress, topic: str, payload: bytes) -> None:
    from edge.mqtt import new_client, open_connection

    client = new_client(address, f"hothouse-change-{secrets.token_hex(4)}", v5=False)
    connected = threading.Event()

    def on_connect(_client: object, _data: object, _flags: object, reason: Any, _properties: object) -> None:
        if not reason.is_failure:
            connected.set()

    client.on_connect = on_connect
    failed = HothouseError(f"the broker at {address.host}:{address.port} did not take it", "Is it running?")
    try:
        open_connection(client, address)
        if not connected.wait(WAIT_S):
            raise failed
        sent = client.publish(topic, payload, qos=1)
        sent.wait_for_publish(WAIT_S)
        if not sent.is_published():
            raise failed
    except OSError as error:
        raise failed from error
    finally:
        client.disconnect()
        client.loop_stop()


def _address(settings: Settings) -> MqttAddress:
    """The configured broker, else that of the system which runs on the data folder."""
    from pathlib import Path

    from edge.mqtt import MqttAddress

    mqtt: dict[str, Any] = settings.mqtt.model_dump()
    try:
        if not settings.mqtt.host:
            mqtt = json.loads((settings.data_dir / "run.json").read_text())["mqtt"]
        secret = mqtt.get("password_file")
        password = Path(secret).read_text().strip() if secret else ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "no broker is configured, and nothing runs on this data folder",
            "Set mqtt.host, or start Hothouse with `hothouse up`.",
        ) from error
    tls = mqtt.get("tls_ca_file")
    return MqttAddress(
        host=mqtt["host"], port=int(mqtt["port"]), username=mqtt.get("username") or "", password=password,
        tls_ca=Path(tls) if tls else None,
    )  # fmt: skip
