"""Rules as people write them: what they mean, what is merged, and the way to a file and back."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.alerts.crop_rules import CROPS, STAGES, rules_for
from models.alerts.rules_document import DocumentError, RulesDocument
from services.alert.rules_file import parse_document

options = st.fixed_dictionaries(
    {},
    optional={
        "limit": st.floats(-20, 50).map(lambda x: round(x, 2)), "chance": st.sampled_from([0.01, 0.2, 0.99]),
        "hours": st.sampled_from([["18:00", "07:00"], ["00:00", "24:00"]]), "off": st.booleans(),
        "severity": st.sampled_from(["info", "critical"]), "band_c": st.just([12, 20]),
    },
)  # fmt: skip
OWN = ('cool "evening"', "späte Nacht 🥶", "a\\b\n\t\x00\x1f\x7f\x80\u2028")
names = st.sampled_from(["frost", "heat", "botrytis", *OWN])
changes = st.dictionaries(names, options, max_size=4).map(
    lambda of: {
        name: {**table, "kind": "frost"} if name not in ("frost", "heat", "botrytis") else table
        for name, table in of.items()
    }
)
documents = st.fixed_dictionaries(
    {"crop": st.sampled_from(list(CROPS)), "stage": st.sampled_from(list(STAGES)), "changes": changes}
)


@given(documents)
def test_a_document_survives_a_file_and_json(said: dict[str, Any]) -> None:
    """The same rules come out, whichever way they went."""
    document = RulesDocument.of(said)
    file = tomllib.loads(document.as_toml())
    again = RulesDocument.of({"crop": file["crop"], "stage": file["stage"], "changes": file.get("rules", {})})
    assert again.rules == document.rules
    assert RulesDocument.of(json.loads(json.dumps(document.as_dict()))) == document


@pytest.mark.parametrize("name", OWN)
def test_a_name_survives_a_file_whatever_its_characters(name: str) -> None:
    """Of a rule and of a zone; characters that TOML does not take bare, or not as JSON writes them."""
    changes = {name: {"kind": "frost", "limit": 9.0}}
    document = RulesDocument.of({"changes": changes, "zones": {name: {"changes": changes}}})
    assert parse_document(document.as_toml()) == document


@given(documents, documents)
def test_merging_all_of_another_gives_the_other_where_it_says_something(one: Any, other: Any) -> None:
    """Its options hold, options that it leaves out stay, and merging it twice changes nothing."""
    merged = RulesDocument.of(one).merged(other)
    assert merged.crop == other["crop"]
    for name, table in other["changes"].items():
        for option, value in table.items():
            assert merged.changes[name][option] == value
    for name, table in one["changes"].items():
        for option, value in table.items():
            if option not in other["changes"].get(name, {}):
                assert merged.changes[name][option] == value
    assert merged.merged(other).as_dict() == merged.as_dict()


@given(documents)
def test_taking_everything_back_gives_the_crops_rules(said: dict[str, Any]) -> None:
    """Rule by rule, and option by option for those that the crop has."""
    document = RulesDocument.of(said)
    gone = document.merged({"changes": dict.fromkeys(document.changes)})
    assert (gone.rules, dict(gone.changes)) == (rules_for(said["crop"], said["stage"]), {})
    own = {name: None for name in document.changes if name not in ("frost", "heat", "botrytis")}
    back = {name: dict.fromkeys(table) for name, table in document.changes.items() if name not in own}
    assert document.merged({"changes": {**back, **own}}).rules == gone.rules


def test_each_mistake_names_its_place() -> None:
    """All of them at once."""
    with pytest.raises(DocumentError) as error:
        RulesDocument.of({"changes": {"frost": {"chance": 20}, "mine": {}, "heat": {"hours": [1]}, "vpd_low": 7}})
    assert [where for where, _ in error.value.mistakes] == ["frost", "mine", "heat", "vpd_low"]
    for said in ({"crop": 7}, {"crop": "moss"}, {"stage": "old"}, {"rules": {}}, {"changes": []}):
        with pytest.raises(DocumentError):
            RulesDocument.of(said)


def test_a_document_is_bounded() -> None:
    """It goes into a record of the log."""
    with pytest.raises(DocumentError, match="100 is the most"):
        RulesDocument.of({"changes": {f"r{n}": {"kind": "frost"} for n in range(101)}})
    with pytest.raises(DocumentError, match="1 to 64 characters"):
        RulesDocument.of({"changes": {"x" * 65: {"kind": "frost"}}})


ZONED: dict[str, Any] = {
    "crop": "tomato", "changes": {"frost": {"limit": 9.0, "chance": 0.3}, "heat": {"off": True}},
    "zones": {
        "seedlings": {"crop": "lettuce", "stage": "young", "changes": {"frost": {"limit": 12.0}}},
        "z 2": {"changes": {"heat": {"off": False}, "cool": {"kind": "frost", "limit": 15.0}}},
    },
}  # fmt: skip


def by_name(rules: Any) -> dict[str, Any]:
    """The rules by their names."""
    return {rule.name: rule for rule in rules}


def test_a_zone_has_the_rules_of_its_site_but_for_its_own() -> None:
    """Option by option; its crop and stage may be others; a zone that is not named has what the site has."""
    document = RulesDocument.of(ZONED)
    seedlings, second = by_name(document.rules_of("seedlings")), by_name(document.rules_of("z 2"))
    assert (seedlings["frost"].limit, seedlings["frost"].chance) == (12.0, 0.3)
    assert seedlings["vpd_high"].limit == by_name(rules_for("lettuce", "young"))["vpd_high"].limit
    assert "heat" not in seedlings
    assert second["heat"] == by_name(rules_for("tomato"))["heat"]
    assert (second["frost"].limit, second["cool"].limit) == (9.0, 15.0)
    assert document.rules_of("z9") is document.rules
    assert document.of_zone("seedlings").rules == document.rules_of("seedlings")
    assert (document.of_zone("seedlings").crop, document.of_zone("z 2").crop) == ("lettuce", "tomato")


def test_zones_survive_a_file_and_json() -> None:
    """A document without any says nothing of zones, as before there were any."""
    document = RulesDocument.of(ZONED)
    assert RulesDocument.of(json.loads(json.dumps(document.as_dict()))) == document
    assert parse_document(document.as_toml()) == document
    assert "zones" not in RulesDocument.of({"crop": "tomato", "zones": {"z1": {}, "z2": None}}).as_dict()


def test_what_a_zone_has_of_its_own_is_changed_and_taken_back() -> None:
    """By a patch of the site or of the zone; null takes back, and the site's holds; others stay."""
    document = RulesDocument.of(ZONED)
    colder = document.with_zone("seedlings", {"changes": {"frost": {"limit": None, "chance": 0.5}}}, merge=True)
    assert colder.zones["seedlings"] == {"crop": "lettuce", "stage": "young", "changes": {"frost": {"chance": 0.5}}}
    assert by_name(colder.rules_of("seedlings"))["frost"].limit == 9.0
    assert colder == document.merged({"zones": {"seedlings": {"changes": {"frost": {"limit": None, "chance": 0.5}}}}})
    assert document.with_zone("seedlings", {"stage": "growing"}).zones["seedlings"] == {"stage": "growing"}
    for gone in (document.with_zone("z 2", {}), document.merged({"zones": {"z 2": None}})):
        assert set(gone.zones) == {"seedlings"}
        assert gone.rules_of("z 2") == document.rules
    warmer = document.merged({"changes": {"frost": {"chance": 0.1}}})
    assert [by_name(warmer.rules_of(zone))["frost"].chance for zone in ("seedlings", "z 2", "z9")] == [0.1] * 3


