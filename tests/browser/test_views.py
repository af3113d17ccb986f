"""Each view of the page in a real browser, over the API with live data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.messages import ModelRow
from services.store.rows import DeadLetter
from tests.browser import serving
from tests.browser.driver import SHIFT, Page
from tests.browser.held import hold, let_go
from tests.browser.serving import HOUR_MS, STEP_MS, House, climate, opened
from tests.patience import until
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

TEXT = "document.getElementById('view').innerText"
SOON_S = 2.0
SYSTEM_MS = 5000
"""So often the view of the system asks."""
EVIDENCE = "The challenger's error is 0.741 (0.709 to 0.778) of persistence, 0.960 (0.940 to 0.980) of v1."


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two zones of a house near Delft; the second has a sensor that fails."""
    made = House(tmp_path_factory.mktemp("house"))
    made.fill()
    made.do(
        made.live_state.publish(
            [made.forecast("north-2", degraded=["co2_ppm: stuck at 400 ppm since 09:00", "a <b>newer</b> server"])]
        )
    )
    return made


@pytest.fixture(scope="module")
def address(house: House) -> Iterator[str]:
    """Where it is served."""
    with opened(house) as found:
        yield found


def text(page: Page) -> str:
    """What the view says, with single spaces."""
    return " ".join(page.ask(TEXT).split())


def shows(page: Page, words: str) -> None:
    """Wait until the view says this."""
    page.until(f"{TEXT}.replace(/\\s+/g, ' ').includes({words!r})")


def test_now_tells_what_needs_somebody(page: Page, address: str) -> None:
    """The zone with a failing sensor comes first, named as people call it; each zone says what its night brings. What a
    reason contains is text, never markup.
    """
    page.open(address)
    shows(page, "Tonight 14.0 °C at 11:00 (13.2 to 14.8 °C). Below 12.2 °C: 3 %.")
    said = text(page)
    assert "The forecast of 1 zone is weaker than it should be." in said
    assert "No alert." in said
    assert "CO₂: stuck at 400 ppm since 09:00" in said
    assert "a <b>newer</b> server" in said
    zones = "[...document.querySelectorAll('.zone h3 > span:first-child')].map((one) => one.textContent)"
    assert page.ask(zones) == ["north-2", "Tomatoes, north"]
    assert page.ask("document.getElementById('place').textContent") == "Demo house"
    page.until("document.getElementById('state').textContent === 'live'")
    assert page.complaints == []


def test_a_zone_answers_in_words_figures_and_charts(page: Page, address: str) -> None:
    """Tonight with time and chance, tomorrow, the 24-hour mean, light, sun and dew point; three charts on one axis
    whose values can be read; what is measured, and the forecast as a table.
    """
    page.open(f"{address}/#/zone/demo/north-1")
    shows(page, "Was the forecast good last night?")
    for words in (
        "Tonight the air falls to 14.0 °C at about 11:00 (80 % likely: 13.2 to 14.8 °C).",
        "Chance of a night below 12.2 °C 3 % One in ten of its 21 nights so far was colder.",
        "maximum 22.0 °C At about 21:00. Between 20:00 and 21:00. 80 % likely: 21.2 to 22.8 °C.",
        "Mean of the next 24 hours", "Past 24 hours: 18.0 °C.", "Light today so far", "Sunrise and sunset 07:",
        "Leaf above the dew point 0.8 °C", "The forecast made 12 h before was off by 0.40 °C on average.", "Yes.",
        "Heating setpoint 16.0 °C", "Energy screen", "Outside temperature", "VPD",
    ):  # fmt: skip
        shows(page, words)
    page.until("document.querySelectorAll('.uplot canvas').length === 3")
    plot = "document.querySelector('#chart-climate .plot')"
    page.ask(f"{plot}.focus()")
    page.press("ArrowLeft")
    legend = "document.querySelector('#chart-climate .legend').innerText"
    page.until(f"{legend}.includes('°C')")
    assert "Heating setpoint" in page.ask(legend)
    assert "Tue 1 Mar" in page.ask("document.querySelector('#chart-climate .at').textContent")
    assert "measured" in page.ask("document.querySelector('#chart-climate .sr').textContent")
    page.ask("document.querySelector('#view section:last-child summary').click()")
    shows(page, "Tue 1 Mar, 02:00 1 h")
    assert page.complaints == []


