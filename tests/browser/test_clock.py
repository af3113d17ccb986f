"""Times are the greenhouse's, also over a change of its clock and far away from it; the page's pure parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from sunposition import sunpos

from services.store.rows import DeadLetter
from tests.browser.driver import Page
from tests.browser.serving import STEP_MS, House, opened
from tests.browser.views import model

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
SPRING_MS = int(datetime(2022, 3, 26, 18, tzinfo=UTC).timestamp() * 1000)  # 19:00 in Amsterdam; at 2:00 it is 3:00


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A house in Amsterdam on the evening before its clock goes forward."""
    house = House(tmp_path_factory.mktemp("house"), origin_ms=SPRING_MS)
    house.fill()
    with opened(house) as found:
        yield found


def test_the_greenhouses_clock_is_shown_over_its_change(page: Page, address: str) -> None:
    """With a browser in New York: the hour that the greenhouse's clock leaves out is in no table and on no axis."""
    page.call("Emulation.setTimezoneOverride", timezoneId="America/New_York")
    page.open(f"{address}/#/zone/demo/north-1")
    page.until(f"{VIEW}.includes('Measured up to 19:00')")
    page.until("document.querySelector('#view section:last-child summary')")
    page.ask("document.querySelector('#view section:last-child summary').click()")
    hours = page.ask("[...document.querySelectorAll('#view tbody th')].map((one) => one.textContent)")
    at = hours.index("Sun 27 Mar, 01:00")
    assert hours[at + 1] == "Sun 27 Mar, 03:00"
    assert hours[-1] == "Sun 27 Mar, 20:00"
    label = "document.querySelector('#chart-climate .plot').getAttribute('aria-label')"
    page.until(f"{label}.includes('from Thu 24 Mar, 19:00 to Sun 27 Mar, 20:00')")
    page.ask("document.querySelector('#chart-climate .plot').focus()")
    for _ in range(3):
        page.press("ArrowRight")
    assert page.ask("document.querySelector('#chart-climate .at').textContent").startswith("Sun 27 Mar, 0")
    page.ask("location.hash = '#/whatif/demo/north-1'")
    page.until(f"{VIEW}.includes('Sat 26 Mar, 19:00 to Sun 27 Mar, 07:30')")


def test_each_site_has_its_own_clock(page: Page, tmp_path: Path) -> None:
    """In System, by the topic or whose row it is; the clock of what belongs to no site is named."""
    house = House(tmp_path, origin_ms=SPRING_MS)
    house.state.timezone = lambda site: {"demo": "Europe/Amsterdam", "west": "America/New_York"}[site]
    house.fill()
    house.do(house.live_state.publish([house.forecast("east-1", site="west")]))
    ends = {"demo": SPRING_MS, "west": SPRING_MS + STEP_MS}
    house.do(house.live_state.put_stats("shard-0", house.figures() | {"watermark_ms": ends}))  # type: ignore[arg-type]
    topics = ("hothouse/v1/demo/north-1/a/sample", "hothouse/v1/west/east-1/a/sample", "else/where")
    house.backend.letters = [DeadLetter(0, 7, n, SPRING_MS, one, "malformed", "", b"") for n, one in enumerate(topics)]
    house.do(house.live_state.set_models([model("v1", "champion")]))
    event = {"kind": "swap", "version": "v1", "before": "online", "reason": "", "time_ms": SPRING_MS}
    house.do(house.live_state.put_event(event))  # type: ignore[arg-type]
    row = "[...document.querySelectorAll('#letters tbody tr')].map((one) => one.cells[3].textContent)"
    with opened(house) as address:
        page.open(f"{address}/#/system")
        page.until(f"{VIEW}.includes('Sat 26 Mar, 14:05') && {row}.length === 3")
        assert page.ask(row) == ["Sat 26 Mar, 19:00", "Sat 26 Mar, 14:00", "Sat 26 Mar, 19:00 CET"]
        page.ask("location.hash = '#/models'")
        page.until(f"{VIEW}.includes('up to Mon 28 Feb, 23:00 CET')")
        page.until(f"{VIEW}.includes('Sat 26 Mar, 19:00 CET: v1 forecasts')")
        assert page.complaints == []


