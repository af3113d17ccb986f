"""What tests of several views share: a house of two zones, what the view says, and a model for its table."""

from __future__ import annotations

from pathlib import Path

from services.messages import ModelRow
from tests.browser.driver import Page
from tests.browser.serving import HOUR_MS, House
from tests.services.serve.fakes import ORIGIN_MS

__all__ = ["SOON_S", "TEXT", "house_of_two", "model", "shows", "text"]

TEXT = "document.getElementById('view').innerText"
SOON_S = 2.0
"""What happens is on the page within this time."""


def house_of_two(folder: Path) -> House:
    """Two zones of a house near Delft; the second has a sensor that fails."""
    made = House(folder)
    made.fill()
    made.do(
        made.live_state.publish(
            [made.forecast("north-2", degraded=["co2_ppm: stuck at 400 ppm since 09:00", "a <b>newer</b> server"])]
        )
    )
    return made


def text(page: Page) -> str:
    """What the view says, with single spaces."""
    return " ".join(page.ask(TEXT).split())


def shows(page: Page, words: str) -> None:
    """Wait until the view says this."""
    page.until(f"{TEXT}.replace(/\\s+/g, ' ').includes({words!r})")


def model(version: str, stage: str, reason: str = "") -> ModelRow:
    """A network in the table of models."""
    return ModelRow(
        version=version, expert="network", kind="network", stage=stage, aliases=[], created_ms=ORIGIN_MS - HOUR_MS,
        weights_sha256="", trained_on={"from_ms": ORIGIN_MS - 72 * HOUR_MS, "to_ms": ORIGIN_MS - 2 * HOUR_MS},
        held_back_mae={}, passed=True, reason=reason, forced=False, folder="", judged_against="v1", shadow=None,
        watch=None, pruned=None,
    )  # fmt: skip