def test_the_chart_goes_from_hours_to_a_year(page: Page, address: str) -> None:
    """Buttons, the wheel's keys and the pointer change how far back it goes, and all charts go together."""
    page.open(f"{address}/#/zone/demo/north-1")
    label = "document.querySelector('#chart-climate .plot')?.getAttribute('aria-label') ?? ''"
    page.until(f"({label}).includes('from Sun 27 Feb, 01:00 to Wed 2 Mar, 01:00')")
    page.ask("document.querySelector('[data-key=span-year]').click()")
    page.until(f"({label}).includes('from Mon 1 Mar, 01:00')")
    assert page.ask("document.querySelector('[data-key=span-year]').getAttribute('aria-pressed')") == "true"
    page.ask("document.querySelector('[data-key=span-two]').click()")
    page.until(f"({label}).includes('from Sun 27 Feb, 01:00')")
    page.ask("document.querySelector('#chart-climate .plot').focus()")
    page.press("+")
    page.until(f"({label}).includes('from Sun 27 Feb, 19:00 to Tue 1 Mar, 07:00')")
    page.press("ArrowLeft", SHIFT)
    page.until(f"({label}).includes('from Sun 27 Feb, 10:00')")
    page.drag("#chart-weather .u-over", 120, 0)
    page.until(f"!({label}).includes('from Sun 27 Feb, 10:00')")
    page.ask("document.querySelector('[data-key=span-two]').click()")
    page.until(f"({label}).includes('from Sun 27 Feb, 01:00')")
    faster = """{ const plot = document.querySelector('#chart-climate .plot');
        for (const key of '---') plot.dispatchEvent(new KeyboardEvent('keydown', { key })); }"""
    page.ask(faster)  # than rows come over a slow network
    page.until(f"({label}).includes('from Sun 6 Feb, 01:00')")
    page.ask("document.querySelector('[data-key=target-vpd_kpa]').click()")
    page.until("document.querySelector('#view .charts h3').textContent === 'VPD, kPa'")
    assert page.complaints == []


def test_what_if_shows_both_paths_or_says_that_nobody_knows(page: Page, house: House, address: str) -> None:
    """A ready-made question, a value that is drawn with the mouse, another metric; without evidence it says so."""
    page.open(f"{address}/#/whatif/demo/north-1")
    shows(page, "the air would be 0.8 °C colder (−1.1 °C to −0.5 °C).")
    assert "Such changes were seen in simulated houses only, not in this zone" in text(page)
    assert "Lowest point of the line, with the change" in text(page)
    page.ask("document.querySelector('[data-key=screen_open]').click()")
    page.until("document.querySelector('#metric').value === 'sp_screen_energy_pct'")
    until(lambda: house.backend.asked[-1][0]["metric"] == "sp_screen_energy_pct", "the question is asked")
    asked = house.backend.asked[-1][0]
    assert (asked["how"], asked["value"]) == ("set", 0)
    page.ask("document.querySelector('[data-key=cooler]').click()")
    before = page.ask("document.querySelector('output').textContent")
    page.drag(".handle.level", 0, 25)
    page.until(f"document.querySelector('output').textContent !== {before!r}")
    assert page.ask("document.querySelector('output').textContent").startswith("−")
    start = page.ask("document.querySelector('#from').value")
    page.drag(".handle.edge", 60, 0)
    page.until(f"document.querySelector('#from').value !== {start!r}")
    page.ask("""{ const metric = document.querySelector('#metric'); metric.value = 'wind_m_s';
        metric.dispatchEvent(new Event('change', {bubbles: true})) }""")
    shows(page, "Not enough evidence. Nobody knows what this would do here:")
    shows(page, "No house was tried with")
    assert page.complaints == []