def ask(page: Page, module: str, expression: str) -> Any:
    """What an expression says with a module of the page as ``m``; words are loaded."""
    page.until("document.body")  # of a page that was just opened there may be nothing yet
    return page.ask(f"""(async () => {{
        const words = await import('/page/words.js');
        await words.speak('en');
        const m = await import('/page/{module}.js');
        return {expression};
    }})()""")


def test_light_is_summed_over_intervals_of_one_length(page: Page, address: str) -> None:
    """Rows of a minute beside intervals of five are not added as if each were one."""
    page.open(address)
    begin_ms = int(datetime(2022, 6, 1, tzinfo=UTC).timestamp() * 1000)
    ends = [begin_ms + 300_000 * n for n in range(1, 145)]  # until noon
    mean = {"mean": [500.0] * len(ends), "min": [], "max": []}
    series = json.dumps({"interval_s": 300, "end_ms": ends, "values": {"out_radiation_w_m2": mean}})
    for step_s, sum_j in ((60, 2160), (300, 2175)):
        row = json.dumps({
            "origin_ms": ends[-1] + 1000 * step_s, "step_s": step_s,
            "now": {"out_radiation_w_m2": 500}, "now_age_s": {},
        })  # fmt: skip
        said = ask(page, "past", f"m.lightSum(m.withRow({series}, {row}), {ends[-1] + 1000 * step_s}, 'UTC')")
        assert said == pytest.approx(sum_j)


