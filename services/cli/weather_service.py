"""``weather``: polls a forecast service, and publishes what it foresees for each site."""

from __future__ import annotations

import logging
import random
import sys
import time
from queue import Empty
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.base import console, options_of
from services.cli.change import PANEL
from services.errors import ConfigError, HothouseError
from services.key_file import read_key
from services.runtime.interrupts import queued_signals

if TYPE_CHECKING:
    from services.config import Settings
    from services.weather.poller import PolledSite

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse weather --once")(weather)


def weather(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Ask once for each site, publish, and end.")] = False,
) -> None:
    """Poll a weather forecast service, and publish its forecasts as plans of each site that has coordinates.

    What fails is tried again, later and later; a forecast that has become old is named in `degraded`.
    """
    from functools import partial

    from services.message_broker import publish
    from services.weather.fetch import fetch
    from services.weather.poller import Poller, Service

    settings = options_of(ctx).settings()
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would write each address, and the key in it
    given = settings.weather
    service = Service(
        given.url, given.source, given.variables, given.days, 60 * given.every_min,
        "" if given.key_file is None else read_key(given.key_file),
    )  # fmt: skip
    poller = Poller(
        service, _places(settings), settings.data_dir / "weather", fetch,
        partial(publish, settings, "hothouse-weather"), lambda: time.time_ns() // 1_000_000, random.random,
    )  # fmt: skip
    if once:
        poller.look(tries_again=False)
        if poller.errors:
            failed = "; ".join(f"{site}: {words}" for site, words in poller.errors.items())
            raise HothouseError(
                failed, f"The service is that of weather.url, {given.url}; `hothouse weather` tries again."
            )
        return
    stop = queued_signals()
    console.print(f"asking {given.url} every {given.every_min:g} min", markup=False, highlight=False, soft_wrap=True)
    while True:
        try:
            stop.get(timeout=max(1.0, poller.look()))
        except Empty:
            continue
        return


def _places(settings: Settings) -> list[PolledSite]:
    from services.weather.poller import PolledSite

    wanted = settings.weather.sites
    places = [
        PolledSite(site.name, site.latitude, site.longitude) for site in settings.sites
        if site.latitude is not None and site.longitude is not None and (not wanted or site.name in wanted)
    ]  # fmt: skip
    lacking = sorted(set(wanted) - {place.site for place in places})
    if lacking or not places:
        which = f"of {', '.join(lacking)}" if lacking else "of any site"
        raise ConfigError(
            f"the settings have no latitude and longitude {which}",
            "Add them: [[sites]] with name, latitude and longitude.",
        )
    return places
