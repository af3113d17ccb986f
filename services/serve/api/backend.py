"""What an API replica asks of the rest of the system: one Protocol. :mod:`services.serve.backend` has it over Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from services.messages import (
    F32,
    ChangeAsked,
    ForecastReply,
    ForecastRequest,
    ModelSubmitted,
    Moved,
    Resampled,
    SaidAhead,
    ShownAlert,
    SiteRulesShown,
    TrainingAccepted,
    ZoneForecast,
    ZoneMixture,
    ZoneOutlook,
    ZonePlan,
    ZoneQuality,
    ZoneWhatIf,
)
from services.serve.live_state import LiveStateChanges, ZonePast
from services.serve.models.model_pointer import ModelPointerStatus
from services.store.deadletters import DeadLetterCount
from services.store.rows import DeadLetter

if TYPE_CHECKING:
    from services.store.forecasts import IssuedForecast

__all__ = ["POLL_S", "Backend", "OrderAnswer"]

POLL_S = 5.0
"""A live state that has nothing new answers after so long, and so does the model pointer: then it is asked again."""

OrderAnswer = TrainingAccepted | Moved | ModelSubmitted


class Backend(Protocol):
    """The system behind the API. Everything raises a 503 problem where the part that is asked is away, or does not know
    the site or zone yet.
    """

    live_states: int
    shards: int

    def live_state_of(self, site: str) -> int:
        """The index of the live state that knows a site."""

    async def changes(self, live_state: int, seen_version: int) -> LiveStateChanges:
        """Wait a few seconds for a live state's next change."""

    async def restore(self, live_state: int, forecasts: Sequence[ZoneForecast]) -> None:
        """Give a live state that was restarted what is known of its sites."""

    async def past(self, site: str, zone: str) -> ZonePast:
        """The past 48 h of a zone."""

    async def what_if(self, site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf:
        """What changes do to a zone's newest forecast."""

    async def outlook(self, site: str, zone: str) -> ZoneOutlook:
        """Scenarios of a zone's newest forecast."""

    async def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32:
        """The climatology's forecasts ``[N, H, M, Q]`` for targets ``now [N, M]``."""

    async def plan(self, site: str, zone: str) -> list[ZonePlan]:
        """The newest plan of each source that holds for a zone."""

    async def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int:
        """When a plan that is put now is issued, which no other is, also of another replica."""

    async def series(
        self, site: str, zone: str, metrics: Sequence[str], start_ms: int, end_ms: int, interval_ms: int
    ) -> Resampled:
        """A zone's rows (:func:`~services.store.zone_series.resampled`); 503 where the history cannot be read."""

    async def oldest_ms(self, site: str) -> int:
        """The end of a site's first row that is kept; 0 where there is none."""

    async def series_tag(self, site: str, start_ms: int, end_ms: int) -> str:
        """Differs when a site's rows of a span may have changed."""

    async def issued(self, site: str, zone: str, at_ms: int) -> IssuedForecast | None:
        """The newest forecast that was issued for a zone for an origin up to then, no older than a day."""

    async def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        """How good one zone's forecasts have been; of None, how long each zone is known."""

    async def said_ahead(
        self, site: str, zone: str, target: str, horizon_min: int, start_ms: int, end_ms: int
    ) -> SaidAhead:
        """What was forecast for a target ``horizon_min`` before each time of a span; 503 where it cannot be read."""

    async def dead_letters(self, reason: str | None, newest: int) -> tuple[list[DeadLetterCount], list[DeadLetter]]:
        """What was kept out, counted by reason and topic, and the newest letters; 503 where they cannot be read."""

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish a message to the broker, as devices do; raises a 503 problem where it does not take it."""

    async def alert_changes(self, id: str) -> list[ShownAlert]:
        """The changes of an alert, oldest first, none for an unknown one; 503 where they cannot be read."""

    async def zone_alerts(self, site: str, zone: str) -> tuple[list[ShownAlert], int | None]:
        """The changes of a zone's alerts, oldest first, and since when its site's are kept; 503 as before."""

    async def alert_rules(self, site: str) -> SiteRulesShown:
        """The rules of a site."""

    async def mixtures(self) -> list[ZoneMixture]:
        """What each zone's newest forecast was mixed from."""

    async def forecast(self, request: ForecastRequest) -> ForecastReply:
        """Run the champion."""

    async def pointer(self) -> ModelPointerStatus:
        """Champion and replicas."""

    async def order(self, verb: str, *arguments: str) -> OrderAnswer:
        """``trigger``, ``promote``, ``rollback`` or ``submit``, with what the retrainer takes.

        Raises a 409 problem with the reason of a refusal, and a 503 that says so where the order may be under way.
        """
