"""``/zones`` and ``/history``: which zones there are, how they are now, and what they were lately."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from edge.wire.vocabulary import VOCABULARY
from services.messages.sentences import codes_of
from services.serve.api.answer_types import HistoryAnswer, SiteShown, ZoneNow, ZonesAnswer, described
from services.serve.api.answers.forecast_answers import ZoneProblem
from services.serve.api.parameters import keyed_route
from services.serve.api.problems import ProblemError, encoded
from services.serve.api.routes.several_zones import SeveralZones, each_zone, zones_asked
from services.serve.api.schemas import KEYED, PREDICT_ANSWERS, SiteOfZone
from services.serve.api.state import ApiState, Authorization
from services.serve.view import View

__all__ = ["zone_routes"]

UNITS = {name: metric.unit for name, metric in VOCABULARY.items()} | {"vpd_kpa": "kPa", "dew_point_c": "°C"}
LABELS = {name: metric.label for name, metric in VOCABULARY.items()} | {
    "vpd_kpa": "vapour pressure deficit", "dew_point_c": "dew point",
}  # fmt: skip

Zone = Annotated[str, Query(min_length=1, max_length=130, description="Zone, or site/zone.", examples=["north-1"])]


def zone_routes(state: ApiState) -> APIRouter:
    """What readers see of zones, from memory."""
    routes = APIRouter(
        tags=["forecasts"], route_class=keyed_route(state.keys, "read"), responses={422: PREDICT_ANSWERS[422], **KEYED}
    )
    backend = state.backend

    zones_known = {**described(ZonesAnswer), 404: PREDICT_ANSWERS[404], 503: PREDICT_ANSWERS[503]}

    @routes.get("/zones", response_model=None, responses=zones_known)
    async def list_zones(
        zones: SeveralZones = None, site: SiteOfZone = None, authorization: Authorization = None
    ) -> Response:
        """All zones, or those that are named, with what is known of each now, and unit and label of every metric."""
        view = state.readable(authorization)
        named = zones_asked(None, zones)
        keys = sorted(view.answers)
        problems: list[ZoneProblem] = []
        if named:
            found, problems = await each_zone(view, named, site, _itself)
            keys = [key for key in dict.fromkeys(found) if key in view.answers]  # one may have been retired meanwhile
        elif site is not None:
            view.find_site(site)
            keys = [key for key in keys if key[0] == site]
        listed = [_zone_now(state, view, key) for key in keys]
        sites = [_site(state, site) for site in dict.fromkeys(zone["site"] for zone in listed)]
        codes = codes_of(words for zone in listed for words in zone["degraded"])
        answer = ZonesAnswer(zones=listed, sites=sites, units=UNITS, labels=LABELS, codes=codes)
        if named:
            answer["problems"] = problems
        return encoded(answer)

    known_past = {**described(HistoryAnswer), 404: PREDICT_ANSWERS[404], 503: PREDICT_ANSWERS[503]}

    @routes.get("/history", response_model=None, responses=known_past)
    async def history(zone: Zone, site: SiteOfZone = None, authorization: Authorization = None) -> HistoryAnswer:
        """The zone's targets over the past 48 h; each list as long as ``end_ms``, null where missing."""
        view = state.readable(authorization)
        key = view.find(zone, site)
        past = await backend.past(*key)
        if not past["end_ms"]:
            raise ProblemError(503, f"the past of {'/'.join(key)} is not known yet", {"Retry-After": "5"})
        return HistoryAnswer(site=key[0], zone=key[1], **past)

    return routes


async def _itself(key: tuple[str, str]) -> tuple[str, str]:
    return key


def _zone_now(state: ApiState, view: View, key: tuple[str, str]) -> ZoneNow:
    known, (site, zone) = view.answers[key], key
    forecast = known.forecast
    return ZoneNow(
        site=site, zone=zone, label=state.names.zone(site, zone), timezone=state.timezone(site),
        origin=forecast["origin"], origin_ms=forecast["origin_ms"],
        read_ms=forecast["origin_ms"] - round(1000 * known.input_age_s),
        model_version=forecast["model_version"], stale=view.is_stale(key),
        degraded=view.degraded(key), now=forecast["now"], now_age_s=forecast["now_age_s"],
    )  # fmt: skip


def _site(state: ApiState, site: str) -> SiteShown:
    place = state.place_of(site)
    return SiteShown(
        site=site, label=state.names.site(site), timezone=state.timezone(site), clock=place.clock,
        latitude=place.latitude, longitude=place.longitude,
    )  # fmt: skip
