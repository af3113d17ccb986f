"""What the embedded broker replaces of amqtt is there."""

from __future__ import annotations

import inspect

import pytest

from edge.mqtt import embedded_broker

OWN = {"_send_all", "_note_connected", "abort", "end", "send_what_waits"}
"""Methods that amqtt knows nothing of."""
CLASSES = [
    found
    for _, found in inspect.getmembers(embedded_broker, inspect.isclass)
    if found.__module__ == embedded_broker.__name__
]


@pytest.mark.parametrize("changed", CLASSES)
def test_amqtt_has_each_method_that_is_replaced(changed: type) -> None:
    """Under another name it would call its own, and nobody would be told."""
    ours = {name for name, found in vars(changed).items() if inspect.isroutine(found) and not name.startswith("__")}
    above = {name for base in changed.__mro__[1:] for name in vars(base)}
    assert ours - OWN <= above


def test_each_class_of_the_broker_is_looked_at() -> None:
    """The handler of a connection, its two streams, and the broker itself."""
    assert len(CLASSES) == 4