@pytest.mark.parametrize(
    ("zones", "where", "sentence"),
    [
        ({"z2": {"changes": {"frost": {"chance": 20}}}}, "zones.z2.frost",
         "zone z2: frost: chance is 20; it must be between 0.01 and 0.99"),
        ({"z2": {"crop": "moss"}}, "zones.z2.crop", "zone z2: crop 'moss' is not one of tomato"),
        ({"z2": {"rules": {}}}, "zones.z2.rules", "zone z2: 'rules' is not one of crop, stage, changes"),
        ({"z2": {"zones": {}}}, "zones.z2.zones", "zone z2: 'zones' is not one of"),
        ({"z2": {"changes": 3}}, "zones.z2.changes", "zone z2: rules must be tables"),
        ({"z2": {"changes": {"cool": {"limit": 15}}}}, "zones.z2.cool", "zone z2: cool: a rule that the crop has not"),
        ({"z2": 3}, "zones.z2", "zones.z2 must be a table, such as"),
        ({"": {}}, "zones", "the name of a zone has 1 to 64 characters"),
        (3, "zones", "zones must be tables, such as"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_zone_names_the_zone(zones: Any, where: str, sentence: str) -> None:
    """And all of them are told at once, whichever way they come."""
    for make in (lambda: RulesDocument.of({"zones": zones}), lambda: RulesDocument().merged({"zones": zones})):
        with pytest.raises(DocumentError) as error:
            make()
        assert error.value.mistakes[0][0] == where
        assert sentence in str(error.value)


def test_a_number_that_no_greenhouse_has_is_told_to_who_writes_it() -> None:
    """Each once, with its zone where it is that zone's alone. What an earlier release took still loads, and holds."""
    said = {
        "changes": {"heat": {"limit": 335}, "frost": {"limit": -99, "off": True}},
        "zones": {"z1": {"stage": "young"}, "z2": {"changes": {"co2_low": {"hysteresis": 6000}}}},
    }
    document = RulesDocument.of(said)
    assert by_name(document.rules_of("z1"))["heat"].limit == 335
    with pytest.raises(DocumentError) as error:
        document.checked()
    assert error.value.mistakes == [
        ("heat", "heat: limit is 335; it must be between -20 and 60 °C"),
        ("zones.z2.co2_low", "zone z2: co2_low: hysteresis is 6000; it must be between 0 and 5000 ppm"),
    ]
    mended = document.merged({"changes": {"heat": {"limit": 33.5}}, "zones": {"z2": None}})
    assert mended.checked() is mended


def test_who_writes_another_rule_is_not_told_of_what_holds_already() -> None:
    """An earlier release took it: the other rules must not wait until it is mended."""
    before = RulesDocument.of({
        "changes": {"heat": {"limit": 335}}, "zones": {"z1": {"changes": {"co2_low": {"hysteresis": 6000}}}},
    })  # fmt: skip
    for patch in (
        {"changes": {"frost": {"limit": 4}}},
        {"zones": {"z1": {"changes": {"frost": {"limit": 4}}}, "z2": {"stage": "young"}}},
    ):
        before.merged(patch).checked(before)
    for patch, where in (
        ({"changes": {"heat": {"chance": 0.5}}}, "heat"),
        ({"zones": {"z1": {"changes": {"heat": {"chance": 0.5}}}}}, "zones.z1.heat"),
        ({"zones": {"z2": {"changes": {"co2_low": {"hysteresis": 6000}}}}}, "zones.z2.co2_low"),
    ):
        with pytest.raises(DocumentError) as error:
            before.merged(patch).checked(before)
        assert [at for at, _ in error.value.mistakes] == [where]
