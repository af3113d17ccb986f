"""Alerts on the page: they fire, are seen, muted and over, and are read out; orders that fail say why."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge.wire.alert_orders import AcknowledgeAlert, MuteRule, decode_order
from edge.wire.topic import parse_topic
from models.alerts.alert_book import RULE_GONE, Alert, AlertBook, RuleFinding
from models.alerts.alert_rule import AlertRule
from services.access_keys import AccessKeys
from services.ingest.alerts.shown_alert import shown_alert
from services.messages import ShownAlert
from services.serve.api.auth import Keys
from services.serve.api.problems import ProblemError
from tests.browser.driver import Page
from tests.browser.rows import new_row
from tests.browser.serving import HOUR_MS, STEP_MS, House, opened
from tests.patience import patience_s, until
from tests.services.alert.told import change
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"


STATE = "document.getElementById('state').textContent"


RULE = AlertRule(name="condensation", kind="condensation", severity="critical", chance=0.3, keep_min=0)


LIKELY = RuleFinding(
    0.72, False, ORIGIN_MS + 3 * HOUR_MS, ORIGIN_MS + 5 * HOUR_MS, "condensation 72 %",
    (("air", 11.8), ("dew_point", 11.2)),
)  # fmt: skip


class Alerts:
    """The alerts of a house as a shard keeps them: what rules find and what people order changes them."""

    def __init__(self, house: House) -> None:
        self.house, self.book, self.now_ms = house, AlertBook([RULE]), ORIGIN_MS
        house.backend.publish = self._publish  # type: ignore[method-assign]

    def see(self, finding: RuleFinding) -> None:
        """The rule looks at the first zone, half an hour after it looked before."""
        self.now_ms += HOUR_MS // 2
        changed = self.book.see(self.now_ms, "demo", "north-1", RULE.name, finding)
        self.house.do(self._show(changed))

    def end(self) -> None:
        """The rule is switched off."""
        self.house.do(self._show(self.book.end(self.now_ms, "demo", "north-1", RULE_GONE)))

    async def _publish(self, topic: str, payload: bytes) -> None:
        where, order = parse_topic(topic), decode_order(payload)
        assert where is not None
        match order:
            case AcknowledgeAlert(id=id):
                changed = self.book.acknowledge(self.now_ms, id)
            case MuteRule(rule=rule, until_ms=until_ms):
                changed = self.book.mute(self.now_ms, where.site, where.zone, rule, until_ms)
            case _:
                raise AssertionError(order)
        await self._show(changed)

    async def _show(self, changed: list[Alert]) -> None:
        shown = {alert.id: shown_alert(alert) for alert in [*self.book, *changed]}
        await self.house.live_state.put_alerts(list(shown.values()))


def press(page: Page, words: str) -> None:
    """Press the button with these words, once it is there."""
    found = f"[...document.querySelectorAll('#view button')].find((one) => one.textContent === {words!r})"
    page.until(f"{found} && !{found}.disabled")
    page.ask(f"{found}.click()")


def test_an_alert_of_a_silent_zone_says_of_when_its_readings_are(page: Page, tmp_path: Path) -> None:
    """Its chance stays as it was for hours; what a rule says of silence itself needs no such words."""
    house = House(tmp_path)
    house.fill()
    house.do(house.live_state.publish([house.forecast("north-1", freshness_s={"air_temp_c": 7200.0})]))
    times = {"zone": "north-1", "from_ms": ORIGIN_MS + HOUR_MS, "until_ms": ORIGIN_MS + 3 * HOUR_MS}
    kinds = {"a1": "frost", "a2": "stale_zone", "a3": "heat"}
    told = [change(id, kind=kind, rule=kind, **times) for id, kind in kinds.items()]
    told[2]["zone"] = "north-2"
    house.do(house.live_state.put_alerts(told))
    said = "document.querySelector('[data-alert={}]').innerText"
    with opened(house) as address:
        for view in ("now", "zone/demo/north-1"):
            page.renew()
            page.open(f"{address}/#/{view}")
            page.until(f"{said.format('a1')}.includes('Last readings: Mon 28 Feb, 23:00')")
            assert "Last readings" not in page.ask(said.format("a2"))
            assert view != "now" or "Last readings" not in page.ask(said.format("a3"))


def test_an_alert_fires_is_seen_and_is_over(page: Page, tmp_path: Path) -> None:
    """It appears at once with what, how sure, when and why, and its zone comes first; the operator makes it quiet,
    wants to be warned again, and says that it was seen; what is over is kept apart.
    """
    house = House(tmp_path)
    house.fill()
    alerts = Alerts(house)
    state = "document.querySelector('[data-alert]').dataset.state"
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('No alert.')")
        alerts.see(LIKELY)
        page.until(f"{VIEW}.includes('Condensation: 72 % between 04:00 and 06:00')")
        said = page.ask(VIEW)
        assert "Tomatoes, north · air 11.8 °C, dew point 11.2 °C" in said
        assert "1 alert." in said
        assert page.ask("document.querySelector('.zone').innerText").startswith("Tomatoes, north")
        assert page.barriers() == []
        press(page, "Quiet for 8 h")
        page.until("document.getElementById('order-key').open")
        assert page.barriers() == []
        page.type("op-key")
        page.press("Enter")
        page.until(f"{state} === 'muted'")
        page.until(f"{VIEW}.includes('quiet until 09:01')")
        press(page, "Warn again")
        page.until(f"{state} === 'firing'")
        press(page, "Seen")
        page.until(f"{state} === 'acknowledged'")
        page.until(f"{VIEW}.includes('Nothing new needs you now: 1 alert is seen or quiet.')")
        page.ask("location.hash = '#/zone/demo/north-1'")
        page.until(f"{VIEW}.includes('Condensation: 72 % between 04:00 and 06:00')")
        alerts.see(replace(LIKELY, chance=1.0, is_now=True, from_ms=alerts.now_ms))
        page.until(f"{VIEW}.includes('Condensation since 01:30, probably until 06:00')")
        assert "expected: air 11.8 °C, dew point 11.2 °C" in page.ask(VIEW)  # of the hours to come, not of now
        alerts.see(RuleFinding(0.0))
        page.until(f"{VIEW}.includes('No alert in this zone.')")
        page.ask("location.hash = '#/now'")
        page.until("document.querySelector('#over')")
        page.ask("document.querySelector('#over summary').click()")
        page.until(f"{VIEW}.includes('it came')")


def test_an_alert_whose_rule_is_gone_says_so(page: Page, tmp_path: Path) -> None:
    """Not that nothing came: it was to come later; nor until when it will last."""
    house = House(tmp_path)
    house.fill()
    alerts = Alerts(house)
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('No alert.')")
        alerts.see(LIKELY)
        page.until(f"{VIEW}.includes('1 alert.')")
        alerts.end()
        page.until("document.querySelector('#over')")
        page.ask("document.querySelector('#over summary').click()")
        page.until(f"{VIEW}.includes('its rule was changed · over at')")
        assert "it did not come" not in page.ask(VIEW)
        alerts.see(replace(LIKELY, chance=1.0, is_now=True, from_ms=alerts.now_ms))
        page.until(f"{VIEW}.includes('probably until')")
        alerts.end()
        page.until(f"{VIEW}.includes('No alert.')")
        page.until(f"{VIEW}.includes('it came')")
        assert "probably" not in page.ask(VIEW)
        assert "expected: its rule" not in page.ask(VIEW)


def test_a_key_of_some_sites_is_told_what_it_may_not_order(page: Page, tmp_path: Path) -> None:
    """With the API's sentence; it is not forgotten, and gives orders about its own sites."""
    named = AccessKeys(tmp_path / "keys")
    key = named.add("grower", "operate", 0, sites=["demo"])
    house = House(tmp_path, keys=Keys("op-key", named=named))
    house.fill()
    alerts = Alerts(house)
    with opened(house) as address:
        page.open(f"{address}/#/models")
        press(page, "Train now")
        page.until("document.getElementById('sure').open")
        page.ask("document.getElementById('sure-yes').click()")
        page.until("document.getElementById('order-key').open")
        page.type(key)
        page.press("Enter")
        page.until(f"{VIEW}.includes('about all sites, and the key grower is limited to demo')")
        assert not page.ask("document.getElementById('order-key').open")
        page.ask("location.hash = '#/now'")
        page.until(f"{VIEW}.includes('No alert.') && {STATE} === 'live'")
        alerts.see(LIKELY)
        press(page, "Seen")
        page.until("document.querySelector('[data-alert]').dataset.state === 'acknowledged'")
        assert not page.ask("document.getElementById('order-key').open")


