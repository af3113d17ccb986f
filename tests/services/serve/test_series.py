"""``/zones/{zone}/series`` and ``/forecasts``: any span and resolution, nothing that is held already."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.config import Settings
from services.forecast_spec import forecast_spec
from services.serve.api.auth import Keys
from services.serve.api.problems import ProblemError
from services.serve.api.routes import series_routes
from services.serve.backend.ray_backend import RayBackend
from services.store.deadletters import DeadLetters
from services.store.forecasts import IssuedForecast, IssuedForecasts
from services.store.history import History
from services.store.rows import DeadLetter, SiteStep
from tests.services.serve.fakes import ORIGIN_MS, SPEC
from tests.services.serve.system import System, assert_problem

STEP_MS = 300_000
ROWS = 600
URL = "/zones/north-1/series"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """Two zones, and fifty hours of rows of one of them; ``air_temp_c`` counts them."""
    made = System(Keys("op-key"))
    history = made.backend.history = History(tmp_path, SPEC.channels)
    for n in range(ROWS):
        add(history, n)
    history.flush()
    yield made
    made.client.close()


def add(history: History, n: int) -> None:
    """Row number ``n`` of those before the newest forecast's origin."""
    row = np.float32([[n, 50, 400, np.nan]])
    history.add([SiteStep(0, "demo", ORIGIN_MS - (ROWS - 1 - n) * STEP_MS, ("north-1",), row, row * 0, [])])


