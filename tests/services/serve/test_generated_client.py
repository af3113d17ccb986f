"""A client that is generated from the API's description asks the API, and has types for what it is answered."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

from services.serve.api.app import create_app
from tests.services.serve.fakes import alert
from tests.services.serve.system import System
from tests.services.serve.whole_system import whole_system

PACKAGE = "hothouse_client"
DOCS = Path(__file__).parents[3] / "docs" / "api.md"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A whole system, with an alert; reading needs a key."""
    made = whole_system(tmp_path_factory.mktemp("system"))

    async def warn() -> None:
        await made.live_state.put_alerts([alert("a1")])
        await made.state._take(await made.live_state.wait(0, 0))

    asyncio.run(warn())
    made.client = TestClient(create_app(made.state))
    yield made
    made.client.close()


@pytest.fixture(scope="module")
def package(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The generated package, which can be imported; nobody generates it with a word of complaint."""
    folder = tmp_path_factory.mktemp("generated")
    described = folder / "openapi.json"
    described.write_text(json.dumps(create_app(system.state).openapi()))
    wanted = ConfigFile(post_hooks=[])
    config = Config.from_sources(wanted, MetaType.NONE, described, "utf-8", True, folder / PACKAGE)
    complaints = generate(config=config)
    assert [f"{one.header}: {one.detail}" for one in complaints] == []
    sys.path.insert(0, str(folder))
    yield folder / PACKAGE
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def made(name: str) -> Any:
    """A module of the generated package."""
    return importlib.import_module(f"{PACKAGE}.{name}")


@pytest.fixture
def client(package: Path, system: System) -> Any:
    """The generated client with a reader's key, on the application itself."""
    return of(system, "read-key")


def of(system: System, key: str) -> Any:
    """The generated client with a key, or without one."""
    kind = made("client")
    client = kind.AuthenticatedClient("http://testserver", token=key) if key else kind.Client("http://testserver")
    system.client.headers = {"Authorization": f"Bearer {key}"} if key else {}
    return client.set_httpx_client(system.client)


def test_it_asks_what_the_readme_asks(client: Any) -> None:
    """A zone's forecast, by its fields; and which zones there are, in which unit."""
    forecast = made("api.forecasts.predict").sync(client=client, zone="north-1")
    assert isinstance(forecast, made("models").ForecastAnswer)
    points = forecast.forecasts["air_temp_c"]
    assert points[0].p10 < points[0].p50 < points[0].p90
    assert datetime.fromisoformat(points[0].time).tzinfo is not None
    assert len(forecast.path.targets["air_temp_c"]["p50"]) == len(forecast.path.horizon_min)
    zones = made("api.forecasts.list_zones").sync(client=client)
    assert [(one.site, one.zone, one.stale) for one in zones.zones] == [
        ("demo", "north-1", False), ("demo", "north-2", False),
    ]  # fmt: skip
    assert zones.units["air_temp_c"] == "°C"


def test_the_lines_of_the_documentation_run(
    client: Any, system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they stand in docs/api.md; only the connection is that of the test."""
    (lines,) = re.findall(r"```python\n(from hothouse_client.*?)```", DOCS.read_text(), re.DOTALL)
    monkeypatch.setattr(made("client").Client, "get_httpx_client", lambda _: system.client)
    exec(lines, {})
    said = system.client.get("/predict?zone=north-1").json()["forecasts"]["air_temp_c"][0]["p50"]
    assert capsys.readouterr().out == f"{said}\n"


def test_it_asks_for_events_and_for_several_zones(client: Any) -> None:
    """Tonight's minimum by its members; a zone that is not there is a problem with a status."""
    forecast = made("api.forecasts.predict").sync(client=client, zone="north-1", targets="air_temp_c", events="night")
    (night,) = forecast.events
    assert (night.event, night.target) == ("night", "air_temp_c")
    assert night.p10 <= night.p50 <= night.p90
    assert night.from_
    several = made("api.forecasts.predict").sync(client=client, zones="north-2,attic")
    assert isinstance(several, made("models").ForecastsAnswer)
    assert [one.zone for one in several.zones] == ["north-2"]
    assert [(one.zone, one.status) for one in several.problems] == [("attic", 404)]


def test_it_asks_what_if(client: Any) -> None:
    """With the change as a structure, and the answer's evidence."""
    models = made("models")
    question = models.WhatIf(
        zone="north-1", changes=[models.ChangeIn(metric="sp_heat_c", add=-1.5, from_="22:00", to="04:00")]
    )
    answer = made("api.forecasts.what_if").sync(client=client, body=question)
    assert isinstance(answer, models.WhatIfAnswer)
    assert answer.support == "simulated"
    assert answer.effect.targets["air_temp_c"]["p50"]


def test_a_refusal_is_a_problem_with_its_sentence(client: Any, system: System) -> None:
    """Also where a key is missing, or does not allow an order."""
    models = made("models")
    refused = made("api.forecasts.predict").sync_detailed(client=client, zone="attic")
    assert (refused.status_code, type(refused.parsed)) == (404, models.Problem)
    assert "there is no zone attic" in refused.parsed.detail
    assert refused.parsed.zones == ["demo/north-1", "demo/north-2"]
    retrain = made("api.models.retrain")
    for key, status in (("read-key", 403), ("", 401), ("op-key", 202)):
        assert retrain.sync_detailed(client=of(system, key)).status_code == status


def test_every_answer_fits_its_class_whole(client: Any, system: System) -> None:
    """What a route answers becomes objects and the same JSON again: no field is unknown, none has another type."""
    described = create_app(system.state).openapi()["paths"]
    fill = {"zone": "north-1", "id": "a1"}
    seen = []
    for path, methods in described.items():
        answers = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        schema = answers.get("application/json", {}).get("schema")
        if schema is None:
            continue
        asked = {"zone": "north-1"} if path in ("/predict", "/history", "/quality") else {}
        answer = system.client.get(path.format(**fill), params=asked)
        if answer.status_code != 200:  # nothing was forecast, or kept, of which it could tell
            continue
        names = [one["$ref"].rpartition("/")[2] for one in schema.get("anyOf", [schema])]
        kind = getattr(made("models"), names[0])
        found = kind.from_dict(answer.json())
        assert found.to_dict() == answer.json(), path
        if names[0] != "StatusAnswer":  # its parts are told apart by their names
            assert foreign(found) == [], path
        seen.append(path)
    assert len(seen) >= 12, seen


def foreign(found: Any) -> list[str]:
    """Fields of an object, or of what is in it, that its class does not know."""
    if isinstance(found, list):
        return [name for one in found for name in foreign(one)]
    if not hasattr(found, "additional_properties"):
        return []
    own = {name: value for name, value in vars_of(found).items() if name != "additional_properties"}
    extra = list(found.additional_properties) if own else []  # a table has nothing else
    inside = [*own.values(), *found.additional_properties.values()]
    return [*extra, *(name for one in inside for name in foreign(one))]


def vars_of(found: Any) -> dict[str, Any]:
    """Its fields."""
    return {one.name: getattr(found, one.name) for one in type(found).__attrs_attrs__}


def test_no_schema_allows_anything(system: System) -> None:
    """A schema without a word is a field without a type in every client."""
    found: list[str] = []

    def look(node: Any, path: str) -> None:
        if isinstance(node, list):
            for index, one in enumerate(node):
                look(one, f"{path}/{index}")
        elif isinstance(node, dict) and path.rpartition("/")[2] not in ("example", "examples", "default", "security"):
            if path.rpartition("/")[2] == "schema" and not node:
                found.append(path)
            if node == {"type": "object"} or (node.get("additionalProperties") is True and "properties" not in node):
                found.append(path)
            for name, one in node.items():
                look(one, f"{path}/{name}")

    described = create_app(system.state).openapi()
    look(described, "")
    assert found == []
    for path, methods in described["paths"].items():
        for method, call in methods.items():
            for status, said in call["responses"].items():
                typed = [one for kind, one in said.get("content", {}).items() if kind != "text/event-stream"]
                assert all("schema" in one for one in typed), (path, method, status)
