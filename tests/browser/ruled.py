"""Rules that the page shows and changes, kept as a shard keeps them, and how a test types into them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.wire.alert_orders import ChangeRules, decode_order
from edge.wire.topic import SITE_ZONE, parse_topic
from services.ingest.alerts.site_documents import SiteDocuments
from services.serve.api.auth import Keys
from tests.browser.driver import Page
from tests.browser.serving import House, opened
from tests.services.serve.fakes import ORIGIN_MS

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ').replaceAll('\\u00a0', ' ')"
BAR = "document.querySelector('.savebar:not([hidden])')?.innerText.replace(/\\s+/g, ' ') ?? ''"


class Ruled(House):
    """A house whose rules are kept as a shard keeps them."""

    def keep_rules(self) -> None:
        """Orders change them from now on."""
        self.documents = SiteDocuments()

        async def rules(site: str) -> object:
            await asyncio.sleep(0)
            return self.documents.shown(site)

        async def publish(topic: str, payload: bytes) -> None:
            order, place = decode_order(payload), parse_topic(topic)
            assert isinstance(order, ChangeRules)
            assert place is not None
            self.documents.take(place.site, place.zone, order, ORIGIN_MS)
            await asyncio.sleep(0)

        self.backend.alert_rules = rules  # type: ignore[assignment]
        self.backend.publish = publish  # type: ignore[method-assign]

    @property
    def changes(self) -> object:
        """What differs from the crop's rules."""
        return self.documents.shown("demo")["document"]["changes"]

    @property
    def zone_rules(self) -> object:
        """What zones have of their own."""
        return self.documents.shown("demo")["document"].get("zones", {})


def ruled_house(folder: Path) -> Ruled:
    """One with an operator's key."""
    made = Ruled(folder, keys=Keys("op-key"))
    made.fill()
    made.keep_rules()
    return made


@contextmanager
def opened_rules(page: Page, house: Ruled) -> Iterator[None]:
    """The page shows the rules of its site, reached from the alerts, with the card of the frost open."""
    with opened(house) as address:
        page.open(address)
        page.until("document.querySelector('[data-key=rules]')")
        page.ask("document.querySelector('[data-key=rules]').click()")
        page.until("document.querySelector('[data-rule=frost]')")
        page.ask("document.querySelector('[data-rule=frost]').open = true")
        yield


def field(option: str, rule: str = "frost") -> str:
    """The field of an option of a rule."""
    return f"document.querySelector('[data-key=\"{rule} {option}\"]')"


def label(option: str, rule: str) -> str:
    """The words of a field."""
    return f'document.querySelector(`label[for="${{{field(option, rule)}.id}}"]`).textContent'


def write(page: Page, option: str, text: str, rule: str = "frost") -> None:
    """Type into a field in place of what is there."""
    page.ask(f"{field(option, rule)}.focus()")
    page.ask(f"{field(option, rule)}.select?.()")
    if text:
        page.type(text)
    else:
        page.ask(f"{{ const one = {field(option, rule)}; one.value = ''; one.dispatchEvent(new Event('input')); }}")


def elsewhere(rule: str, house: Ruled, **options: float) -> None:
    """Somebody else changes a rule, and has saved it."""
    order = ChangeRules({"changes": {rule: options}}, merge=True)
    house.documents.take("demo", SITE_ZONE, order, ORIGIN_MS)


def save(page: Page, key: str = "") -> None:
    """Save by the keyboard; the key where it is asked for."""
    page.press("Enter")
    if key:
        page.until("document.getElementById('order-key').open")
        page.type(key)
        page.press("Enter")
