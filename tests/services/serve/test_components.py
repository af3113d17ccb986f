"""What components show is what their structures say, and each metric has one meaning."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from edge.clock import WallClock
from edge.figure_fields import Figure, figures_of, readings
from edge.gateway import Gateway, GatewayOptions
from edge.log.memory import MemoryLog
from edge.mqtt.connection import MqttAddress
from services import ingest
from services.ingest.figures import DEAD_LETTERS, ShardFigures
from services.learn.learning_status import LearningStatus
from services.messages import GatewayFigures, LearningFigures
from services.serve.components import COMPONENTS, SHOWN_ON_METRICS, ApiFigures
from tests.services.ingest.rig import Rig, day, filled


def shown_by_a_shard(folder: Path) -> object:
    """Figures of a shard that has read a day."""
    rig = Rig(folder, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    return shard.stats()


def shown_by_a_retrainer(folder: Path) -> object:
    """Figures of a learning loop in which something ran."""
    status = LearningStatus(None, list, lambda: 0, lambda: (1.25, "soon"))  # type: ignore[arg-type]
    status.last_run = {"kind": "time", "reason": "it is time", "started_ms": 5, "ended_ms": 7, "result": "failed"}
    return status.status()


def shown_by_a_gateway(folder: Path) -> object:
    """Figures of a gateway that was never connected, as who keeps it shows them."""
    gateway = Gateway(GatewayOptions(broker=MqttAddress(host="127.0.0.1", port=1)), MemoryLog(1), WallClock())
    return {**gateway.status(), "restarts": 1, "error": ""}


@pytest.mark.parametrize(
    ("shown", "structure"),
    [
        (shown_by_a_shard, ShardFigures),
        (shown_by_a_retrainer, LearningFigures),
        (shown_by_a_gateway, GatewayFigures),
    ],
)
def test_each_component_shows_its_structure(shown, structure: type, tmp_path: Path) -> None:
    """No field is missing, none is more, and each is of its type, also when it was JSON meanwhile."""
    figures = json.loads(msgspec.json.encode(shown(tmp_path)))
    assert set(figures) == set(get_type_hints(structure))
    msgspec.convert(figures, structure, str_keys=True)


@pytest.mark.parametrize(
    ("shown", "structure"),
    [
        (lambda folder: Rig(folder, filled([])).shard().stats(), ShardFigures),
        (lambda folder: LearningStatus(None, list, lambda: 0).status(), LearningFigures),  # type: ignore[arg-type]
        (shown_by_a_gateway, GatewayFigures),
    ],
)
def test_each_counter_is_there_before_its_first_event(shown, structure: type, tmp_path: Path) -> None:
    """`increase()` and `rate()` do not see a series that begins with what happened: its first burst would be missed."""
    found: dict[str, list[float]] = {}
    for figure, _, number in readings(structure, shown(tmp_path)):
        found.setdefault(figure.name, []).append(number)
    counters = {figure.name for figure in figures_of(structure).values() if figure.kind == "counter"}
    assert counters - found.keys() == set()
    assert {name for name in counters & found.keys() if any(found[name])} <= {"hothouse_gateway_restarts_total"}


def test_each_reason_of_a_dead_letter_is_known_from_the_start() -> None:
    """Those that the ingest itself gives, too."""
    sources = [path.read_text() for path in Path(ingest.__path__[0]).rglob("*.py")]
    given = {found for text in sources for found in re.findall(r'topic, "(\w+)",|return "(?=too_many)(\w+)"', text)}
    assert len(given) == 6
    assert {reason for pair in given for reason in pair if reason} <= set(DEAD_LETTERS)


def test_each_metric_is_declared_once() -> None:
    """A name that two fields had would add up what is not the same; ends of certificates nobody adds up, and their
    label says whose.
    """
    declared: list[Figure] = [
        figure for structure in (ApiFigures, *COMPONENTS.values()) for figure in figures_of(structure).values()
    ]
    names = [figure.name for figure in declared]
    assert len(names) > 50
    assert {name for name in names if names.count(name) > 1} == {"hothouse_certificate_end_timestamp_seconds"}


def test_what_is_called_an_error_is_a_sentence() -> None:
    """`error` and `last_error` of a component are told as what fails now: a figure by that name would be told, too."""
    for kind in SHOWN_ON_METRICS.values():
        for path, figure in figures_of(kind).items():
            assert path[-1] not in ("error", "last_error") or figure.labels == (), f"{kind.__name__}.{'.'.join(path)}"