def get(system: System, **asked: Any) -> Any:
    """The answer's JSON; it must be one."""
    answer = system.client.get(URL, params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_past_two_days_are_what_is_told_first(system: System) -> None:
    """Without a span: 48 hours up to the newest row, row by row, of the targets."""
    told = get(system)
    assert told["interval_s"] == 300
    assert len(told["end_ms"]) == 576
    assert told["end_ms"][-1] == ORIGIN_MS
    assert told["values"]["air_temp_c"]["mean"][-2:] == [598, 599]
    assert set(told["values"]) == set(SPEC.targets)
    assert told["cursor"] is None


def test_a_long_answer_is_written_beside_the_event_loop(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of all metrics held all other requests up for seconds."""
    inside, listed = [], series_routes._values

    def values(*given: Any) -> Any:
        try:
            inside.append(asyncio.get_running_loop())
        except RuntimeError:
            inside.append(None)
        return listed(*given)

    monkeypatch.setattr(series_routes, "_values", values)
    get(system)
    assert inside == [None]


def test_intervals_hold_means_and_extremes(system: System) -> None:
    """An hour's twelve rows are told by their mean, least and largest."""
    told = get(system, metrics="air_temp_c,vent_lee_pct", interval_s=3600, since_ms=ORIGIN_MS - 2 * 3_600_000)
    values = told["values"]["air_temp_c"]
    assert (values["min"], values["max"]) == ([576, 588], [587, 599])
    assert values["mean"] == pytest.approx([581.5, 593.5])
    assert told["values"]["vent_lee_pct"]["mean"] == [None, None]


def test_pages_make_the_whole(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is on one page, and the last page says that it is the last."""
    monkeypatch.setattr(series_routes, "PAGE", 100)
    whole, cursor = [], None
    for _ in range(6):
        told = get(system, **({} if cursor is None else {"cursor": cursor}))
        assert len(told["end_ms"]) <= 100
        whole += told["end_ms"]
        cursor = told["cursor"]
    assert cursor is None
    assert whole == [ORIGIN_MS - n * STEP_MS for n in reversed(range(576))]


def test_pages_begin_with_the_first_row(system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not in 1970, from where years of empty pages would come; without a row there is one page."""
    monkeypatch.setattr(series_routes, "PAGE", 100)
    first = get(system, since_ms=0, interval_s=300)
    assert first["end_ms"] == [ORIGIN_MS - n * STEP_MS for n in reversed(range(500, 600))]
    assert first["values"]["air_temp_c"]["mean"][0] == 0
    second = get(system, since_ms=0, interval_s=300, cursor=first["cursor"])
    assert second["end_ms"][0] == first["end_ms"][-1] + STEP_MS
    system.backend.history = History(tmp_path / "empty", SPEC.channels)
    none = get(system, since_ms=0, interval_s=300)
    assert (none["end_ms"], none["cursor"]) == ([], None)


@pytest.mark.parametrize("since_ms", [ORIGIN_MS - 20 * STEP_MS, 2**46])
def test_pages_end_with_the_newest_row(system: System, since_ms: int) -> None:
    """Not years later, up to where thousands of empty pages would follow."""
    told = get(system, since_ms=since_ms, until_ms=2**47, interval_s=300)
    assert len(told["end_ms"]) == (20 if since_ms < ORIGIN_MS else 0)
    assert told["cursor"] is None


def test_the_page_with_the_newest_row_is_the_last(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks up to next year gets no months of empty pages."""
    monkeypatch.setattr(series_routes, "PAGE", 100)
    asked = {"since_ms": ORIGIN_MS - 150 * STEP_MS, "until_ms": ORIGIN_MS + 365 * 86_400_000, "interval_s": 300}
    first = get(system, **asked)
    second = get(system, **asked, cursor=first["cursor"])
    assert (len(first["end_ms"]), len(second["end_ms"]), second["cursor"]) == (100, 50, None)


@pytest.mark.parametrize("off_ms", [0, 1, 700_000, 3_599_999])
def test_a_page_ends_where_an_interval_does(system: System, monkeypatch: pytest.MonkeyPatch, off_ms: int) -> None:
    """Wherever the first begins: each interval is on one page, whole, as it is where all is one page."""
    asked = {"metrics": "air_temp_c", "interval_s": 3600, "since_ms": ORIGIN_MS - 599 * STEP_MS + off_ms}
    whole = get(system, **asked)
    monkeypatch.setattr(series_routes, "PAGE", 10)
    told = [get(system, **asked)]
    while told[-1]["cursor"] is not None:
        told.append(get(system, **asked, cursor=told[-1]["cursor"]))
    assert len(told) == 5
    assert all(len(page["end_ms"]) <= 10 for page in told)
    assert [at for page in told for at in page["end_ms"]] == whole["end_ms"]
    for part in ("mean", "min", "max"):
        values = [value for page in told for value in page["values"]["air_temp_c"][part]]
        assert values == whole["values"]["air_temp_c"][part]


def test_what_is_held_is_not_sent_again(system: System) -> None:
    """304 while no row of the span has come; then the new answer, under another tag."""
    first = system.client.get(URL)
    held = {"If-None-Match": f'"other", {first.headers["etag"]}'}
    again = system.client.get(URL, headers=held)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert system.client.get(URL, headers={"If-None-Match": "*"}).status_code == 304
    assert system.client.get("/zones/attic/series", headers={"If-None-Match": "*"}).status_code == 404
    assert system.client.get(URL, headers=held, params={"interval_s": 900}).status_code == 200
    assert system.backend.history is not None
    row = np.float32([[20, 50, 400, np.nan]])
    system.backend.history.add([SiteStep(0, "demo", ORIGIN_MS, ("south-1",), row, row * 0, [])])
    system.backend.history.flush()
    assert system.client.get(URL, headers=held).status_code == 200


def test_an_answer_of_another_release_is_not_held(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next release may work out other values from the same rows: it sends them, also where files stay."""
    held = {"If-None-Match": system.client.get(URL).headers["etag"]}
    assert system.client.get(URL, headers=held).status_code == 304
    monkeypatch.setattr(system.client.app, "version", "99.0.0")
    assert system.client.get(URL, headers=held).status_code == 200


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"metrics": "air_temp_c,colour"}, 422, "query.metrics: there is no metric 'colour'; known are air_temp_c"),
        ({"interval_s": 400}, 422, "query.interval_s: 400 is no multiple of the step, 300 s"),
        ({"since_ms": 2, "until_ms": 1}, 422, "query.since_ms: 2 is after until_ms, 1"),
        ({"site": "elsewhere"}, 404, "elsewhere"),
    ],
)
def test_what_cannot_be_answered_is_said(system: System, asked: dict[str, Any], status: int, says: str) -> None:
    """One sentence each."""
    assert_problem(system.client.get(URL, params=asked), status, says)