def test_orders_that_wait_for_a_key_are_all_given(page: Page, tmp_path: Path) -> None:
    """Two buttons that are pressed before the page knows that a key is needed: it is asked for once. A wrong one is
    told once, too.
    """
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        told = [change(id, zone="north-2", changed_ms=ORIGIN_MS, seen_ms=ORIGIN_MS) for id in ("a1", "a2")]
        house.do(house.live_state.put_alerts(told))
        page.open(address)
        page.until("document.querySelectorAll('[data-alert]').length === 2")
        page.ask("['a1', 'a2'].forEach((id) => document.querySelector(`[data-key='${id} acknowledge']`).click())")
        for key in ("wrong", "op-key"):
            page.until("document.getElementById('order-key').open")
            page.ask(
                "fetch('page/style.css', {cache: 'reload'}).then((answer) => answer.text())"
            )  # the second refusal came, too
            page.type(key)
            page.press("Enter")
            if key == "wrong":
                page.until("document.getElementById('order-key-said').textContent === 'This key does not allow that.'")
        until(lambda: len(house.backend.published) == 2, "both orders are given")
        page.until("[...document.querySelectorAll('[data-order]')].every((one) => one.ariaDisabled === null)")
        assert not page.ask("document.getElementById('order-key').open")


def test_the_focus_stays_with_an_alert(page: Page, tmp_path: Path) -> None:
    """Where the button that was pressed goes, the first that is there now has it, also in a list that was drawn while
    the key was asked for; a fold that is drawn anew keeps it.
    """
    house = House(tmp_path)
    house.fill()
    alerts = Alerts(house)
    state = "document.querySelector('[data-alert]').dataset.state"
    focused = "document.activeElement.dataset.key ?? ''"
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('No alert.') && {STATE} === 'live'")
        alerts.see(LIKELY)
        page.until("document.querySelector('[data-key$=\" acknowledge\"]')")
        page.ask("document.querySelector('[data-key$=\" acknowledge\"]').focus()")
        page.press("Enter")
        page.until("document.getElementById('order-key').open")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        page.type("op-key")
        page.press("Enter")
        page.until(f"{state} === 'acknowledged' && ({focused}).endsWith(' mute')")
        new_row(page, house, ORIGIN_MS + 2 * STEP_MS)
        assert page.ask(focused).endswith(" mute")
        orders, works = list[tuple[str, bytes]](), house.backend.publish

        async def later(topic: str, payload: bytes) -> None:
            await asyncio.sleep(0)
            orders.append((topic, payload))

        house.backend.publish = later  # type: ignore[method-assign]
        page.press("Enter")
        until(lambda: len(orders) == 1, "the order is there")
        page.until("!document.querySelector('#view [aria-disabled=true]')")
        house.do(works(*orders[0]))  # what was ordered holds a moment after the answer
        page.until(f"{state} === 'muted' && ({focused}).endsWith(' acknowledge')")
        pending = change("p1", state="pending", zone="north-2", changed_ms=ORIGIN_MS, seen_ms=ORIGIN_MS)
        house.do(house.live_state.put_alerts([pending]))
        page.until("document.querySelector('#pending summary')")
        page.ask("document.querySelector('#pending summary').focus()")
        new_row(page, house, ORIGIN_MS + 3 * STEP_MS)
        assert page.ask("document.activeElement === document.querySelector('#pending summary')")
        assert page.barriers() == []