def test_how_good_lays_forecasts_over_what_came(page: Page, address: str) -> None:
    """Past forecasts at a horizon, errors beside simple rules, coverage, and what each part weighs."""
    page.open(f"{address}/#/quality/demo/north-1")
    shows(page, "of what came lay inside the band (80 % should), and the middle was off by 0.40 °C on average.")
    shows(page, "What each part weighs")
    shows(page, "The forecast made 12 h before was off by 0.40 °C on average.")
    row = "[...document.querySelectorAll('#scores tbody tr')].map((one) => one.innerText.replace(/\\s+/g, ' '))"
    assert "1 h 0.50 °C 0.90 °C 1.00 °C 50 % 82 % 288" in page.ask(row)
    page.ask("document.querySelector('[data-key=\"weight-5\"]').click()")
    shows(page, "Usual day 70 % Trees 30 %")
    page.ask("""{ const ahead = document.querySelector('#ahead'); ahead.value = '60';
        ahead.dispatchEvent(new Event('change', {bubbles: true})) }""")
    page.until("document.querySelector('.legend').innerText.includes('forecast 1 h before')")
    assert page.complaints == []


def model(version: str, stage: str, reason: str = "") -> ModelRow:
    """A network in the table of models."""
    return ModelRow(
        version=version, expert="network", kind="network", stage=stage, aliases=[], created_ms=ORIGIN_MS - HOUR_MS,
        weights_sha256="", trained_on={"from_ms": ORIGIN_MS - 72 * HOUR_MS, "to_ms": ORIGIN_MS - 2 * HOUR_MS},
        held_back_mae={}, passed=True, reason=reason, forced=False, folder="", judged_against="v1", shadow=None,
        watch=None, pruned=None,
    )  # fmt: skip


def test_a_swap_is_seen_at_once_and_told_in_plain_words(page: Page, house: House, address: str) -> None:
    """A new champion is on the page within two seconds, with what the gate said as shares; the operator goes back with
    a key that the page asks for.
    """
    house.do(house.live_state.set_models([model("v1", "champion")]))
    page.open(f"{address}/#/models")
    shows(page, "Model v1 forecasts now")
    page.until("document.getElementById('state').textContent === 'live'")
    house.do(house.live_state.set_models([model("v2", "champion", EVIDENCE), model("v1", "previous")]))
    house.do(house.live_state.put_event({"kind": "swap", "version": "v2", "before": "v1", "reason": EVIDENCE}))
    began_s = time.monotonic()
    shows(page, "01:00: the model was replaced by one with 4.0 % less error (v2 instead of v1).")
    took_s = time.monotonic() - began_s
    assert took_s < SOON_S, f"the swap was seen after {took_s:.1f} s"
    assert "4.0 % less error than v1 (2.0 % to 6.0 %)" in text(page)
    page.ask("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Go back to v1').click()")
    page.until("document.getElementById('sure').open")
    page.ask("document.getElementById('sure-yes').click()")
    page.until("document.getElementById('order-key').open")
    page.type("wrong")
    page.press("Enter")
    page.until("document.getElementById('order-key-said').textContent === 'This key does not allow that.'")
    page.type("op-key")
    page.press("Enter")
    shows(page, "Done.")
    assert house.backend.orders[-1] == ("rollback", "network", "v2")
    assert page.ask("localStorage.length + sessionStorage.length") == 0


def test_a_training_that_begins_is_seen_though_no_event_tells_of_it(page: Page, house: House, address: str) -> None:
    """The view looks again by itself: nothing changes in the table of models meanwhile."""
    house.do(house.live_state.set_models([model("v1", "champion")]))
    page.open(f"{address}/#/models")
    shows(page, "Model v1 forecasts now")
    running: Any = {"running": {"kind": "operator", "reason": "operator"}, "last_error": ""}
    house.do(house.live_state.put_stats("retrainer", running))
    page.until("document.querySelector('[data-key=\"network train\"]').ariaDisabled === 'true'")
    house.do(house.live_state.put_stats("retrainer", {**running, "running": None}))
    page.until("document.querySelector('[data-key=\"network train\"]').ariaDisabled === null")