def test_a_history_that_cannot_be_read_is_no_defect(system: System) -> None:
    """503, with the reason."""
    system.backend.history = None
    assert_problem(system.client.get(URL), 503, "the history cannot be read")


def test_what_was_said_then_is_told(system: System) -> None:
    """The zone's own values of the forecast that was issued for the site."""
    quantiles = np.arange(2 * 3 * 3 * 3, dtype=np.float32).reshape(2, 3, 3, 3)
    system.backend.said = IssuedForecast(
        "demo", ORIGIN_MS, "v3", ("north-2", "north-1"), quantiles, quantiles[..., 0], quantiles[..., 0], 0
    )
    told = system.client.get("/zones/north-1/forecasts", params={"issued_at": ORIGIN_MS}).json()
    assert (told["origin_ms"], told["model_version"], told["horizon_min"]) == (ORIGIN_MS, "v3", [5, 60, 1440])
    assert told["targets"]["rh_pct"] == {"p10": [30, 39, 48], "p50": [31, 40, 49], "p90": [32, 41, 50]}


def test_where_nothing_was_said_that_is_told(system: System) -> None:
    """404, with the time that was asked for."""
    answer = system.client.get("/zones/north-1/forecasts", params={"issued_at": 77})
    assert_problem(answer, 404, "no forecast of demo/north-1 was issued in the day before 77")


def test_the_backend_reads_where_shards_write(tmp_path: Path) -> None:
    """Rows and forecasts are found in the configured storage; a damaged file is a 503, not a defect."""
    settings = Settings(data_dir=tmp_path)
    history = History(settings.storage_folder, SPEC.channels)
    add(history, ROWS - 1)
    history.flush()
    spec = forecast_spec(settings)
    zeros = np.zeros((1, len(spec.horizons_min), len(spec.targets), 3), np.float32)
    said = IssuedForecast("demo", ORIGIN_MS, "v1", ("north-1",), zeros, zeros[..., 0], zeros[..., 0], 0)
    IssuedForecasts(settings.storage_folder, 0).put([said], spec.horizons_min, spec.targets)
    backend = RayBackend(settings, None)

    async def ask() -> tuple[list[int], IssuedForecast | None, IssuedForecast | None]:
        rows = await backend.series("demo", "north-1", ["air_temp_c"], 0, ORIGIN_MS, STEP_MS)
        newest, none = [await backend.issued("demo", "north-1", at_ms) for at_ms in (ORIGIN_MS + 1, 5)]
        return rows["end_ms"].tolist(), newest, none

    ends, found, none = asyncio.run(ask())
    assert ends == [ORIGIN_MS]
    assert found is not None
    assert (found.origin_ms, none) == (ORIGIN_MS, None)
    Path(history.files()[0]).write_bytes(b"no parquet")
    with pytest.raises(ProblemError, match="the history cannot be read"):
        asyncio.run(ask())


def test_what_was_kept_out_is_told(system: System) -> None:
    """By reason, with what is wrong; payloads that are no text do no harm."""
    late = DeadLetter(0, 7, 0, ORIGIN_MS, "hothouse/v1/demo/z1/climate/sample", "late", "2 h late", b"\xff{}" * 900)
    system.backend.letters = [late, late._replace(offset=9, reason="malformed")]
    told = system.client.get("/deadletters", params={"reason": "late", "newest": 5}).json()
    (counted,), (letter,) = told["kept_out"], told["letters"]
    assert (counted["reason"], counted["count"], counted["detail"]) == ("late", 1, "2 h late")
    assert (letter["offset"], letter["payload"][1:3], len(letter["payload"])) == (7, "{}", 1000)
    assert [one["reason"] for one in system.client.get("/deadletters").json()["kept_out"]] == ["late", "malformed"]


