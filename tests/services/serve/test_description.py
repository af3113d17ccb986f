"""The API answers as its description says, whatever it is asked: made-up requests from the description itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from services.learn.records import row_of
from services.messages import ModelSubmitted, Moved, TrainingAccepted
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.routes import rule_routes
from services.store.history import History
from services.store.rows import SiteStep
from tests.services.ingest.rig import Rig, day, filled
from tests.services.serve.fakes import ORIGIN_MS, SPEC, FakeBackend
from tests.services.serve.system import OPERATOR, System

ANSWERS = {
    "trigger": TrainingAccepted(accepted=True, reason="operator"), "rollback": Moved(version="v1", before="v2"),
    "promote": Moved(version="v2", before="v1"), "submit": ModelSubmitted(accepted=True, version="v3", against="v2"),
}  # fmt: skip
CHECKS = [
    getattr(schemathesis.checks, name)
    for name in (
        "status_code_conformance", "content_type_conformance", "response_headers_conformance",
        "response_schema_conformance", "unsupported_method", "allow_header_conformance",
    )
]  # fmt: skip
"""Not: that what the description allows is accepted. It cannot say which zones and metrics there are."""


class Answering(FakeBackend):
    """Orders are answered as the retrainer does."""

    async def order(self, verb: str, *arguments: str) -> Any:
        return ANSWERS[verb]


def whole_system(folder: Path) -> System:
    """A system with zones, rows, a model and a shard that shows all its figures; reading needs a key."""
    rig = Rig(folder / "shard", filled(list(day(2))))
    shard = rig.shard()
    rig.drain(shard)
    system = System(Keys("op-key", "read-key"), published=False)
    system.backend = system.state.backend = Answering(system.live_state)
    history = system.backend.history = History(folder, SPEC.channels)
    row = np.float32([[1, 50, 400, np.nan]])
    history.add([SiteStep(0, "demo", ORIGIN_MS - n * 300_000, ("north-1",), row, row * 0, []) for n in range(10)])
    history.flush()
    system.fill()

    async def show() -> None:
        await system.live_state.put_stats("shard-0", shard.stats())
        model = row_of(SimpleNamespace(version="1", tags={}, creation_timestamp=ORIGIN_MS), ["champion"])
        await system.live_state.set_models([model])
        await system.state._take(await system.live_state.wait(0, 0))

    asyncio.run(show())
    system.state.start = system.state.stop = nothing  # type: ignore[method-assign]  # what is shown is all that comes
    return system


@pytest.fixture
def schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The description of a whole system, which has no rules of a version to come."""
    monkeypatch.setattr(rule_routes, "TAKEN_S", 0)
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(whole_system(tmp_path).state))


async def nothing() -> None:
    """Follow no live state."""


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("headers", [OPERATOR, {}, {"Authorization": "Bearer no"}])
@pytest.mark.thorough
def test_each_call_answers_as_it_says(schema: Any, mode: GenerationMode, headers: dict[str, str]) -> None:
    """With a key, without, and with a wrong one: no undocumented status, content type, header or field, and no
    server error but a documented 503.
    """
    each = 25 if headers == OPERATOR else 10  # without a right key most answers are a 401, whatever is asked
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 15
    asked = 0
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body or operation.path_parameters):
            continue  # nothing can be wrong about it

        @settings(max_examples=each, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def answers(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            answer = case.call_and_validate(headers=headers, checks=CHECKS)
            assert answer.status_code in (200, 202, 401, 403, 404, 405, 409, 412, 413, 422, 503), answer.status_code

        answers()
    assert asked > 15 * each / 2
