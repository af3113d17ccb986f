"""Sentences of the system that the page shows in the words of its message files: none stays half English."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import services.serve
from models.alerts.alert_rule import AlertRule
from models.alerts.facts import unplanned
from models.evaluation.drift import Drifted
from models.features.sensor_faults import SensorFault
from services.serve.health import readiness
from services.store.rows import UnitFault

WORDS = Path(services.serve.__file__).parent / "page" / "words"
ENGLISH = re.compile(
    r"\b(is|are|since|above|below|planned|silent|stuck|spikes|usual|times|errors|before|sample|looks|send|to|of|the|no)\b"
)
PLAN = AlertRule(name="plan", kind="plan_not_followed", limit=1.0)


def drifted(signal: str, before: float, after: float, *, is_error: bool, zone: str = "", unit: str = "") -> str:
    found = Drifted("s", 0 if zone else None, signal, is_error, 0, before, after)
    return found.words("2024-03-09 13:00", zone, unit)


SENTENCES = [
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
    UnitFault("z1", "climate", "rh_pct", True, 0.62, 0.71, 0).words(),
    UnitFault("z1", "climate", "air_temp_c", False, 62.0, 71.0, 0).words(),
    "; ".join(
        fact.words
        for fact in unplanned(
            PLAN,
            {"sp_heat_c": np.array([15.0]), "sp_lamp_pct": np.array([0.0])},
            {"sp_heat_c": np.array([18.04]), "sp_lamp_pct": np.array([100.0])},
            300,
            300,
        ).values()
    ),
    *(readiness({}, 0, answers, ready=False, awaited="")["reasons"][0] for answers in (True, False)),
]  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("language", ["nl", "es"])
def test_no_sentence_stays_half_english(language: str, sentence: str) -> None:
    said = sentence
    for pattern, instead in json.loads((WORDS / f"{language}.json").read_text())["reasons"]:
        said = re.sub(pattern, re.sub(r"\$(\d)", r"\\\1", instead), said)
    assert said != sentence
    # "is" and "no" are also words of Dutch and Spanish.
    assert set(ENGLISH.findall(said)) <= {"nl": {"is"}, "es": {"no"}}[language], said


def test_what_is_not_as_planned_has_units() -> None:
    assert SENTENCES[-3] == "sp_heat_c is 15.0 °C, planned 18.0 °C; sp_lamp_pct is 0 %, planned 100 %"
