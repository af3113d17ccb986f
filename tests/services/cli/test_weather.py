"""``hothouse weather``: which sites are asked for, what is published, and what is said where nothing can be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

import services.message_broker
import services.weather.fetch
from edge.wire.plan import decode_plan
from services.cli import app
from services.weather.open_meteo import WeatherError
from tests.services.weather.answers import answer

NOW_MS = 1_646_136_000_000
SITES = """
[[sites]]
name = "north"
latitude = 51.98
longitude = 4.53
[[sites]]
name = "south"
latitude = 36.8
longitude = -2.6
[[sites]]
name = "attic"
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str, str]]:
    """What was asked of the service and, as an address of its own, published: (where, latitude, key or source)."""
    found: list[tuple[str, str, str]] = []

    def fetch(url: str, parameters: Mapping[str, str]) -> bytes:
        found.append((url, parameters["latitude"], parameters.get("apikey", "")))
        if parameters["latitude"] == "36.8":
            raise WeatherError("the service answered 503 Service Unavailable")
        return answer(NOW_MS)

    def publish(_: object, name: str, topic: str, payload: bytes) -> None:
        plan = decode_plan(topic, payload, NOW_MS).plan
        assert plan is not None
        found.append((topic, "", plan.source))

    monkeypatch.setattr(services.weather.fetch, "fetch", fetch)
    monkeypatch.setattr(services.message_broker, "publish", publish)
    monkeypatch.setattr("services.cli.weather_service.time.time_ns", lambda: NOW_MS * 1_000_000)
    monkeypatch.chdir(tmp_path)
    return found


def test_each_site_with_coordinates_is_asked_for(asked: list[tuple[str, str, str]], tmp_path: Path) -> None:
    """What fails at one site is said in the end, and costs another one nothing."""
    (tmp_path / "hothouse.toml").write_text(SITES)
    result = CliRunner().invoke(app, ["weather", "--once"])
    assert (result.exit_code, result.output.count("the service answered 503 Service Unavailable")) == (1, 1)
    assert "error: south: the service answered 503 Service Unavailable" in result.output
    url = "https://api.open-meteo.com/v1/forecast"
    assert asked == [
        (url, "51.98", ""), ("hothouse/v1/north/_site/weather-service/plan", "", "open-meteo"), (url, "36.8", ""),
    ]  # fmt: skip
    assert (tmp_path / "hothouse-data/weather/north.json").exists()


def test_address_sites_name_and_key_are_settings(asked: list[tuple[str, str, str]], tmp_path: Path) -> None:
    """The key's file is read once; it is sent with each question."""
    (tmp_path / "weather.key").write_text("secret")
    given = '[weather]\nurl = "http://own:8080/v1"\nsource = "own"\nsites = ["north"]\nkey_file = "weather.key"\n'
    (tmp_path / "hothouse.toml").write_text(given + SITES)
    result = CliRunner().invoke(app, ["weather", "--once"])
    assert result.exit_code == 0, result.output
    assert asked == [
        ("http://own:8080/v1", "51.98", "secret"), ("hothouse/v1/north/_site/weather-service/plan", "", "own"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "no latitude and longitude of any site"),
        ('[weather]\nsites = ["attic", "cellar"]\n' + SITES, "no latitude and longitude of attic, cellar"),
        ('[weather]\nurl = "api.open-meteo.com"\n' + SITES, "weather.url"),
        ('[weather]\nvariables = { temperature_2m = "air_temp_c" }\n' + SITES, "must name metrics of the weather"),
    ],
)
def test_settings_that_cannot_be_are_said(
    asked: list[tuple[str, str, str]], tmp_path: Path, settings: str, said: str
) -> None:
    """Before anything is asked."""
    (tmp_path / "hothouse.toml").write_text(settings)
    result = CliRunner().invoke(app, ["weather", "--once"])
    assert result.exit_code == 2
    assert said in result.output
    assert asked == []