def test_models_that_are_drawn_anew_keep_focus_and_folds(page: Page, house: House, address: str) -> None:
    """Of a button, a fold and a box; a button that has gone gives it to what it stood in."""
    models = [model(f"v{number}", stage, EVIDENCE) for number, stage in enumerate(("refused", "previous", "champion"))]
    house.do(house.live_state.set_models(models))
    page.open(f"{address}/#/models")
    shows(page, "Model v2 forecasts now")
    page.until("document.getElementById('state').textContent === 'live'")
    focused, number = "document.activeElement.dataset.key ?? document.activeElement.tagName", 2
    fold = "document.querySelector('[data-fold=\"network older\"]')"
    page.ask(f"{fold}.querySelector('summary').click()")
    for key in ("network train", "network back", "network older summary", "network gate v1 summary", "timeline all"):
        page.ask(f"document.querySelector('[data-key=\"{key}\"]').focus()")
        assert page.ask(focused) == key
        number += 1
        house.do(house.live_state.put_event({"kind": "swap", "version": f"v{number}", "before": "v2", "reason": ""}))
        shows(page, f"v2 was replaced by v{number}")
        assert page.ask(focused) == key
    assert page.ask(f"{fold}.open")
    page.ask("document.querySelector('[data-key=\"network train\"]').focus()")
    page.press("Enter")
    page.until("document.getElementById('sure').open")
    house.do(house.live_state.put_event({"kind": "swap", "version": "v9", "before": "v2", "reason": ""}))
    shows(page, "v2 was replaced by v9")
    page.ask("document.getElementById('sure-no').click()")
    page.until(f"({focused}) === 'network train'")
    page.ask("document.querySelector('[data-key=\"network back\"]').focus()")
    house.do(house.live_state.set_models([models[0], models[2], model("v5", "challenger", EVIDENCE)]))
    page.until("!document.querySelector('[data-key=\"network back\"]')")
    assert page.ask(focused) == "network train"


def test_a_watch_that_begins_with_the_next_row_has_no_end_yet(page: Page, house: House, address: str) -> None:
    """Between a swap and the row after it no time is named; from then on it is that of the verdict."""
    for from_ms, until_ms, words in (
        (-1, -1, "Compared with v1 from the next reading on;"),
        (ORIGIN_MS, ORIGIN_MS + 48 * HOUR_MS, "Compared with v1 until Thu 3 Mar, 01:00 of the greenhouse's time;"),
    ):
        watch = {"against": "v1", "from_ms": from_ms, "until_ms": until_ms}
        house.do(house.live_state.set_models([{**model("v2", "champion"), "watch": watch}]))  # type: ignore[typeddict-item]
        page.open(f"{address}/#/models")
        shows(page, words)


def test_of_two_answers_the_one_asked_for_last_is_shown(page: Page, house: House, address: str) -> None:
    """What happened is told before the table of models changes. Where the answer to the first comes after that to the
    second, the page still shows the new table.
    """
    house.do(house.live_state.set_models([model("v7", "champion")]))
    page.open(f"{address}/#/models")
    shows(page, "Model v7 forecasts now")
    page.until("document.getElementById('state').textContent === 'live'")
    hold(page, "status")
    house.do(house.live_state.put_event({"kind": "swap", "version": "v8", "before": "v7", "reason": ""}))
    page.until("window.release")
    house.do(house.live_state.set_models([model("v8", "champion"), model("v7", "previous")]))
    shows(page, "Model v8 forecasts now")
    let_go(page)
    assert "Model v8 forecasts now" in text(page)
    assert "v7 was replaced by v8" in text(page)


def test_one_order_about_models_is_given_at_a_time(page: Page, house: House, address: str) -> None:
    """While it is under way, which may take minutes, the page says so and takes no other."""
    house.do(house.live_state.set_models([model("v2", "champion"), model("v1", "previous")]))
    page.open(f"{address}/#/models")
    shows(page, "Model v2 forecasts now")
    others = "[...document.querySelectorAll('#view button')].map((one) => one.ariaDisabled)"
    train = "document.querySelector('[data-key=\"network train\"]').click()"
    page.ask(train)
    page.ask("void (window.said = document.getElementById('order-said'))")
    page.until("document.getElementById('sure').open")
    page.ask("document.getElementById('sure-yes').click()")
    page.until("document.getElementById('order-key').open")
    hold(page, "models/retrain")
    page.type("op-key")
    page.press("Enter")
    page.until("window.release")
    assert set(page.ask(others)) == {"true"}
    assert page.ask("window.said.textContent") == "…"  # one element: else it is not read out
    page.ask(train)
    assert not page.ask("document.getElementById('sure').open")
    let_go(page)
    page.until("window.said.isConnected && window.said.textContent === 'Done.'")
    page.until(f"{others}.every((one) => one === null)")
    assert house.backend.orders.count(house.backend.orders[-1]) == 1


