"""Alerts of one rule in many zones, as on a cold night: one entry that opens to them, and orders about all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.wire.alert_orders import AcknowledgeAlert, decode_order
from services.messages import ShownAlert
from services.serve.api.problems import ProblemError
from tests.browser.driver import Page
from tests.browser.rows import new_row
from tests.browser.serving import HOUR_MS, STEP_MS, House, opened
from tests.services.alert.told import change
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
FOCUSED = "document.activeElement.dataset.key ?? ''"
PHONE = (390, 844)


class ColdNight:
    """A house in which the same rule fires in each zone, in the last of them most likely."""

    def __init__(self, folder: Path, count: int) -> None:
        self.house = House(folder, zones=[f"z{n}" for n in range(1, count + 1)])
        self.house.fill()
        self.alerts = {f"a{n}": self._alert(n, count) for n in range(1, count + 1)}
        self.house.do(self.house.live_state.put_alerts(list(self.alerts.values())))
        self.house.backend.publish = self._publish  # type: ignore[method-assign]
        self.fails_after = count

    @staticmethod
    def _alert(n: int, count: int) -> ShownAlert:
        span = {"from_ms": ORIGIN_MS + 3 * HOUR_MS, "until_ms": ORIGIN_MS + 5 * HOUR_MS}
        chance = 0.5 + 0.4 * n / count
        return change(f"a{n}", zone=f"z{n}", chance=chance, **span, changed_ms=ORIGIN_MS, seen_ms=ORIGIN_MS)

    async def _publish(self, topic: str, payload: bytes) -> None:
        if not self.fails_after:
            raise ProblemError(503, "the broker is away")
        self.fails_after -= 1
        order = decode_order(payload)
        assert isinstance(order, AcknowledgeAlert)
        self.alerts[order.id] = self._changed(order.id, state="acknowledged")
        await self.house.live_state.put_alerts([self.alerts[order.id]])

    def _changed(self, id: str, **more: Any) -> ShownAlert:
        before = self.alerts[id]
        return {**before, "change": before["change"] + 1, **more}  # type: ignore[typeddict-item]

    def ends(self, id: str) -> None:
        """The event of this alert is over."""
        self.alerts[id] = self._changed(id, state="resolved", came_true=False)
        self.house.do(self.house.live_state.put_alerts([self.alerts[id]]))


def test_a_cold_night_is_one_entry(browser: Page, tmp_path: Path) -> None:
    """It says the rule, how many zones, and the worst of them; on a phone the zones begin on the first screen. It opens
    to an alert a zone, the worst first, and stays open when rows come.
    """
    night = ColdNight(tmp_path, 44)
    browser.renew(*PHONE)
    with opened(night.house) as address:
        browser.open(address)
        browser.until("document.querySelectorAll('#zones .zone').length === 44")
        browser.until("document.querySelectorAll('[data-group]').length === 1")
        said = browser.ask("document.querySelector('[data-group]').innerText.replace(/\\s+/g, ' ')")
        assert said.startswith("Cold: 44 zones critical Worst: z44 · Cold: 90 % between 04:00 and 06:00 · air 1.8 °C")
        assert "44 alerts." in browser.ask(VIEW)
        assert browser.ask("document.getElementById('zones').getBoundingClientRect().top") < PHONE[1]
        assert browser.barriers() == []
        browser.ask("document.querySelector('[data-group] summary').focus()")
        browser.press("Enter")
        browser.until("document.querySelector('[data-group] details').open")
        items = "[...document.querySelectorAll('[data-group] [data-alert]')]"
        assert browser.ask(f"{items}.map((one) => one.dataset.alert)") == [f"a{n}" for n in range(44, 0, -1)]
        assert browser.barriers() == []
        new_row(browser, night.house, ORIGIN_MS + STEP_MS)
        assert browser.ask("document.querySelector('[data-group] details').open")
        assert browser.ask(FOCUSED).endswith(" summary")
        assert browser.ask("document.documentElement.scrollWidth") <= PHONE[0]
        night.ends("a44")
        browser.until(f"{VIEW}.includes('Cold: 43 zones')")
        for n in range(43, 2, -1):
            night.ends(f"a{n}")
        browser.until("!document.querySelector('[data-group]')")  # two stand by themselves
        assert browser.ask("document.querySelectorAll('#view [data-alert][data-state=firing]').length") == 2
    assert browser.complaints == []


@pytest.mark.parametrize(("fold", "changed"), [("info", {"severity": "info"}), ("pending", {"state": "pending"})])
def test_what_is_folded_is_grouped_too(page: Page, tmp_path: Path, fold: str, changed: dict[str, str]) -> None:
    """Things to know, and what may come: a rule is one entry in the fold, which stays open with it when rows come."""
    night = ColdNight(tmp_path, 12)
    for id in night.alerts:
        night.alerts[id] = night._changed(id, **changed)
    night.house.do(night.house.live_state.put_alerts(list(night.alerts.values())))
    group = f"#{fold} [data-group]"
    with opened(night.house) as address:
        page.open(address)
        page.until(f"document.querySelectorAll('{group}').length === 1")
        assert page.ask(f"document.querySelectorAll('#{fold} > ul > li').length") == 1
        for summary in (f"#{fold} > summary", f"{group} summary"):
            page.ask(f"document.querySelector('{summary}').focus()")
            page.press("Enter")
        page.until(f"document.querySelector('{group}').innerText.includes('Cold: 12 zones')")
        assert page.barriers() == []
        new_row(page, night.house, ORIGIN_MS + STEP_MS)
        assert page.ask(f"document.querySelector('{group} > details').open && document.getElementById('{fold}').open")
    assert page.complaints == []


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("nl", ("Kou: 44 afdelingen", "Ergste: z44", "Gezien: alle 44")),
        ("es", ("Frío: 44 zonas", "La peor: z44", "Vista: las 44")),
    ],
)  # fmt: skip
def test_a_group_speaks_the_language_of_the_page(
    page: Page, tmp_path: Path, language: str, words: tuple[str, ...]
) -> None:
    """Its name, the worst of it and its orders."""
    night = ColdNight(tmp_path, 44)
    page.speak(language)
    with opened(night.house) as address:
        page.open(address)
        for one in words:
            page.until(f"{VIEW}.includes({one!r})")


def test_an_order_about_a_group_is_given_for_each_alert(page: Page, tmp_path: Path) -> None:
    """The key is asked for once. Where it fails in between, the group that is left says why, and the next try is about
    those that are left; in the end all are in the group of those that were seen, which has the focus.
    """
    night = ColdNight(tmp_path, 12)
    night.fails_after = 5
    state = (
        "[...document.querySelectorAll('[data-alert]')].filter((one) => one.dataset.state === 'acknowledged').length"
    )
    with opened(night.house) as address:
        page.open(address)
        page.until("document.querySelector('[data-group]')")
        page.ask("document.querySelector('[data-group] > p > button').focus()")
        page.press("Enter")
        page.until("document.getElementById('order-key').open")
        page.type("op-key")
        page.press("Enter")
        page.until(f"{state} === 5 && {VIEW}.includes('Cold: 7 zones') && {VIEW}.includes('the broker is away')")
        new_row(page, night.house, ORIGIN_MS + STEP_MS)
        assert "the broker is away" in page.ask(VIEW)
        assert page.ask(FOCUSED).endswith("firing acknowledge")
        night.ends("a1")  # of those that are left; an order about it would be refused
        night.fails_after = 99
        page.press("Enter")
        page.until(f"{state} === 11 && document.querySelectorAll('[data-group]').length === 1")
        assert "the broker is away" not in page.ask(VIEW)
        page.until(f"({FOCUSED}).includes('acknowledged')")
        assert page.barriers() == []
    assert [said for said in page.complaints if not any(f"status of {code}" in said for code in (401, 409, 503))] == []


def test_a_group_that_dissolves_while_an_order_fails_says_why(page: Page, tmp_path: Path) -> None:
    """Of three alerts one is seen, then the broker is away: the two that are left, which are no group, say so."""
    night = ColdNight(tmp_path, 3)
    night.fails_after = 1
    with opened(night.house) as address:
        page.open(address)
        page.until("document.querySelector('[data-group]')")
        page.ask("document.querySelector('[data-group] > p > button').click()")
        page.until("document.getElementById('order-key').open")
        page.type("op-key")
        page.press("Enter")
        left = "[...document.querySelectorAll('[data-alert][data-state=firing]')]"
        page.until(f"!document.querySelector('[data-group]') && {left}.length === 2")
        page.until(f"{left}.every((one) => one.lastElementChild.textContent.includes('the broker is away'))")
        new_row(page, night.house, ORIGIN_MS + STEP_MS)
        assert page.ask(f"{left}.every((one) => one.lastElementChild.textContent.includes('the broker is away'))")


def test_an_event_that_is_over_is_not_the_worst(page: Page, tmp_path: Path) -> None:
    """One that began and ended has the chance of more to come, which may be less than another's."""
    night = ColdNight(tmp_path, 4)
    came = {"came_ms": ORIGIN_MS - 3 * HOUR_MS, "from_ms": ORIGIN_MS - 3 * HOUR_MS, "until_ms": ORIGIN_MS - HOUR_MS}
    night.alerts["a1"] = night._changed("a1", **came)
    night.house.do(night.house.live_state.put_alerts([night.alerts["a1"]]))
    with opened(night.house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('Worst: z4')")
        items = "[...document.querySelectorAll('[data-group] [data-alert]')].map((one) => one.dataset.alert)"
        assert page.ask(items) == ["a4", "a3", "a2", "a1"]
