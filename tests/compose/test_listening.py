"""What listens is compared with the table of docs/security.md."""

from __future__ import annotations

import pytest

from tests.compose.listening import not_as_told, told

WHERE = "Kubernetes"


@pytest.mark.parametrize("where", [WHERE, "compose"])
def test_what_is_as_told_is_nothing_to_say(where: str) -> None:
    """Ray chooses some ports more."""
    seen = {part: set(ports) for part, (ports, _) in told(where).items()}
    assert not_as_told(where, seen) == []
    seen["ray-worker"].add(40_123)
    assert not_as_told(where, seen) == []


def test_each_difference_is_named() -> None:
    """A port too many, one that is missing, a part that the table does not know, and one that nobody looked at."""
    seen = {part: set(ports) for part, (ports, _) in told(WHERE).items()}
    seen["mosquitto"], seen["porch"] = {1883}, {80}
    del seen["redis"]
    assert not_as_told(WHERE, seen) == [
        "mosquitto listens at [1883]", "mosquitto does not listen at [8883]", "porch listens at [80]",
        "redis was not looked at",
    ]  # fmt: skip
