"""A system that is not there: the Backend of the API tests, over a real LiveState."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from models.alerts.rules_document import RulesDocument
from models.spec import ForecastSpec
from services.messages import (
    F32,
    I64,
    ChangeAsked,
    Extreme,
    ForecastReply,
    ForecastRequest,
    Resampled,
    SaidAhead,
    ShownAlert,
    SiteRulesShown,
    ZoneForecast,
    ZoneMixture,
    ZoneOutlook,
    ZonePlan,
    ZoneQuality,
    ZoneWhatIf,
)
from services.serve.api.problems import ProblemError
from services.serve.live_state import LiveState, LiveStateChanges, ZonePast
from services.serve.models.model_pointer import ModelPointerStatus, ReplicaReport
from services.store.deadletters import DeadLetterCount
from services.store.forecasts import IssuedForecast
from services.store.history import History
from services.store.rows import DeadLetter
from services.store.zone_series import fingerprint, resampled

__all__ = ["HOUR_MS", "ORIGIN_MS", "SPEC", "FakeBackend", "alert", "zone_forecast"]

ORIGIN_MS = 1_646_092_800_000
HOUR_MS = 3_600_000
SPEC = ForecastSpec(
    channels=("air_temp_c", "rh_pct", "co2_ppm", "vent_lee_pct"), targets=("air_temp_c", "rh_pct", "vpd_kpa"),
    horizons_min=(5, 60, 1440), lookback_steps=12,
)  # fmt: skip
WHAT_IF: Any = {
    "origin_ms": ORIGIN_MS, "version": "v1", "now": np.full(3, 20, np.float32), "minutes": np.array([30, 90]),
    "path": np.broadcast_to(np.float32([4, 5, 7]), (2, 3, 3)),
}  # fmt: skip
"""What a shard says of a zone's newest forecast when it is asked what if."""