@pytest.mark.parametrize(
    "zone", ["Europe/Amsterdam", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata"]
)
def test_moments_and_walls_fit_each_other(page: Page, address: str, zone: str) -> None:
    """Over a year, around each change of the clock and beside it: offset, midnight and the moment of a wall time are
    what Python says.
    """
    page.open(address)
    place = ZoneInfo(zone)
    begin = datetime(2022, 1, 1, tzinfo=UTC)
    hours = [begin + timedelta(hours=7 * n) for n in range(1250)]
    said = ask(page, "clock", f"{json.dumps([int(one.timestamp() * 1000) for one in hours])}.map((ms) => "
               f"[m.offsetMs(ms, '{zone}'), m.midnightOf(ms, '{zone}'), m.timeOf(ms, '{zone}')])")  # fmt: skip
    for moment, (offset, midnight, clock) in zip(hours, said, strict=True):
        local = moment.astimezone(place)
        assert offset == (local.utcoffset() or timedelta()).total_seconds() * 1000, moment
        start = local.replace(hour=0, minute=0)
        assert midnight == start.timestamp() * 1000, moment
        assert clock == f"{local:%H:%M}", moment


@pytest.mark.parametrize(
    "left_out",
    [
        datetime(2022, 3, 13, 2, 30, tzinfo=ZoneInfo("America/New_York")),
        datetime(2022, 3, 27, 2, 30, tzinfo=ZoneInfo("Europe/Amsterdam")),
        datetime(2022, 10, 2, 2, 15, tzinfo=ZoneInfo("Australia/Lord_Howe")),
    ],
)
def test_a_time_that_the_clock_leaves_out_is_one_after_it(page: Page, address: str, left_out: datetime) -> None:
    """West of Greenwich and east of it: as much later as the clock goes forward, which is what Python says."""
    page.open(address)
    wall = [left_out.year, left_out.month, left_out.day, left_out.hour, left_out.minute, str(left_out.tzinfo)]
    assert ask(page, "clock", f"m.momentOf(...{json.dumps(wall)})") == left_out.timestamp() * 1000


@pytest.mark.parametrize(
    ("zone", "month", "day"),
    [
        ("America/New_York", 3, 12),
        ("America/New_York", 11, 5),
        ("Europe/Amsterdam", 3, 26),
        ("Europe/Amsterdam", 10, 29),
    ],
)
def test_a_night_without_a_place_is_from_19_to_7_by_the_clock(
    page: Page, address: str, zone: str, month: int, day: int
) -> None:
    """Also on the night in which the clock changes, and on the day after it."""
    page.open(address)
    noon = datetime(2022, month, day, 12, tzinfo=ZoneInfo(zone))
    wanted = [[noon + timedelta(days=n, hours=7), noon + timedelta(days=n, hours=19)] for n in (0, 1)]
    span = [int(one.timestamp() * 1000) for one in (noon, noon + timedelta(days=2))]
    site = json.dumps({"timezone": zone, "latitude": None})
    said = ask(page, "sun", f"m.nights({span[0]}, {span[1]}, {site})")
    assert said == [[one.timestamp() * 1000 for one in night] for night in wanted]


@pytest.mark.parametrize(
    ("latitude", "longitude", "zone"),
    [(51.98, 4.53, "Europe/Amsterdam"), (-36.85, 174.76, "Pacific/Auckland"), (36.8, -2.5, "Europe/Madrid")],
)
def test_the_sun_rises_when_it_is_on_the_horizon(
    page: Page, address: str, latitude: float, longitude: float, zone: str
) -> None:
    """At sunrise and sunset the sun of the forecaster's own features stands where it is called so, all year."""
    page.open(address)
    days = [int(datetime(2022, 1, 1, 12, tzinfo=UTC).timestamp() * 1000) + n * 9 * 86_400_000 for n in range(40)]
    said = ask(page, "clock", f"import('/page/sun.js').then((sun) => {json.dumps(days)}.map((ms) => "
               f"sun.sunOfDay(m.midnightOf(ms, '{zone}'), {latitude}, {longitude})))")  # fmt: skip
    place = ZoneInfo(zone)
    for day, sun in zip(days, said, strict=True):
        local = datetime.fromtimestamp(day / 1000, UTC).astimezone(place).date()
        for name in ("rise", "set"):
            moment = datetime.fromtimestamp(sun[name] / 1000, UTC).astimezone(place)
            assert moment.date() == local, (moment, local)
            assert (moment.hour < 12) == (name == "rise")
        moments = np.array([sun["rise"], sun["set"]]) / 1000
        height = 90 - np.asarray(sunpos(moments, latitude, longitude, 0, jit=False)[1]).ravel()
        assert np.abs(height + 0.27).max() < 0.2, (local, height)  # as seen, with refraction: its upper edge


def test_sums_of_light_and_dew_points(page: Page, address: str) -> None:
    """Radiation becomes J/cm² from midnight on, of what is foreseen only what is left of today; the dew point is that
    of FAO's paper 56.
    """
    page.open(address)
    noon = int(datetime(2022, 6, 1, 10, tzinfo=UTC).timestamp() * 1000)  # 12:00 in Amsterdam
    series = f"""{{interval_s: 300, end_ms: Array.from({{length: 200}}, (_, n) => {noon} - (199 - n) * 300000),
        values: {{out_radiation_w_m2: {{mean: Array(200).fill(100)}}}}}}"""
    # 12 h of 100 W/m² are 4.32 MJ/m², 432 J/cm²; a foreseen 200 W/m² for the other 12 h are 864.
    assert ask(page, "past", f"m.lightSum({series}, {noon}, 'Europe/Amsterdam')") == pytest.approx(432)
    ahead = f"{{time: [{noon}, {noon} + 86400000], values: [200, 200]}}"
    # Of a sensor that reports every 15 minutes as much; of one that was silent for hours nothing.
    for hidden, total in (("n % 3 !== 1", 432), ("n > 120 && n < 150", None), ("n > 190", 405)):
        hide = f"s.values.out_radiation_w_m2.mean.forEach((_, n, all) => {{ if ({hidden}) all[n] = null; }})"
        said = ask(page, "past", f"((s) => ({hide}, m.lightSum(s, {noon}, 'Europe/Amsterdam')))({series})")
        assert said == (total and pytest.approx(total, rel=0.02)), hidden
    # Silence at night takes nothing from a day's light, but lamps may burn then; of a first day nobody knows.
    for hidden, total in (("n > 60 && n < 100", 253.8), ("n < 110", None), ("n > 60 && n < 130", None)):
        fill = f"all.forEach((_, n) => {{ all[n] = {hidden} ? null : n > 115 ? 100 : 1; }})"
        both = "Object.assign(s.values, {par_umol_m2_s: s.values.out_radiation_w_m2})"
        sums = f"['lightSum', 'parSum'].map((sum) => m[sum](s, {noon}, 'Europe/Amsterdam'))"
        made = f"((s, all = s.values.out_radiation_w_m2.mean) => ({fill}, {both}, {sums}))({series})"
        assert ask(page, "past", made) == [total and pytest.approx(total), None], hidden
    nowhere = "{timezone: 'Europe/Amsterdam', latitude: null}"
    assert ask(page, "past", f"m.lightAhead({ahead}, {noon}, {nowhere})") == pytest.approx(864)
    # What ends before the sun sets, at 21:51, says nothing of the day; what ends at 22:00 does.
    amsterdam = "{timezone: 'Europe/Amsterdam', latitude: 52.37, longitude: 4.9}"
    for hours, there, total in ((6, amsterdam, None), (10, nowhere, None), (10, amsterdam, 720)):
        ahead = f"{{time: [{noon}, {noon} + {hours} * 3600000], values: [200, 200]}}"
        assert ask(page, "past", f"m.lightAhead({ahead}, {noon}, {there})") == (total and pytest.approx(total))
    assert ask(page, "past", "m.dewPoint(20, 50)") == pytest.approx(9.27, abs=0.01)
    assert ask(page, "past", "m.dewPoint(20, null)") is None


def test_nothing_is_drawn_where_nothing_was_said(page: Page, address: str) -> None:
    """A day without forecasts is a gap in every line, not a straight one; a single time that lacks is none."""
    page.open(address)
    said = ask(page, "past", "m.broken([0, 300000, 900000, 90000000, 90300000], [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])")
    assert said["time"] == [0, 300_000, 900_000, 901_000, 90_000_000, 90_300_000]
    assert said["values"] == [[1, 2, 3, None, 4, 5], [6, 7, 8, None, 9, 10]]
    assert ask(page, "past", "m.broken([], [[]])") == {"time": [], "values": [[]]}


def test_the_light_asks_for_more_or_less_warmth(page: Page, address: str) -> None:
    """How far the mean is from what the light asks for is told by its side, as a difference."""
    page.open(address)
    why = [{"name": "beside_light", "value": value, "unit": "°C", "label": ""} for value in (-2.3, 4.7)]
    units = "import('/page/units.js').then((units) => units.learnUnits({air_temp_c: '°C'}))"
    said = ask(page, "views/parts", f"{units}.then(() => m.whyWords({{why: {json.dumps(why)}}}))")
    asks = "what the light asks for"
    assert said.replace("\u00a0", " ") == f"24-hour mean 2.3 °C below {asks}, 24-hour mean 4.7 °C above {asks}"


def test_a_difference_that_is_shown_as_nothing_has_no_sign(page: Page, address: str) -> None:
    """Else a band would end at "−0 ppm"."""
    page.open(address)
    said = ask(
        page,
        "units",
        "(m.learnUnits({co2_ppm: 'ppm'}), [-14.2, -0.3, 0, 0.3, 0.6].map((one) => m.signed(one, 'co2_ppm')))",
    )
    assert [one.replace("\u00a0", " ") for one in said] == ["−14 ppm", "0 ppm", "0 ppm", "0 ppm", "+1 ppm"]


def test_what_the_gate_says_becomes_shares(page: Page, address: str) -> None:
    """Ratios of errors are told as how much less or more it errs, nearer end first; where it may be either, both are
    named. A swap is told by what it replaced.
    """
    page.open(address)
    reason = (
        "In shadow: The challenger's error is 0.741 (0.709 to 0.778) of persistence, 0.563 (0.551 to 0.578) of "
        "the 24-hour naive, 1.020 (1.010 to 1.030) of v2, "
        "0.998 (0.985 to 1.010) of v3, over 6,474 rows in 8 blocks of 12 h."
    )
    words = "import('/page/words.js').then((words) => words.learn('.models'))"  # of the view that shows it
    said = ask(page, "evidence", f"{words}.then(() => m.evidenceIn({json.dumps(reason)}).map(m.evidenceWords))")
    assert said == [
        "26\u00a0% less error than “it stays as it is” (22\u00a0% to 29\u00a0%)",
        "44\u00a0% less error than “as yesterday” (42\u00a0% to 45\u00a0%)",
        "2.0\u00a0% more error than v2 (1.0\u00a0% to 3.0\u00a0%)",
        "about as much error as v3 (from 1.5\u00a0% less to 1.0\u00a0% more)",
    ]
    better = reason.replace("1.020 (1.010 to 1.030)", "0.960 (0.95 to 0.97)")
    swap = {"kind": "swap", "version": "v3", "before": "v2", "reason": better}
    assert ask(page, "evidence", f"m.eventWords({json.dumps(swap)}, '14:05')") == (
        "14:05: the model was replaced by one with 4.0\u00a0% less error (v3 instead of v2)."
    )
    swap["reason"] = reason.replace("1.020 (1.010 to 1.030)", "0.998 (0.985 to 1.010)")
    assert ask(page, "evidence", f"m.eventWords({json.dumps(swap)}, '14:05')") == (
        "14:05: v2 was replaced by v3 (the network)."
    )
    first = {"kind": "swap", "version": "tuned-v1", "before": "online"}
    for ratio, gain in (
        ("0.965 (0.957 to 0.976) of the untuned", "; it has 3.5\u00a0% less error than the forecast without it"),
        ("0.965 (0.957 to 0.976) of the climatology", "; it has 3.5\u00a0% less error than the usual day"),
        ("1.035 (1.027 to 1.046) of the climatology", ""),
    ):
        told = json.dumps({**first, "reason": f"The challenger's error is {ratio} forecast"})
        begins = "14:05: tuned-v1 forecasts, and until then none of its kind did (the network tuned to your zones)"
        assert ask(page, "evidence", f"m.eventWords({told}, '14:05')") == f"{begins}{gain}."
    for kind in ("swap", "rollback"):
        out = json.dumps({"kind": kind, "version": "online", "before": "trees-v2"})
        assert ask(page, "evidence", f"m.eventWords({out}, '14:05')") == (
            "14:05: trees-v2 was taken out of service (the trees)."
        )


def test_a_training_that_failed_says_why(page: Page, address: str) -> None:
    """Its event names what began it and what went wrong; other errors have only the latter."""
    page.open(address)
    words = "import('/page/words.js').then((words) => words.learn('.models'))"
    failed = {"kind": "error", "message": "the disk is full", "trigger": "operator"}
    told = ask(page, "evidence", f"{words}.then(() => m.eventWords({json.dumps(failed)}, '14:05'))")
    assert told == "14:05: a training failed (operator): the disk is full"
    del failed["trigger"]
    assert ask(page, "evidence", f"m.eventWords({json.dumps(failed)}, '14:05')") == "14:05: the disk is full"


def test_all_that_was_counted_is_all_of_it(page: Page, address: str) -> None:
    """Five of five forecasts are 100 %; a chance is never certain."""
    page.open(address)
    parts = "[0, 0.004, 0.5, 0.995, 1]"
    said = ask(page, "units", f"{parts}.map(m.shareOf)")
    assert [one.replace("\u00a0", " ") for one in said] == ["0 %", "under 1 %", "50 %", "over 99 %", "100 %"]
    assert [one.replace("\u00a0", " ") for one in ask(page, "units", "[0, 1].map(m.percent)")] == [
        "under 1 %",
        "over 99 %",
    ]


@pytest.mark.parametrize("day", [datetime(2022, 6, 23, 16, tzinfo=UTC), datetime(2022, 12, 21, 16, tzinfo=UTC)])
def test_where_the_sun_does_not_set_no_night_is_awaited(page: Page, address: str, day: datetime) -> None:
    """Nor where it does not rise: it is not that none is over yet."""
    page.open(address)
    site = "{timezone: 'Europe/Oslo', latitude: 69.65, longitude: 18.96}"
    asked = f"m.lastNightWords('demo/north-1', {site}, {int(day.timestamp() * 1000)}, 720).then((said) => said.words)"
    said = ask(page, "quality_words", asked)
    assert said == "The sun does not rise or does not set here now: there is no night to look at."


def test_a_setpoint_is_drawn_for_as_long_as_it_holds(page: Page, address: str) -> None:
    """The last one of a plan for a day, as forecasts take it; a weather forecast ends with its last value."""
    page.open(address)
    plans = [
        {"kind": "setpoint", "zone": "z", "issued_ms": 0, "values": {"sp_heat_c": [[0, 16], [3_600_000, 18]]}},
        {"kind": "weather", "zone": "_site", "issued_ms": 0, "values": {"out_temp_c": [[0, 5], [3_600_000, 7]]}},
    ]
    shown = f"""(async () => {{
        const found = {{}};
        const charts = new m.ZoneCharts(document.createElement('div'), 'demo/z', () => {{}});
        Object.assign(charts, {{
            past: async () => ({{interval_s: 300, end_ms: [0], values: {{out_temp_c: {{mean: [5]}}}}}}),
            charts: {{climate: {{describe: () => {{}}}}}},
            part: (id, isThere, title, options, lines) => {{ found[id] = lines(); }},
        }});
        await charts.show({{
            forecast: {{origin_ms: 0, forecasts: {{}}, now: {{}}, now_age_s: {{}}, path: null}}, recent: {{}},
            plans: {json.dumps(plans)}, target: 'air_temp_c', site: {{timezone: 'UTC', latitude: null}},
            zone: {{label: 'z'}}, range: {{from: 0, to: 86400000}},
        }});
        return Object.values(found).flat().filter((line) => line.dash).map(({{time, values}}) => [time, values]);
    }})()"""
    assert ask(page, "views/zone_charts", f"await {shown}") == [
        [[0, 3_600_000, 90_000_000], [16, 18, 18]],
        [[0, 3_600_000], [5, 7]],
    ]


def test_the_line_of_a_sensor_that_reports_seldom_goes_on(page: Page, address: str) -> None:
    """Rows between two of its readings have nothing; it ends where it was silent for far longer than usual."""
    page.open(address)
    minutes = [*range(5, 125, 5), *range(300, 425, 5)]  # rows; none for hours between
    values = {
        "seldom": [20 if at % 15 == 0 else None for at in minutes],
        "always": [None if 60 <= at < 100 else 20 for at in minutes],
    }
    series = json.dumps({
        "interval_s": 300, "end_ms": [at * 60_000 for at in minutes],
        "values": {name: {"mean": mean} for name, mean in values.items()},
    })  # fmt: skip
    line = "(({time, values}) => time.map((ms, n) => [ms / 60000, values[n] === undefined ? 'on' : values[n]]))"
    seldom, always = (dict(ask(page, "past", f"{line}(m.lineOf({series}, '{name}'))")) for name in values)
    assert [at for at, value in seldom.items() if value is None] == [5, 10, pytest.approx(120 + 1 / 60)]
    assert {seldom[at] for at in (20, 25, 110, 310)} == {"on"}
    assert [at for at, value in always.items() if value is None] == [*range(60, 100, 5), pytest.approx(120 + 1 / 60)]
    spans = [(0, 120), (120, 425), (0, 425)]
    means = [ask(page, "past", f"m.meanOf({series}, 'seldom', {a} * 60000, {b} * 60000)") for a, b in spans]
    assert means == [20, None, 20]
    # Twelve quiet hours at 18 °C, of a sensor that reports on change, are as long as twelve busy ones at 24 °C.
    at = [*range(20, 740, 20), *range(725, 1445, 5)]
    mean = [18 if minute <= 720 else 24 for minute in at]
    uneven = {"interval_s": 300, "end_ms": [minute * 60_000 for minute in at], "values": {"air": {"mean": mean}}}
    assert ask(page, "past", f"m.meanOf({json.dumps(uneven)}, 'air', 0, 86400000)") == pytest.approx(21)
    two = {"interval_s": 300, "end_ms": [300_000, 86_100_000], "values": {"air": {"mean": [18, 24]}}}
    assert ask(page, "past", f"m.meanOf({json.dumps(two)}, 'air', 0, 86400000)") is None
    few = json.dumps({"interval_s": 300, "end_ms": [0, 900_000, 6_300_000], "values": {"few": {"mean": [1, 2, 3]}}})
    gap = f"m.lineOf({few}, 'few').values.includes(null)"
    assert ask(page, "past", gap) is True
    came = "m.broken([0, 300000, 600000, 900000], [[1, 1, 1, 1], [5, null, null, 6]]).values[1]"
    assert ask(page, "past", f"{came}.map((one) => one === undefined ? 'on' : one)") == [5, "on", "on", 6]