def test_the_backend_reads_the_shards_dead_letters(tmp_path: Path) -> None:
    """Those of all partitions; an object that is damaged is a 503."""
    settings = Settings(data_dir=tmp_path)
    kept = DeadLetters(settings.storage_folder, 1)
    kept.put([DeadLetter(1, 7, 0, ORIGIN_MS, "t", "late", "d", b"{}")])
    backend = RayBackend(settings, None)
    counts, letters = asyncio.run(backend.dead_letters(None, 10))
    assert ([one.count for one in counts], [one.offset for one in letters]) == ([1], [7])
    damaged = settings.storage_folder / "deadletters" / "p2" / "000000000000.jsonl.gz"
    damaged.parent.mkdir()
    damaged.write_bytes(b"no letters" * 100)
    with pytest.raises(ProblemError, match="what was kept cannot be read"):
        asyncio.run(backend.dead_letters(None, 10))


def test_the_forecast_of_a_zone_is_older_than_that_of_its_site(tmp_path: Path) -> None:
    """A zone that left goes without forecasts while its site has them, and is asked about when it is back."""
    settings = Settings(data_dir=tmp_path)
    spec, kept = forecast_spec(settings), IssuedForecasts(settings.storage_folder, 0)
    for at_ms, zones in ((ORIGIN_MS - 3 * 3_600_000, ("north-1", "north-2")), (ORIGIN_MS, ("north-2",))):
        zeros = np.zeros((len(zones), len(spec.horizons_min), len(spec.targets), 3), np.float32)
        said = IssuedForecast("demo", at_ms, "v1", zones, zeros, zeros[..., 0], zeros[..., 0], 0)
        kept.put([said], spec.horizons_min, spec.targets)
    backend = RayBackend(settings, None)
    found = {zone: asyncio.run(backend.issued("demo", zone, ORIGIN_MS)) for zone in ("north-1", "north-2", "north-3")}
    origins = {zone: None if one is None else one.origin_ms for zone, one in found.items()}
    assert origins == {"north-1": ORIGIN_MS - 3 * 3_600_000, "north-2": ORIGIN_MS, "north-3": None}


def test_the_newest_forecast_is_found_without_a_day_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day of a site with a thousand zones is gigabytes; one that is hours old is found all the same."""
    settings = Settings(data_dir=tmp_path)
    spec, kept = forecast_spec(settings), IssuedForecasts(settings.storage_folder, 0)
    zeros = np.zeros((1, len(spec.horizons_min), len(spec.targets), 3), np.float32)
    for n in range(288):
        at_ms = ORIGIN_MS - n * STEP_MS
        said = IssuedForecast("demo", at_ms, "v1", ("north-1",), zeros, zeros[..., 0], zeros[..., 0], 0)
        kept.put([said], spec.horizons_min, spec.targets)
    looked, read = [], IssuedForecasts.read

    def counted(self: IssuedForecasts, *asked: Any, **more: Any) -> list[IssuedForecast]:
        found = read(self, *asked, **more)
        looked.append(len(found))
        return found

    monkeypatch.setattr(IssuedForecasts, "read", counted)
    backend = RayBackend(settings, None)
    found = asyncio.run(backend.issued("demo", "north-1", ORIGIN_MS + 60_000))
    assert found is not None
    assert found.origin_ms == ORIGIN_MS
    assert sum(looked) <= 12
    late = asyncio.run(backend.issued("demo", "north-1", ORIGIN_MS + 20 * 3_600_000))
    assert late is not None
    assert late.origin_ms == ORIGIN_MS