def test_a_new_row_is_seen_at_once(page: Page, house: House, address: str) -> None:
    """The row and its forecast are on the page within two seconds, in the list and in the zone."""
    newer_ms = ORIGIN_MS + STEP_MS
    page.open(f"{address}/#/zone/demo/north-1")
    shows(page, "Measured up to 01:00")
    row = {**climate(newer_ms), "air_temp_c": 31.4}
    made = house.forecast("north-1", newer_ms)
    made["now"] = row
    house.do(house.live_state.publish([made]))
    began_s = time.monotonic()
    shows(page, "Measured up to 01:05")
    shows(page, "31.4 °C")
    took_s = time.monotonic() - began_s
    assert took_s < SOON_S, f"the row was seen after {took_s:.1f} s"
    page.ask("location.hash = '#/now'")
    shows(page, "Measured up to 01:05")
    assert page.complaints == []


def test_system_says_what_comes_in_and_what_to_do(page: Page, house: House, address: str) -> None:
    """Rates, what was kept out with what to do about it, and each part with its state."""
    house.backend.letters = [letter(reason) for reason in ("malformed", "future_ts")]
    page.hurry(SYSTEM_MS)
    page.open(f"{address}/#/system")
    shows(page, "12.5 a second 1,200 taken so far.")
    said = text(page)
    assert "Too late 2 Their time was already processed." in said
    assert "Time in the future" in said
    assert "Set the device's clock, and send Unix time in milliseconds." in said
    assert "Refused 4 Could not be used; see below." in said
    assert "Learning (shard-0) works" in said
    house.do(house.live_state.put_stats("shard-0", {**house.figures(), "last_error": "the disk is full"}))  # type: ignore[typeddict-item]
    shows(page, "the disk is full")
    refused = {
        "values_refused": {"out_of_range": 7},
        "plans_refused": {"malformed": 1},
        "plan_metrics_refused": {"unit": 2},
    }
    house.do(house.live_state.put_stats("shard-0", {**house.figures(), **refused}))  # type: ignore[typeddict-item]
    shows(page, "Refused 14 Could not be used; see below.")
    house.do(house.live_state.put_stats("shard-0", house.figures()))  # type: ignore[arg-type]


def test_what_to_do_is_in_sight_beside_long_topics(browser: Page, house: House, address: str) -> None:
    """Names of sites and zones have no place to break at; the last column is not pushed out of the window."""
    topic = "hothouse/v1/demo/north-1/greenhouse_climate_computer_of_the_north_side/sample"
    house.backend.letters = [letter("future_ts")._replace(topic=topic, detail=f"expected {topic}")]
    browser.renew(960, 900)
    browser.open(f"{address}/#/system")
    browser.until("document.querySelector('#letters tbody tr')")
    box = "document.querySelector('#view .scroll:has(#letters)')"
    assert browser.ask(f"{box}.scrollWidth - {box}.clientWidth") == 0


