"""Who may ask the application: keys, and pages of other addresses."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from services.access_keys import AccessKeys
from services.errors import ConfigError
from services.serve.api.app import create_app
from services.serve.api.auth import HashedKey, Keys
from tests.services.serve.system import OPERATOR, System, assert_problem

ASK_FOR_A_ZONE = ("/alerts/scores", "/predict", "/history")


def test_a_body_is_read_for_who_may_send_it_alone() -> None:
    """Of each described call with one; what follows costs the time of all who ask."""
    system = System(Keys("op-key", "read-key", read_needs_key=True))
    described = system.client.get("/openapi.json").json()["paths"]
    calls = [(m, path) for path, methods in described.items() for m, call in methods.items() if "requestBody" in call]
    assert len(calls) >= 6
    for method, path in calls:
        at, json_of = path.format(zone="north-1", id="a1"), {"Content-Type": "application/json"}
        broken = {"content": b"{", "headers": json_of}
        assert_problem(system.client.request(method, at, **broken), 401, "needs a key")
        reader = {**broken, "headers": {**json_of, "Authorization": "Bearer read-key"}}
        said = (422, "not JSON") if path == "/predict" else (403, "does not allow")
        assert_problem(system.client.request(method, at, **reader), *said)
        operator = {**broken, "headers": {**json_of, **OPERATOR}}
        assert_problem(system.client.request(method, at, **operator), 422, "not JSON")
        form = {"content": b"{}", "headers": {"Content-Type": "application/x-www-form-urlencoded", **OPERATOR}}
        says = "send the header 'Content-Type: application/json'"  # as curl -d sends it without one
        assert_problem(system.client.request(method, at, **form), 422, says)
    system.client.close()


def test_orders_need_the_operators_key(system: System) -> None:
    """401 without a key, 403 with a wrong one; the right one reaches the retrainer."""
    wrong = system.client.post("/models/v2/promote", headers={"Authorization": "Bearer nope"})
    assert_problem(wrong, 403, "does not allow")
    assert wrong.headers.get("www-authenticate") is None
    assert system.client.post("/models/retrain").headers["www-authenticate"] == "Bearer"
    assert system.client.post("/models/retrain", headers=OPERATOR).status_code == 202
    assert system.client.post("/models/v2/promote", headers=OPERATOR).json() == {"done": "promote"}
    assert system.client.post("/models/rollback?leave=v2", headers=OPERATOR).status_code == 200
    assert system.client.post("/models/rollback?expert=trees", headers=OPERATOR).status_code == 200
    assert system.client.post("/models/retrain?expert=trees", headers=OPERATOR).status_code == 202
    assert system.client.post("/models/online/promote?expert=trees", headers=OPERATOR).status_code == 200
    assert system.backend.orders == [
        ("trigger", "operator", "network"), ("promote", "v2", "network"), ("rollback", "network", "v2"),
        ("rollback", "trees", ""), ("trigger", "operator", "trees"), ("promote", "online", "trees"),
    ]  # fmt: skip
    assert_problem(system.client.post("/models/rollback?expert=oracle", headers=OPERATOR), 422, "query.expert")


def test_reading_may_need_a_key_too() -> None:
    """With a readers' key /predict wants it or the operator's; health stays open."""
    system = System(Keys("op-key", "read-key"))
    assert_problem(system.client.get("/predict?zone=north-1"), 401, "needs a key")
    for key in ("read-key", "op-key"):
        headers = {"Authorization": f"Bearer {key}"}
        assert system.client.get("/predict?zone=north-1", headers=headers).status_code == 200
    reader = {"Authorization": "Bearer read-key"}
    assert_problem(system.client.post("/models/retrain", headers=reader), 403, "does not allow this order")
    assert system.client.get("/health/live").status_code == 200


def test_a_readers_key_guards_all_data_and_no_file_of_the_page() -> None:
    """The page must come without a key, for it asks for one; whatever it then shows needs it."""
    system = System(Keys("op-key", "read-key"))
    for path in ("/", "/docs", "/page/app.js", "/page/views/zone.js", "/page/words/nl.json", "/openapi.json"):
        assert system.client.get(path).status_code == 200
    described = system.client.get("/openapi.json").json()["paths"]
    reading = [path for path, methods in described.items() if "get" in methods and not path.startswith("/health/")]
    assert len(reading) >= 6
    for path in reading:
        for headers, status in (({}, 401), ({"Authorization": "Bearer no"}, 403)):
            assert_problem(system.client.get(path, params={"zone": "north-1"} if path in ASK_FOR_A_ZONE else {},
                                             headers=headers), status, "reading")  # fmt: skip


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b" \n", "is empty"),
        ("schlüssel".encode(), "printable ASCII"),
        (b"two\nlines", "printable ASCII"),
        (b"\xff\xfe", "cannot be read: it is not text"),
    ],
)
def test_a_key_file_that_no_reader_could_match_stops_the_start(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    """A key that no header can carry, or none at all, is told at the start and names its file."""
    if content is not None:
        (tmp_path / "reader.key").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"reader\.key .*{says}"):
        Keys.load(HashedKey.of("op-key"), AccessKeys(tmp_path), tmp_path / "reader.key")


def test_pages_of_named_addresses_may_ask_others_may_not() -> None:
    """A browser asks beforehand, with the header that it will send; a page from elsewhere gets no leave."""
    system = System(Keys("operator"))
    client = TestClient(create_app(system.state, ["https://office.example.org"]))
    asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    named = client.options("/zones", headers={"Origin": "https://office.example.org", **asked})
    assert named.headers["access-control-allow-origin"] == "https://office.example.org"
    other = client.options("/zones", headers={"Origin": "https://evil.example.org", **asked})
    assert "access-control-allow-origin" not in other.headers
    found = client.get("/zones", headers={"Origin": "https://office.example.org"})
    assert found.headers["access-control-allow-origin"] == "https://office.example.org"
    plain = system.client.get("/zones", headers={"Origin": "https://office.example.org"})
    assert "access-control-allow-origin" not in plain.headers


def test_a_page_of_a_named_address_may_say_which_version_it_has_seen() -> None:
    """Without that its change of rules would replace somebody else's."""
    system = System(Keys("operator"))
    client = TestClient(create_app(system.state, ["https://office.example.org"]))
    headers = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,if-match"}
    answer = client.options("/rules", headers={"Origin": "https://office.example.org", **headers})
    assert answer.status_code == 200, answer.text
    assert "If-Match" in answer.headers["access-control-allow-headers"].split(", ")