def test_a_new_alert_is_read_out(page: Page, tmp_path: Path) -> None:
    """What needs somebody stands in one element for as long as the view is open, whose text changes only where it says
    something else: that is what a screen reader tells.
    """
    house = House(tmp_path)
    house.fill()
    alerts = Alerts(house)
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('Nothing needs you now') && {STATE} === 'live'")
        page.ask("""{ window.lead = document.querySelector('#view .lead[role=status]'); window.told = [];
            const look = new MutationObserver(() => window.told.push(window.lead.textContent));
            look.observe(window.lead, {childList: true, characterData: true, subtree: true}); }""")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        assert page.ask("window.told") == []
        alerts.see(LIKELY)
        page.until("window.told.length")
        assert page.ask("window.told.at(-1)").startswith("1 alert.")
        assert page.ask("window.lead.isConnected")


def test_an_alert_that_is_told_while_all_are_asked_for_stays(page: Page, tmp_path: Path) -> None:
    """The answer was made before it fired, and comes after the page was told of it."""
    house = House(tmp_path)
    house.fill()
    alerts = Alerts(house)
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('No alert.') && {STATE} === 'live'")
        page.ask("""{ const real = window.fetch;
            window.fetch = async (path, ...more) => {
                const answer = await real(path, ...more);
                if (path === 'alerts') await new Promise((go) => { window.release = go; });
                return answer;
            }; }""")
        page.ask("void import('/page/store.js').then((store) => { window.asked = store.loadAll(); })")
        page.until("window.release")
        alerts.see(LIKELY)
        page.until(f"{VIEW}.includes('Condensation: 72 % between 04:00 and 06:00')")
        page.ask("window.release()")
        page.ask("window.asked")
        assert "Condensation: 72 % between 04:00 and 06:00" in page.ask(VIEW)


