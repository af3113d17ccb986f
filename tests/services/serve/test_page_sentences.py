"""Sentences of the system have codes, by which the page shows them in the words of its message files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from string import Formatter
from sys import getrefcount
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import services.serve
from models.alerts.alert_rule import AlertRule
from models.alerts.alert_words import NAMES
from models.alerts.facts import unplanned
from models.effects.effect_inputs import STATE
from models.effects.effect_network import EffectNetwork
from models.effects.effect_support import _beyond, _strange, _unknown, _untried, vague
from models.effects.plan_change import PlanChange
from models.effects.situation import EFFECT_TARGETS
from models.evaluation.drift import Drifted
from models.features.sensor_faults import SensorFault
from models.spec import ForecastSpec
from services.learn.loop.schedule import Every
from services.learn.loop.triggers import NewData, Trigger, Triggers
from services.learn.promotion.shadow_capacity import wait_of
from services.messages import ModelRow, ShownAlert, ZoneOutlook
from services.messages.sentences import CODES, codes_of, with_codes
from services.serve.api.predict_parameters import Event, _said
from services.serve.components import Figures
from services.serve.health import awaited, readiness
from services.store.rows import UnitFault
from tests.models.effects.situations import situation

WORDS = Path(services.serve.__file__).parent / "page" / "words"
ROOT = Path(services.serve.__file__).parents[2]
PLAN = AlertRule(name="plan", kind="plan_not_followed", limit=1.0)


def drifted(signal: str, before: float, after: float, *, is_error: bool, zone: str = "", unit: str = "") -> str:
    found = Drifted("s", 0 if zone else None, signal, is_error, 0, before, after)
    return found.words("2024-03-09 13:00", zone, unit)


def triggers(
    days: float = 0.0, every: Every | None = None, *, has_model: bool = True, days_of: str = "history"
) -> Triggers:
    found = Triggers(every, cool_down_s=60.0, min_days=2.0, now_s=0.0, rows=900, days=days, days_of=days_of)
    found.has_model = has_model
    return found


def failed(times: int) -> str:
    found = triggers(3.0)
    for _ in range(times):
        found.started(0.0, "schedule")
        found.ended(0.0, failed=True)
    return found.failed_words(1.0)


def started(found: Triggers, news: NewData) -> str:
    return cast(Trigger, found.due(0.0, 7.0, news)).reason


def in_shadow(places: int, count: int) -> str:
    """What the next training waits for, with so many challengers in shadow."""
    shadow, known = {"against": "v1", "from_ms": 0, "until_ms": 100}, {"known_to_ms": 20, "to_ms": 0}
    rows: list[dict[str, object]] = [{"version": "v1", "stage": "champion", "shadow": None}]
    rows += [{"version": f"v{2 + n}", "stage": "shadow", "shadow": shadow, "trained_on": known} for n in range(count)]
    wait = wait_of(cast(list[ModelRow], rows), places)
    assert wait is not None
    return wait.why


def waits(**figures: object) -> str:
    """What a first forecast waits for, with these figures of the shard."""
    usual = {"samples": 1200, "accepted": 1200, "zone_rows": 0, "stream_ms": {"demo": 1646092930000}}
    return awaited({"shard-0": cast(Figures, usual | figures)})


AWAITED = [
    awaited({}),
    waits(behind=True, backlog=12_000),
    waits(accepted=0),
    *(waits(first_rows=[{"site": "demo", "closes_ms": 1646092930000 + ms}]) for ms in (0, 200_000)),
    waits(),
    *(waits(zone_rows=1500, zones=zones) for zones in (0, 2)),
]
TRAININGS = [
    *(triggers(3.0, has_model=has_model).next_words for has_model in (False, True)),
    triggers(3.0, has_model=False, days_of="recorded forecasts").next_words,
    triggers(every=Every(21_600.0, 0.0)).next_words,
    triggers().next_words,
    "one is under way",
    *(f"now: v1; and none begins before: {failed(times)}" for times in (1, 2)),
    *(f"in 2 h: {in_shadow(*found)}" for found in ((1, 1), (2, 1), (2, 2), (3, 3), (4, 1))),
    started(triggers(3.0, has_model=False), NewData()),
    started(triggers(3.0, has_model=False, days_of="recorded forecasts"), NewData()),
    started(triggers(3.0), NewData(days=3.2)),
    started(triggers(), NewData(rows=1234)),
]

UNPLANNED = "; ".join(
    fact.words
    for fact in unplanned(
        PLAN,
        {"sp_heat_c": np.array([15.0]), "sp_lamp_pct": np.array([0.0])},
        {"sp_heat_c": np.array([18.04]), "sp_lamp_pct": np.array([100.0])},
        300,
        300,
    ).values()
)

ANY = PlanChange("sp_heat_c", "add", 15, 0, 300)
BLIND = replace(situation(1), day=np.full_like(situation(1).day, np.nan))
NOWHERE = SimpleNamespace(arrays={name: np.zeros(len(STATE)) for name in ("state_low", "state_high")})
# What the page asks: one change, in a way that was tried.
WHAT_IF = [
    *_untried([PlanChange("fog_pct", "set", 50, 0, 300)]),
    *_untried([replace(ANY, end_min=10)]),
    *_unknown(replace(BLIND, path=np.full_like(BLIND.path, np.nan))),
    *_strange(np.ones((3, len(STATE)), np.float32), cast(EffectNetwork, NOWHERE)),
    *_beyond(situation(1), PlanChange("sp_lamp_pct", "set", 100, 0, 300)),
    *_beyond(situation(1), ANY),
    *vague(np.tile(np.float32([-2000.0, -4.0, 2000.0]), (1, len(EFFECT_TARGETS), 1))),
]

ONE_TARGET = cast(ForecastSpec, SimpleNamespace(targets=("air_temp_c",), step_ms=300_000))


def missing(event: str, **extremes: object) -> str:
    """Why nothing is said of a night or a day."""
    outlook = cast(ZoneOutlook, {"origin_ms": 0, "steps": np.array([1, 2]), "extremes": extremes})
    return cast(str, _said(Event(event), "air_temp_c", outlook, ONE_TARGET)["missing"])


UNSEEN = {"first": 1, "last": 1, "values": np.zeros((3, 1)), "past": np.zeros((0, 1))}

SENTENCES = [
    *(missing(event) for event in ("night", "day")),
    missing("night_below", night=UNSEEN),
    missing("day_above", day=UNSEEN),
    *(
        SensorFault(0, "rh_pct", kind, 7, size).words("02:10", "%")
        for kind in ("stuck", "spike", "offset", "drop_out")
        for size in (-4.2, 71.3)
    ),
    *(
        drifted("out_rh_pct", 0.0, size, is_error=False, zone=zone, unit="%")
        for size in (-5.9, 6.0)
        for zone in ("", "n1")
    ),
    *(drifted("air_temp_c", 1.0, 2.1, is_error=True, zone=zone) for zone in ("", "n1")),
    f"input drift at demo: {drifted('out_rh_pct', 0.0, -5.9, is_error=False, unit='%')}",
    UnitFault("z1", "climate", "rh_pct", True, 0.62, 0.71, 0).words(),
    UnitFault("z1", "climate", "air_temp_c", False, 62.0, 71.0, 0).words(),
    UNPLANNED,
    *(readiness({}, 0, answers, ready=False, awaited=awaited({}))["reasons"][0] for answers in (True, False)),
    *AWAITED,
    *TRAININGS,
    *WHAT_IF,
]  # fmt: skip


def messages(language: str) -> dict[str, str]:
    files = [json.loads((WORDS / f"{language}{part}.json").read_text()) for part in ("", ".what_if", ".models")]
    return {key.removeprefix("because."): text for file in files for key, text in file.items() if "because." in key}


def unread(sentence: str) -> list[str]:
    """The parts of a sentence that have no code."""
    codes = codes_of([sentence])
    if (known := codes.get(sentence)) is not None:
        return unread(str(known["values"]["why"])) if "why" in known["values"] else []
    parts = sentence.split("; ")
    return [one for part in parts for one in unread(part)] if len(parts) > 1 else [sentence]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_each_sentence_has_a_code(sentence: str) -> None:
    """So do all parts of one that is made of several; a name, as of a version, has none."""
    assert [one for one in unread(sentence) if " " in one] == []


def test_values_are_numbers_and_seconds() -> None:
    """A program reads them as they are meant, whatever the words of the sentence."""
    codes = codes_of(["rh_pct: last reading 1.5 h before the origin", UNPLANNED, *AWAITED])
    assert codes["rh_pct: last reading 1.5 h before the origin"]["values"] == {"metric": "rh_pct", "age_s": 5400.0}
    assert codes["sp_heat_c is 15.0 °C, planned 18.0 °C"] == {
        "code": "not_as_planned", "values": {"metric": "sp_heat_c", "value": 15.0, "unit": "°C", "planned": 18.0},
    }  # fmt: skip
    assert codes["the log is read, 12,000 records wait"]["values"] == {"count": 12000.0}


WRITTEN = {known["code"] for known in codes_of(SENTENCES).values()}
SOURCES = [*(ROOT / "models").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
SOURCE = re.sub(r'"\s*f?"', "", " ".join(one.read_text() for one in SOURCES if one.name != "sentences.py"))


@pytest.mark.parametrize("code", [code for code in CODES if code not in WRITTEN])
def test_other_forms_are_what_some_module_writes(code: str) -> None:
    """Of sentences that are not made here: the longest piece stands in a module, so that it changes here, too."""
    form = re.sub(r"\(\?:.*?\)", "{}", CODES[code])
    pieces = [piece.strip() for text, *_ in Formatter().parse(form) for piece in re.split("[:;.]", text)]
    assert max(pieces, key=len) in SOURCE


def test_the_page_has_words_for_each_code() -> None:
    """In each language, with no value that the sentence has not; of a form with a side, for either."""
    for language in ("en", "nl", "es"):
        said = messages(language)
        of_codes = {key.partition(".")[0] for key in said}
        assert of_codes - {"of"} == CODES.keys() - {"few_days"}  # the page asks for no limit of a day
        for key, text in said.items():
            code, _, side = key.partition(".")
            wanted = set(re.findall(r"\{(\w+)\}", text)) - {"of", "zone"}
            assert wanted <= set(re.findall(r"\{(\w+)\}", CODES.get(code, ""))), (language, key)
            assert ("{side}" in CODES.get(code, "")) == bool(side) or code == "sensor_spikes", key


def test_what_quotes_a_client_is_read_as_a_whole_and_not_without_end() -> None:
    """A path that is asked for may hold thousands of parts."""
    assert codes_of(["there is nothing at /x; by no schedule"], with_parts=False) == {}
    long = f"there is no zone {'x' * 2000}; known are n1"
    held = getrefcount(long)
    assert codes_of([long]) == {}
    assert getrefcount(long) == held, "a thousand of them, of megabytes each, would be kept"


def test_no_sentence_is_an_error() -> None:
    """What an earlier release or another program wrote is close to a form, and is none."""
    assert codes_of(["in 1.2.3 s: by no schedule", "nothing has come from this site for . s"]) == {}


def test_a_fact_of_an_alert_has_its_code() -> None:
    """Beside its sentence; one that an earlier release wrote in other words has none."""
    facts = [{"name": "fact", "label": words, "value": None, "unit": ""} for words in ("no sample since 02:10", "odd")]
    first, second = with_codes(cast(ShownAlert, {"why": facts}))["why"]
    assert (first["code"], first["values"], first["label"]) == (
        "no_sample",
        {"since": "02:10"},
        "no sample since 02:10",
    )
    assert "code" not in second


def test_what_is_not_as_planned_has_units() -> None:
    assert UNPLANNED == "sp_heat_c is 15.0 °C, planned 18.0 °C; sp_lamp_pct is 0 %, planned 100 %"


def test_a_mail_and_the_page_call_what_is_warned_of_the_same() -> None:
    """Who reads both need not guess whether two alerts are one."""
    words = json.loads((WORDS / "en.json").read_text())
    assert {kind: words[f"alert.kind.{kind}"] for kind in NAMES} == NAMES
