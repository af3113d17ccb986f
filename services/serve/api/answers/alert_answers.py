"""What the routes about alerts and rules answer, and what they are asked with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast, get_args

from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from models.alerts.alert_rule import COURSES, SEVERITIES, STATES, AlertRule
from models.alerts.crop_rules import CROPS, STAGES, rules_for
from models.alerts.rules_document import RulesDocument, clock_time
from models.durations import HOUR_MS
from services.messages import AlertCount, AlertState, ShownAlert, SiteRulesShown
from services.serve.api.answers.forecast_answers import ZoneProblem

__all__ = [
    "AlertChange", "AlertDetails", "AlertsAnswer", "MuteIn", "OrderPublished", "RuleShown", "RulesAnswer", "RulesIn",
    "RulesPatch", "ZoneRulesIn", "ZoneRulesPatch", "counted", "in_order", "rules_answer",
]  # fmt: skip

OptionSaid = float | bool | str | list[float | str]
_KINDS: list[dict[str, Any]] = [{"type": kind} for kind in ("number", "string")]
_OPTION = [*_KINDS, {"type": "boolean"}, {"type": "array", "items": {"anyOf": _KINDS}}]
OptionIn = Annotated[Any, WithJsonSchema({"anyOf": _OPTION})]
"""An option of a rule: described only, for the rules' own check has a better sentence for a wrong one."""
OptionPatch = Annotated[Any, WithJsonSchema({"anyOf": [*_OPTION, {"type": "null"}]})]

STATES_SHOWN: tuple[AlertState, ...] = ("firing", "acknowledged", "muted", "pending", "resolved")


class AlertsAnswer(TypedDict):
    """Alerts, what needs somebody first."""

    alerts: list[ShownAlert]
    counts: Annotated[AlertCount, Meta(description="Of all that fit site, zone and rule, in whatever state.")]
    problems: NotRequired[Annotated[list[ZoneProblem], Meta(description="Of several zones that were asked for.")]]


class AlertChange(TypedDict):
    """One change of an alert's state."""

    change: int
    state: AlertState
    changed_ms: int
    chance: float
    text: str


class AlertDetails(ShownAlert):
    """An alert, and how it came to be so."""

    changes: Annotated[list[AlertChange], Meta(description="Oldest first.")]


class OrderPublished(TypedDict):
    """An order that the broker has; it takes effect at its place in the log."""

    id: str
    order: Literal["acknowledge", "mute", "unmute"]
    site: str
    zone: str
    rule: str


class RuleShown(TypedDict):
    """A rule, with all its options."""

    name: str
    kind: str
    off: bool
    is_own: Annotated[bool, Meta(description="Added by somebody; the crop has none of this name.")]
    changed: Annotated[list[str], Meta(description="The options that differ from the crop's.")]
    watches: str
    unit: str
    sign: Annotated[int, Meta(description="1: too much is bad, -1: too little is, 0: a rule of a state.")]
    limit: float
    night_limit: float | None
    hysteresis: float
    for_min: float
    keep_min: float
    hours: list[str] | None
    severity: str
    lead_h: Annotated[float, Meta(description="How far it looks ahead, in hours; no further than forecasts go.")]
    chance: float
    fruit_mm: float | None
    band_c: list[float]
    wet_rh_pct: float
    base_c: float
    per_100_j_cm2: float


class ZoneRulesSaid(TypedDict):
    """What a zone has of its own."""

    crop: NotRequired[str]
    stage: NotRequired[str]
    changes: NotRequired[dict[str, dict[str, OptionSaid]]]


class RulesAnswer(TypedDict):
    """The rules of a site, or those that hold in one of its zones."""

    site: str
    zone: NotRequired[Annotated[str, Meta(description="Whose rules these are, where a zone was named.")]]
    version: Annotated[int, Meta(description="Counts the changes of the site's rules, from 1.")]
    changed_ms: int | None
    changed_by: Literal["defaults", "file", "api"]
    crop: str
    stage: str
    changes: Annotated[
        dict[str, dict[str, OptionSaid]],
        Meta(description="What differs from the crop's rules, as written; of a zone what it has of its own."),
    ]
    zones: Annotated[dict[str, ZoneRulesSaid], Meta(description="What zones of the site have of their own.")]
    rules: Annotated[list[RuleShown], Meta(description="Those in force, and those that are off.")]
    crops: list[str]
    stages: list[str]
    toml: Annotated[str, Meta(description="The same as a file of rules.")]


class MuteIn(BaseModel):
    """How long a rule says nothing in a zone: one of both."""

    model_config = ConfigDict(extra="forbid", strict=True)

    hours: Annotated[float | None, Field(ge=0.5, le=720, description="From now on, by the stream's clock.")] = None
    until_ms: Annotated[int | None, Field(ge=0, le=2**47, description="Unix time in ms, UTC; to come.")] = None

    @model_validator(mode="after")
    def _says_one(self) -> MuteIn:
        if (self.hours is None) == (self.until_ms is None):
            raise ValueError("give hours or until_ms, and not both")
        return self

    def end_ms(self, now_ms: int) -> int:
        """When it is over."""
        return self.until_ms if self.until_ms is not None else now_ms + round((self.hours or 0) * HOUR_MS)