def zone_forecast(
    zone: str = "north-1", site: str = "demo", origin_ms: int = ORIGIN_MS, version: str = "v1", **more: Any
) -> ZoneForecast:
    """A complete forecast of one zone, a day's wave."""

    def point(minutes: int) -> dict[str, Any]:
        level = 20 + 4 * math.sin((origin_ms / 60_000 + minutes) / 1440 * 2 * math.pi)
        spread = 0.2 + minutes / 900
        return {"horizon_min": minutes, "time_ms": origin_ms + minutes * 60_000, "time": "2022-03-01T00:05:00Z",
                "p10": level - spread, "p50": level, "p90": level + spread}  # fmt: skip

    points = [point(minutes) for minutes in (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]
    forecast = ZoneForecast(
        site=site, zone=zone, origin_ms=origin_ms, origin="2022-03-01T00:00:00Z", step_s=300, model_version=version,
        degraded=[], now={"air_temp_c": point(0)["p50"], "rh_pct": 81.0, "co2_ppm": 612.0, "vpd_kpa": 0.43,
        "rain": None},
        now_age_s={}, reports_every_s=0,
        freshness_s={"air_temp_c": 10.0}, forecasts={"air_temp_c": points, "rh_pct": points},
        path={
            "horizon_min": [30, 90], "targets": {"air_temp_c": {"p10": [18, 17], "p50": [20, 20], "p90": [21, 22]}}
        },
    )  # fmt: skip
    return {**forecast, **more}  # type: ignore[typeddict-item]


class FakeBackend:
    """Answers from a live state in this process; ``orders`` holds what the retrainer was told."""

    def __init__(self, live_state: LiveState) -> None:
        self.live_state, self.live_states, self.shards = live_state, 1, 1
        self.orders: list[tuple[str, ...]] = []
        self.refusal: str = ""
        self.replicas: dict[str, ReplicaReport] = {}
        self.requests: list[ForecastRequest] = []
        self.plans: dict[tuple[str, str], list[ZonePlan]] = {}
        self.issues: dict[tuple[str, str], int] = {}
        self.published: list[tuple[str, bytes]] = []
        self.letters: list[DeadLetter] = []
        self.history: History | None = None
        self.said: IssuedForecast | None = None
        self.now: F32 = np.full(3, 20, np.float32)
        self.asked: list[list[ChangeAsked]] = []
        self.steps: I64 = np.array([6, 18])  # of the path
        self.past_nights: F32 = np.full((6, 3), 9.5, np.float32)
        self.extremes: dict[str, Extreme] | None = None  # else a night at about 10 degrees
        self.shard_away = ""
        self.alert_log: dict[str, list[ShownAlert]] = {}
        self.rules = SiteRulesShown(
            site="", version=1, changed_ms=None, changed_by="defaults", document=RulesDocument().as_dict()
        )
        self.origin_ms = ORIGIN_MS  # of what a shard has
        self.days = 20.0  # since each zone's first row
        self.spec = SPEC

    def live_state_of(self, site: str) -> int:
        return 0

    async def changes(self, live_state: int, seen_version: int) -> LiveStateChanges:
        return await self.live_state.wait(seen_version, 1.0)

    async def restore(self, live_state: int, forecasts: Sequence[ZoneForecast]) -> None:
        await self.live_state.restore(forecasts)

    async def past(self, site: str, zone: str) -> ZonePast:
        return await self.live_state.past(site, zone)

    async def what_if(self, site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf:
        self.asked.append(changes)
        if any(change["metric"] == "fog_pct" for change in changes):
            return ZoneWhatIf(**WHAT_IF, changed=None, effect=None, support="none", says="There is not enough evidence",
                              reasons=["no house was tried with fog_pct"])  # fmt: skip
        effect = np.broadcast_to(np.float32([-1, -0.5, 0.25]), (2, 3, 3)).copy()
        effect[0] = 0
        return ZoneWhatIf(**WHAT_IF, changed=WHAT_IF["path"] + effect, effect=effect, support="simulated",
                          says="Such changes were seen in simulated houses only.", reasons=[])  # fmt: skip

    async def outlook(self, site: str, zone: str) -> ZoneOutlook:
        if self.shard_away:
            raise ProblemError(503, self.shard_away)
        values = np.linspace(-1, 1, 100, dtype=np.float32)[:, None]
        night = Extreme(first=0, last=1, values=10 + np.repeat(values, 3, axis=1), at=np.zeros((100, 3), np.int64),
                        past=self.past_nights)  # fmt: skip
        return ZoneOutlook(
            origin_ms=self.origin_ms, now=self.now, steps=self.steps,
            scenarios=20 + np.repeat(values[:, None], len(self.steps), axis=1).repeat(3, axis=2),
            extremes={"night": night} if self.extremes is None else self.extremes,
        )  # fmt: skip

    async def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32:
        await asyncio.sleep(0)
        level = now[:, None, :1, None]  # a change of air temperature moves it
        return np.broadcast_to(level, (len(now), len(SPEC.horizons_min), len(SPEC.targets), 3)).astype(np.float32)

    async def plan(self, site: str, zone: str) -> list[ZonePlan]:
        return self.plans.get((site, zone), [])

    async def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int:
        await asyncio.sleep(0)
        self.issues[site, zone] = max(now_ms, self.issues.get((site, zone), 0) + 1)
        return self.issues[site, zone]

    async def series(self, *asked: Any) -> Resampled:
        return resampled(self._past(), *asked)

    async def oldest_ms(self, site: str) -> int:
        return self._past().zones.oldest_ms(site)

    async def series_tag(self, *asked: Any) -> str:
        return fingerprint(self._past(), *asked)

    async def issued(self, site: str, zone: str, at_ms: int) -> IssuedForecast | None:
        return self.said

    async def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        if self.shard_away:
            raise ProblemError(503, self.shard_away)
        zones = [asked] if asked else [("demo", "north-1"), ("demo", "north-2")]
        score = {"model": 0.5, "climatology": 0.7, "persistence": 0.9, "naive_24h": 1.0, "coverage": 0.82, "n": 288}
        scores: Any = {
            target: {minutes: dict(score) for minutes in self.spec.horizons_min} for target in self.spec.targets
        }
        return [
            ZoneQuality(site=site, zone=zone, days=self.days, scores=scores if asked else {}) for site, zone in zones
        ]

    async def said_ahead(
        self, site: str, zone: str, target: str, horizon_min: int, start_ms: int, end_ms: int
    ) -> SaidAhead:
        times = np.arange(start_ms // 300_000 + 1, end_ms // 300_000 + 1) * 300_000
        level = np.full(len(times), 20, np.float32)
        return SaidAhead(time_ms=times, p10=level - 1, p50=level, p90=level + 1)

    async def dead_letters(self, reason: str | None, newest: int) -> tuple[list[DeadLetterCount], list[DeadLetter]]:
        letters = [letter for letter in self.letters if reason in (None, letter.reason)]
        counts = [
            DeadLetterCount(one.reason, one.topic, 1, 0, one.offset, one.receive_ms, one.detail) for one in letters
        ]
        return counts, letters[:newest]

    def _past(self) -> History:
        if self.history is None:
            raise ProblemError(503, "the history cannot be read")
        return self.history

    async def publish(self, topic: str, payload: bytes) -> None:
        if self.refusal:
            raise ProblemError(503, self.refusal)
        self.published.append((topic, payload))

    async def alert_changes(self, id: str) -> list[ShownAlert]:
        return self.alert_log.get(id, [])

    async def zone_alerts(self, site: str, zone: str) -> tuple[list[ShownAlert], int | None]:
        every = [change for changes in self.alert_log.values() for change in changes if change["site"] == site]
        return [one for one in every if one["zone"] == zone], min((one["began_ms"] for one in every), default=None)

    async def alert_rules(self, site: str) -> SiteRulesShown:
        return self.rules | SiteRulesShown(site=site)

    async def mixtures(self) -> list[ZoneMixture]:
        serving = {"network": "v1", "trees": "trees-v2"}
        weights = {"climatology": {"5": 0.7, "60": 1.0}, "trees": {"5": 0.3, "60": 0.0}}
        return [ZoneMixture(site="demo", zone="north-1", origin_ms=ORIGIN_MS, serving=serving, weights=weights)]

    async def forecast(self, request: ForecastRequest) -> ForecastReply:
        self.requests.append(request)
        return ForecastReply(version="v9", quantiles=request["baseline"] + np.float32([-1, 0, 1]))

    async def pointer(self) -> ModelPointerStatus:
        return ModelPointerStatus(
            champion={"generation": 1, "version": "online", "folder": "", "network_soon": False}, replicas=self.replicas
        )

    async def order(self, verb: str, *arguments: str) -> dict[str, Any]:
        if self.refusal:
            raise ProblemError(409, self.refusal)
        self.orders.append((verb, *arguments))
        return {"done": verb}


def alert(id: str = "a1", state: str = "firing", **more: Any) -> ShownAlert:
    """An alert about a cold night."""
    return {
        "id": id, "change": 2, "site": "demo", "zone": "north-1", "rule": "frost", "kind": "frost",
        "severity": "critical", "state": state, "chance": 0.72, "from_ms": ORIGIN_MS + HOUR_MS,
        "until_ms": ORIGIN_MS + 3 * HOUR_MS, "began_ms": ORIGIN_MS - HOUR_MS, "changed_ms": ORIGIN_MS,
        "seen_ms": ORIGIN_MS, "fired_ms": ORIGIN_MS, "came_ms": None, "came_true": None, "muted_until_ms": None,
        "text": "cold 72 % between 04:00 and 06:30; air 1.8 °C",
        "why": [{"name": "air", "label": "air", "value": 1.8, "unit": "°C"}], **more,
    }  # type: ignore[return-value]  # fmt: skip
