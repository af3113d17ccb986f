"""The end-to-end test's own care: it deletes nothing that it did not make."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.run import not_ours


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        ([], ""),
        ([namespace("hothouse")], "has hothouse, which no run of this test left"),
        ([namespace("servers")], "has servers, which no run of this test left"),
        ([namespace("hothouse"), namespace("servers", **{"hothouse/e2e": "true"})], ""),
    ],
)
def test_an_installation_that_the_test_did_not_make_is_left_alone(there: list[dict[str, Any]], wrong: str) -> None:
    """What an earlier run left has its servers, with a label; an installation has none."""
    said = not_ours([namespace("default"), *there])
    assert wrong in said
    assert bool(said) == bool(wrong)
