"""Requests to the API have an id: the client's where it sends one, in the answer, in the log and in the span."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from services.observe.logs import log_to_file
from services.observe.spans import Spans
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState
from tests.services.serve.fakes import ORIGIN_MS, SPEC, FakeBackend

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TOLD = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-0([01])")


class Api:
    """An API without a zone, and what became of its requests."""

    def __init__(self, share: float | None = 1.0) -> None:
        self._taken = InMemorySpanExporter()
        self._spans = None if share is None else Spans(self._taken, {}, share)
        backend = FakeBackend(LiveState(1000, lambda: ORIGIN_MS))
        self.state = ApiState(backend, Keys("op-key"), SPEC, stale_after_s=1800, spans=self._spans)
        self.client = TestClient(create_app(self.state), raise_server_exceptions=False)

    def get(self, url: str, sent: str = "") -> tuple[Any, tuple[str, ...]]:
        """The answer, and the ids and the flag that it says."""
        answer = self.client.get(url, headers={"traceparent": sent} if sent else {})
        found = TOLD.fullmatch(answer.headers["traceresponse"])
        assert found is not None
        return answer, found.groups()

    def spans(self) -> list[ReadableSpan]:
        assert self._spans is not None
        self._spans.close()
        return list(self._taken.get_finished_spans())


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.client.close()


def test_a_clients_trace_goes_on(api: Api) -> None:
    """Its id is the request's, and its span the parent; the route is told as it is written in the code."""
    _, (trace_id, span_id, sampled) = api.get("/predict?zones=a,b&site=secret-key", f"00-{TRACE}-{PARENT}-01")
    [span] = api.spans()
    assert (trace_id, sampled) == (TRACE, "1")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.context.span_id:016x}" == span_id
    assert f"{span.parent.span_id:016x}" == PARENT
    assert (span.name, span.kind) == ("GET /predict", SpanKind.SERVER)
    assert span.attributes == {
        "http.request.method": "GET", "http.route": "/predict", "http.response.status_code": 200, "hothouse.zones": 2,
    }  # fmt: skip


@pytest.mark.parametrize("sent", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"])
def test_without_a_trace_there_is_a_new_one(api: Api, sent: str) -> None:
    """Also where what came is no id, as the standard says; each request has its own."""
    answers = [api.get("/health/live", sent)[1] for _ in range(2)]
    first, second = api.spans()
    assert [answer[0] for answer in answers] == [f"{span.context.trace_id:032x}" for span in (first, second)]
    assert first.parent is None
    assert len({TRACE, *(answer[0] for answer in answers)}) == 3


def test_who_does_not_trace_is_not_traced(api: Api) -> None:
    """The client's flag holds, both ways; the share is of requests without one."""
    assert api.get("/health/live", f"00-{TRACE}-{PARENT}-00")[1][2] == "0"
    assert api.spans() == []
    none = Api(share=0.0)
    assert none.get("/health/live")[1][2] == "0"
    assert none.get("/health/live", f"00-{TRACE}-{PARENT}-01")[1][2] == "1"
    assert [f"{span.context.trace_id:032x}" for span in none.spans()] == [TRACE]


def test_a_defect_is_found_by_the_id_of_its_answer(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lines that the application writes carry it, too; the span says that it failed."""

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(api.state, "readiness", fails)
    end = log_to_file(tmp_path, "api", "json")
    answer, (trace_id, *_) = api.get("/health/ready")
    end()
    said = (tmp_path / "api.log").read_text().splitlines()
    assert answer.status_code == 500
    assert len(said) == 2
    assert all(f'"trace_id": "{trace_id}"' in line for line in said)
    [span] = api.spans()
    assert (span.status.status_code, span.attributes["http.response.status_code"]) == (StatusCode.ERROR, 500)


def test_without_a_collector_the_id_is_there_all_the_same() -> None:
    """For logs; the flag says that no span is kept."""
    api = Api(share=None)
    assert api.get("/health/live", f"00-{TRACE}-{PARENT}-00")[1][0] == TRACE
    assert api.get("/nothing/there")[1][2] == "0"
