"""A file of rules goes into the log once for each state of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.wire import alert_orders
from edge.wire.alert_orders import ChangeRules, decode_order
from models.alerts.rules_document import RulesDocument
from services.alert.rule_files import AGAIN_S, RuleFiles, file_stamp
from services.errors import HothouseError
from services.ingest.alerts.site_documents import SiteDocuments
from tests.services.alert.told import Clock


class House:
    """A site whose orders take effect at once, and a file of its rules."""

    def __init__(self, folder: Path) -> None:
        self.path, self.clock, self.documents = folder / "rules.toml", Clock(), SiteDocuments()
        self.published: list[ChangeRules] = []
        self.arrives, self.away = True, False
        self.zones: list[str] = []
        self.files = RuleFiles(
            lambda site: self.path if site == "demo" else None,
            lambda: [self.documents.shown("demo") | {"zones": self.zones}, self.documents.shown("elsewhere")],
            self.publish, self.clock,
        )  # fmt: skip

    def publish(self, topic: str, payload: bytes) -> None:
        if self.away:
            raise HothouseError("the broker did not take it")
        assert topic == "hothouse/v1/demo/_site/hothouse/event"
        order = decode_order(payload)
        assert isinstance(order, ChangeRules)
        self.published.append(order)
        if self.arrives:
            self.documents.take("demo", "_site", order, 0)

    def look(self, text: str | None = None) -> None:
        """After somebody has written the file."""
        if text is not None:
            self.path.write_text(text)
        self.clock.now_s += 1
        self.files.look()


@pytest.fixture
def house(tmp_path: Path) -> House:
    """One without a file yet."""
    return House(tmp_path)


def test_a_file_counts_once_for_each_of_its_states(house: House) -> None:
    """Also when we are started again; another comment is no other state."""
    house.look('crop = "lettuce"')
    house.look()
    house.look('crop = "lettuce"  # as every year')
    assert len(house.published) == 1
    assert house.documents.of("demo").document.crop == "lettuce"
    again = House(house.path.parent)
    again.documents = house.documents
    again.look()
    assert again.published == []
    house.look('crop = "tomato"')
    assert (len(house.published), house.documents.of("demo").changed_by) == (2, "file")


def test_what_was_changed_over_the_api_stays_until_the_file_changes(house: House) -> None:
    """The newest change wins."""
    house.look('crop = "lettuce"')
    house.documents.take("demo", "_site", ChangeRules({"crop": "pepper"}, merge=True), 7)
    house.look()
    assert house.documents.of("demo").document.crop == "pepper"
    house.look('crop = "lettuce"\n[rules.frost]\nlimit = 3.0')
    assert house.documents.of("demo").document.crop == "lettuce"


def test_a_mistake_is_told_and_changes_nothing(house: House) -> None:
    """Until it is mended."""
    house.look('crop = "lettuce"')
    house.look("[rules.frost]\nchance = 20")
    assert "frost: chance is 20; it must be between 0.01 and 0.99" in house.files.error
    assert house.documents.of("demo").document.crop == "lettuce"
    house.look('crop = "tomato"')
    assert (house.files.error, house.documents.of("demo").document.crop) == ("", "tomato")


def test_an_order_that_is_lost_is_published_again(house: House) -> None:
    """After a while; one that the broker did not take at the next look."""
    house.away = True
    house.look('crop = "lettuce"')
    assert house.files.error == "the broker did not take it"
    house.away = house.arrives = False
    house.look()
    house.look()
    assert len(house.published) == 1
    house.clock.now_s += AGAIN_S
    house.look()
    assert len(house.published) == 2


def test_a_stamp_names_what_a_file_says() -> None:
    """Not how it says it."""
    one, other = ({"frost": {"limit": 3.0, "chance": 0.2}}, {"frost": {"chance": 0.2, "limit": 3.0}})
    stamps = {file_stamp(RulesDocument.of({"changes": changes})) for changes in (one, other)}
    assert len(stamps) == 1
    assert file_stamp(RulesDocument()) not in stamps


def test_a_zone_that_no_site_has_is_told(house: House) -> None:
    """A name that was misspelled would warn nobody; the rules count all the same, for the zone may come."""
    house.zones = ["z1", "z2"]
    house.look("[zones.z9.rules.frost]\nlimit = 3.0")
    assert house.files.error.endswith("has rules for z9, which is no zone; known are z1, z2")
    assert set(house.documents.of("demo").document.zones) == {"z9"}
    house.zones = ["z1", "z2", "z9"]
    house.look()
    assert house.files.error == ""


def test_a_file_that_no_gateway_takes_is_told_and_not_published(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be published each minute for ever; a shorter one counts again."""
    monkeypatch.setattr(alert_orders, "MAX_RULES_BYTES", 70)
    house.look('crop = "lettuce"\n[rules.frost]\nlimit = 3.0')
    assert house.published == []
    assert house.files.error.startswith(f"{house.path}: the rules are ")
    monkeypatch.undo()
    house.look('crop = "lettuce"')
    assert (len(house.published), house.files.error) == (1, "")