def test_a_broken_humidity_sensor_makes_no_dew_point(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 0 % it would be 60 to 80 °C below zero: a figure that means nothing, and a chart without any other line."""
    known, broken_ms = climate, ORIGIN_MS - HOUR_MS
    at_zero = {"rh_pct": 0.0}
    monkeypatch.setattr(serving, "climate", lambda at_ms: known(at_ms) | (at_zero if at_ms > broken_ms else {}))
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        assert page.ask("uPlot.sync('zone demo/north-1').plots[0].scales.y.min") > 10
        shows(page, "Sunrise and sunset")
        assert "above the dew point" not in text(page)


def test_an_axis_names_each_of_its_values(page: Page, address: str) -> None:
    """Those of a step of 2.5 are not 18, 20 and 23."""
    page.open(f"{address}/#/now")
    page.until("document.getElementById('state').textContent === 'live'")
    steps = "[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 22.5 - 20, 0.3 - 0.2, 250]"
    found = page.ask(f"import('/page/units.js').then((units) => {steps}.map(units.placesOf))")
    assert found == [2, 2, 2, 1, 2, 1, 0, 1, 0, 1, 1, 0]


def test_a_part_that_has_died_does_not_work(page: Page, house: House, address: str) -> None:
    """The live state keeps its last figures: the page says since when it tells nothing, and counts no samples of it."""
    page.hurry(SYSTEM_MS)
    page.open(f"{address}/#/system")
    shows(page, "12.5 a second")
    house.state.view._told_s["shard-0"] -= 3600
    shows(page, "0.0 a second 1,200 taken so far.")
    said = text(page)
    assert "something fails: shard-0: has reported nothing for 1 h" in said
    box = "document.querySelector('#ready{}').getBoundingClientRect()"
    assert page.ask(f"{box.format(' + .note')}.top - {box.format('')}.bottom") > 4
    assert "Learning (shard-0) fails" in said
    house.do(house.live_state.put_stats("shard-0", house.figures()))  # type: ignore[arg-type]
    shows(page, "12.5 a second")
    assert "Learning (shard-0) works" in text(page)
    assert page.complaints == []


def test_system_stays_where_it_was_read(browser: Page, house: House, address: str) -> None:
    """On a phone: new figures leave a table as far to the side as it was drawn, the focus, a fold that is open and a
    text that is selected. Where the table itself changes its place and the focus stay.
    """
    house.backend.letters = [letter("malformed")]
    browser.renew(360, 780)
    browser.hurry(SYSTEM_MS)
    browser.open(f"{address}/#/system")
    shows(browser, "12.5 a second")
    table = "document.querySelector('#view .scroll:has(#letters)')"
    browser.ask(f"""{{ const table = {table}; table.scrollLeft = 150; table.focus();
        getSelection().selectAllChildren(table.querySelector('tbody code'));
        document.getElementById('raw').open = true; }}""")
    assert browser.ask(f"{table}.scrollLeft") == 150
    held = f"[{table}.scrollLeft, document.activeElement === {table}, document.getElementById('raw').open]"
    for rate in (20.5, 30.5, 40.5):
        house.do(house.live_state.put_stats("shard-0", house.figures() | {"samples_per_s": rate}))  # type: ignore[arg-type]
        shows(browser, f"{rate} a second")
        assert browser.ask(held) == [150, True, True]
        assert browser.ask("getSelection().toString()") == "hothouse/v1/demo/north-1/a/sample"
    house.backend.letters.append(letter("future_ts"))
    shows(browser, "Time in the future")
    assert browser.ask(held) == [150, True, True]
    browser.ask("document.querySelector('#raw a[href=metrics]').focus()")
    house.do(house.live_state.put_stats("shard-0", house.figures()))  # type: ignore[arg-type]
    shows(browser, "12.5 a second")
    assert browser.ask("document.activeElement.textContent") == "/metrics"
    assert browser.complaints == []


def letter(reason: str) -> DeadLetter:
    """Something that was kept out."""
    return DeadLetter(0, 7, 0, ORIGIN_MS, "hothouse/v1/demo/north-1/a/sample", reason, f"{reason} it is", b"{}")


def test_the_description_of_the_api_works_without_another_address(page: Page, address: str) -> None:
    """Every call of /openapi.json is described at /docs, with its parameters and structures."""
    page.open(f"{address}/docs")
    shows(page, "GET /zones/{zone}/series")
    found = page.ask("document.querySelectorAll('section[id^=get-], section[id^=post-]').length")
    assert found > 15
    assert "server-sent events" in text(page).lower()
    loaded = page.ask("performance.getEntriesByType('resource').map((one) => one.name)")
    assert all(one.startswith(address) for one in loaded)
    assert page.barriers() == []
    assert page.complaints == []
