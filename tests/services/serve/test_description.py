"""The API answers as its description says, whatever it is asked: made-up requests from the description itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from services.serve.api.app import create_app
from services.serve.api.routes import rule_routes
from tests.services.serve.system import OPERATOR
from tests.services.serve.whole_system import whole_system

CHECKS = [
    getattr(schemathesis.checks, name)
    for name in (
        "status_code_conformance", "content_type_conformance", "response_headers_conformance",
        "response_schema_conformance", "unsupported_method", "allow_header_conformance",
    )
]  # fmt: skip
"""Not: that what the description allows is accepted. It cannot say which zones and metrics there are."""


@pytest.fixture
def schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The description of a whole system, which has no rules of a version to come."""
    monkeypatch.setattr(rule_routes, "TAKEN_S", 0)
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(whole_system(tmp_path).state))


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
