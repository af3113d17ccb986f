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

options = st.fixed_dictionaries(
    {},
    optional={
        "limit": st.floats(-20, 50).map(lambda x: round(x, 2)), "chance": st.sampled_from([0.01, 0.2, 0.99]),
        "hours": st.sampled_from([["18:00", "07:00"], ["00:00", "24:00"]]), "off": st.booleans(),
        "severity": st.sampled_from(["info", "critical"]), "band_c": st.just([12, 20]),
    },
)  # fmt: skip
names = st.sampled_from(["frost", "heat", "botrytis", 'cool "evening"', "späte Nacht"])
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