def test_an_alert_without_a_zone_has_a_place_and_its_clock(page: Page, tmp_path: Path) -> None:
    """One of the whole site, and one of a zone that has left, name the site, and tell times by its clock; what was
    days ago has its day.
    """
    house = House(tmp_path)
    house.fill()
    told: dict[str, Any] = {"rule": "drift", "kind": "drift", "severity": "warning"}
    of_site = change("d1", zone="_site", **told, changed_ms=ORIGIN_MS - 2 * HOUR_MS, seen_ms=ORIGIN_MS)
    left = change("d2", zone="old-7", **told, changed_ms=ORIGIN_MS - 52 * HOUR_MS, seen_ms=ORIGIN_MS - 51 * HOUR_MS)
    house.do(house.live_state.put_alerts([of_site, left]))
    words = "document.querySelector('[data-alert={id}] p').textContent"
    with opened(house) as address:
        page.open(address)
        page.until("document.querySelectorAll('[data-alert]').length === 2")
        assert page.ask(words.format(id="d1")).startswith("Demo house · ")
        assert page.ask(words.format(id="d1")).endswith("warned on Mon 28 Feb, 23:00")
        assert page.ask(words.format(id="d2")).startswith("Demo house, old-7 · ")
        assert page.ask(words.format(id="d2")).endswith("warned on Sat 26 Feb, 21:00")
        assert page.complaints == []


def test_an_alert_about_another_day_names_it(page: Page, tmp_path: Path) -> None:
    """Of what is expected tomorrow, or until then, and of what is over; today's times have none."""
    house = House(tmp_path)
    house.fill()

    def expected(id: str, from_h: int, to_h: int, state: str = "firing") -> ShownAlert:
        span = {"from_ms": ORIGIN_MS + from_h * HOUR_MS, "until_ms": ORIGIN_MS + to_h * HOUR_MS}
        return change(id, state=state, zone="north-1", rule=id, **span, changed_ms=ORIGIN_MS, seen_ms=ORIGIN_MS)

    told = [
        (expected("today", 3, 5), "72 % between 04:00 and 06:00"),
        (expected("night", 21, 26), "72 % between 22:00 and Wed 2 Mar, 03:00"),
        (expected("tomorrow", 25, 27), "72 % between Wed 2 Mar, 02:00 and 04:00"),
        (expected("moment", 25, 25), "72 % from Wed 2 Mar, 02:00"),
        (expected("past", -52, -50, "resolved"), "72 % between Sat 26 Feb, 21:00 and 23:00"),
    ]
    with opened(house) as address:
        house.do(house.live_state.put_alerts([alert for alert, _ in told]))
        page.open(address)
        page.until(f"document.querySelectorAll('[data-alert]').length === {len(told)}")
        for alert, words in told:
            found = page.ask(f"document.querySelector('[data-alert={alert['id']}] strong').textContent")
            assert found.replace("\u00a0", " ").endswith(words)


def test_why_an_order_failed_is_told_in_a_list_that_was_drawn_meanwhile(page: Page, tmp_path: Path) -> None:
    """It stays when rows come after it; the next try takes it away."""
    house = House(tmp_path)
    house.fill()
    alerts = Alerts(house)
    go_on, works = threading.Event(), house.backend.publish

    async def away(topic: str, payload: bytes) -> None:
        await asyncio.to_thread(go_on.wait, patience_s(60))
        raise ProblemError(503, "the broker is away")

    with opened(house) as address:
        alerts.see(LIKELY)
        house.backend.publish = away  # type: ignore[method-assign]
        page.open(address)
        press(page, "Seen")
        page.until("document.getElementById('order-key').open")
        page.type("op-key")
        page.press("Enter")
        page.until("!document.getElementById('order-key').open")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        go_on.set()
        page.until(f"{VIEW}.includes('the broker is away')")
        new_row(page, house, ORIGIN_MS + 2 * STEP_MS)
        assert "the broker is away" in page.ask(VIEW)
        house.backend.publish = works  # type: ignore[method-assign]
        press(page, "Seen")
        page.until("document.querySelector('[data-alert]').dataset.state === 'acknowledged'")
        assert "the broker is away" not in page.ask(VIEW)
