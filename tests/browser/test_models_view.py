"""The view of the models: swaps, trainings, watches and orders as they happen."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.browser.driver import Page
from tests.browser.held import hold, let_go
from tests.browser.serving import HOUR_MS, House
from tests.browser.views import SOON_S, model, shows, text
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

EVIDENCE = "The challenger's error is 0.741 (0.709 to 0.778) of persistence, 0.960 (0.940 to 0.980) of v1."


def test_a_swap_is_seen_at_once_and_told_in_plain_words(page: Page, two_zones: House, address: str) -> None:
    """A new champion is on the page within two seconds, with what the gate said as shares; the operator goes back with
    a key that the page asks for.
    """
    two_zones.do(two_zones.live_state.set_models([model("v1", "champion")]))
    page.open(f"{address}/#/models")
    shows(page, "Model v1 forecasts now")
    page.until("document.getElementById('state').textContent === 'live'")
    two_zones.do(two_zones.live_state.set_models([model("v2", "champion", EVIDENCE), model("v1", "previous")]))
    two_zones.do(two_zones.live_state.put_event({"kind": "swap", "version": "v2", "before": "v1", "reason": EVIDENCE}))
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
    assert two_zones.backend.orders[-1] == ("rollback", "network", "v2")
    assert page.ask("localStorage.length + sessionStorage.length") == 0


def test_a_training_that_begins_is_seen_though_no_event_tells_of_it(page: Page, two_zones: House, address: str) -> None:
    """The view looks again by itself: nothing changes in the table of models meanwhile."""
    two_zones.do(two_zones.live_state.set_models([model("v1", "champion")]))
    page.open(f"{address}/#/models")
    shows(page, "Model v1 forecasts now")
    running: Any = {"running": {"kind": "operator", "reason": "operator"}, "last_error": ""}
    two_zones.do(two_zones.live_state.put_stats("retrainer", running))
    page.until("document.querySelector('[data-key=\"network train\"]').ariaDisabled === 'true'")
    two_zones.do(two_zones.live_state.put_stats("retrainer", {**running, "running": None}))
    page.until("document.querySelector('[data-key=\"network train\"]').ariaDisabled === null")


def test_models_that_are_drawn_anew_keep_focus_and_folds(page: Page, two_zones: House, address: str) -> None:
    """Of a button, a fold and a box; a button that has gone gives it to what it stood in."""
    models = [model(f"v{number}", stage, EVIDENCE) for number, stage in enumerate(("refused", "previous", "champion"))]
    two_zones.do(two_zones.live_state.set_models(models))
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
        two_zones.do(
            two_zones.live_state.put_event({"kind": "swap", "version": f"v{number}", "before": "v2", "reason": ""})
        )
        shows(page, f"v2 was replaced by v{number}")
        assert page.ask(focused) == key
    assert page.ask(f"{fold}.open")
    page.ask("document.querySelector('[data-key=\"network train\"]').focus()")
    page.press("Enter")
    page.until("document.getElementById('sure').open")
    two_zones.do(two_zones.live_state.put_event({"kind": "swap", "version": "v9", "before": "v2", "reason": ""}))
    shows(page, "v2 was replaced by v9")
    page.ask("document.getElementById('sure-no').click()")
    page.until(f"({focused}) === 'network train'")
    page.ask("document.querySelector('[data-key=\"network back\"]').focus()")
    two_zones.do(two_zones.live_state.set_models([models[0], models[2], model("v5", "challenger", EVIDENCE)]))
    page.until("!document.querySelector('[data-key=\"network back\"]')")
    assert page.ask(focused) == "network train"


def test_a_watch_that_begins_with_the_next_row_has_no_end_yet(page: Page, two_zones: House, address: str) -> None:
    """Between a swap and the row after it no time is named; from then on it is that of the verdict."""
    for from_ms, until_ms, words in (
        (-1, -1, "Compared with v1 from the next reading on;"),
        (ORIGIN_MS, ORIGIN_MS + 48 * HOUR_MS, "Compared with v1 until Thu 3 Mar, 01:00 of the greenhouse's time;"),
    ):
        watch = {"against": "v1", "from_ms": from_ms, "until_ms": until_ms}
        two_zones.do(two_zones.live_state.set_models([{**model("v2", "champion"), "watch": watch}]))  # type: ignore[typeddict-item]
        page.open(f"{address}/#/models")
        shows(page, words)


def test_of_two_answers_the_one_asked_for_last_is_shown(page: Page, two_zones: House, address: str) -> None:
    """What happened is told before the table of models changes. Where the answer to the first comes after that to the
    second, the page still shows the new table.
    """
    two_zones.do(two_zones.live_state.set_models([model("v7", "champion")]))
    page.open(f"{address}/#/models")
    shows(page, "Model v7 forecasts now")
    page.until("document.getElementById('state').textContent === 'live'")
    hold(page, "status")
    two_zones.do(two_zones.live_state.put_event({"kind": "swap", "version": "v8", "before": "v7", "reason": ""}))
    page.until("window.release")
    two_zones.do(two_zones.live_state.set_models([model("v8", "champion"), model("v7", "previous")]))
    shows(page, "Model v8 forecasts now")
    let_go(page)
    assert "Model v8 forecasts now" in text(page)
    assert "v7 was replaced by v8" in text(page)


def test_one_order_about_models_is_given_at_a_time(page: Page, two_zones: House, address: str) -> None:
    """While it is under way, which may take minutes, the page says so and takes no other."""
    two_zones.do(two_zones.live_state.set_models([model("v2", "champion"), model("v1", "previous")]))
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
    assert two_zones.backend.orders.count(two_zones.backend.orders[-1]) == 1