class ZoneRulesIn(BaseModel):
    """What a zone has of its own, over the rules of its site."""

    model_config = ConfigDict(extra="forbid")

    crop: Annotated[str | None, Field(max_length=64)] = None
    stage: Annotated[str | None, Field(max_length=64)] = None
    changes: dict[str, dict[str, OptionIn]] = {}


class ZoneRulesPatch(ZoneRulesIn):
    """What is to be changed of that; null takes it back, and what the site says holds."""

    changes: dict[str, dict[str, OptionPatch] | None] | None = Field(default_factory=dict)  # type: ignore[assignment]


class RulesIn(BaseModel):
    """All that a site's rules are to be."""

    model_config = ConfigDict(extra="forbid")

    crop: Annotated[str, Field(max_length=64)] = "other"
    stage: Annotated[str, Field(max_length=64)] = "growing"
    changes: Annotated[
        dict[str, dict[str, OptionIn]], Field(description="rule: {option: value}, as a file of rules has them.")
    ] = {}
    zones: Annotated[
        dict[str, ZoneRulesIn] | None, Field(description="What zones have of their own; left out: as it is.")
    ] = None


class RulesPatch(BaseModel):
    """What is to be changed of a site's rules; null takes back an option, what was changed of a rule, or all."""

    model_config = ConfigDict(extra="forbid")

    crop: Annotated[str | None, Field(max_length=64)] = None
    stage: Annotated[str | None, Field(max_length=64)] = None
    changes: dict[str, dict[str, OptionPatch] | None] | None = Field(default_factory=dict)
    zones: dict[str, ZoneRulesPatch | None] = {}


def in_order(alerts: Iterable[ShownAlert]) -> list[ShownAlert]:
    """What needs somebody first: by state, then by severity, then the newest."""
    urgency = {severity: -rank for rank, severity in enumerate(SEVERITIES)}
    return sorted(
        alerts, key=lambda a: (STATES_SHOWN.index(a["state"]), urgency[a["severity"]], -a["changed_ms"], a["id"])
    )


def counted(alerts: Iterable[ShownAlert]) -> AlertCount:
    """How many are in each state."""
    states = [alert["state"] for alert in alerts]
    return cast(AlertCount, {state: states.count(state) for state in get_args(AlertState)})


def rules_answer(
    shown: SiteRulesShown, document: RulesDocument, version: int, reach_h: float, zone: str | None = None
) -> RulesAnswer:
    """The rules that a document means, of the site or in one of its zones; ``shown`` says whose they are, ``reach_h``
    how far ahead they can look.
    """
    here = document if zone is None else document.of_zone(zone)
    usual = {rule.name: rule for rule in rules_for(here.crop, here.stage)}
    inside = {rule.name: rule for rule in here.rules}
    of_site = {rule.name: rule for rule in document.rules}  # one of them that is no crop's may be off in the zone
    named = [*inside.values(), *(rule for name, rule in (of_site | usual).items() if name not in inside)]
    said = document.as_dict()
    zones = said.get("zones", {})
    answer = RulesAnswer(
        site=shown["site"], version=version, changed_ms=shown["changed_ms"], changed_by=shown["changed_by"],
        crop=here.crop, stage=here.stage, zones=zones,
        changes=said["changes"] if zone is None else zones.get(zone, {}).get("changes", {}),
        rules=[_rule(rule, usual, reach_h, off=rule.name not in inside) for rule in named],
        crops=list(CROPS), stages=list(STAGES), toml=document.as_toml(),
    )  # fmt: skip
    if zone is not None:
        answer["zone"] = zone
    return answer


_SAME = (
    "limit", "night_limit", "hysteresis", "for_min", "keep_min", "severity", "lead_h", "chance", "fruit_mm",
    "wet_rh_pct", "base_c", "per_100_j_cm2",
)  # fmt: skip


def _rule(rule: AlertRule, usual: Mapping[str, AlertRule], reach_h: float, *, off: bool) -> RuleShown:
    course, before = COURSES.get(rule.kind), usual.get(rule.name)
    changed = [
        name for name in (*_SAME, "hours", "band_c", "kind") if getattr(before or rule, name) != getattr(rule, name)
    ]
    shown = {
        "name": rule.name, "kind": rule.kind, "off": off, "is_own": before is None, "changed": changed,
        "watches": course.what if course else STATES[rule.kind], "unit": course.unit if course else "",
        "sign": course.sign if course else 0, **{name: getattr(rule, name) for name in _SAME},
        "hours": None if rule.hours is None else [clock_time(minute) for minute in rule.hours],
        "band_c": list(rule.band_c), "lead_h": min(rule.lead_h, reach_h),
    }  # fmt: skip
    return cast(RuleShown, shown)
