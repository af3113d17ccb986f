"""Why a connection to Kafka ended is told with the time-out that follows from it."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError

from edge.log.kafka.lost_connections import began_login, hear_losses, words_of


def test_a_time_out_names_what_the_newest_connection_ended_with(caplog: pytest.LogCaptureFixture) -> None:
    """Also where nothing of Kafka's client is logged; another error says itself what is wrong."""
    client = logging.getLogger("kafka")
    before = client.level
    client.setLevel(logging.CRITICAL)
    try:
        hear_losses()
        began_login(None)  # a test before may have left one
        logging.getLogger("kafka.net.connection").error("%s: Connection lost: %s", "node 1", OSError("no such CA"))
    finally:
        client.setLevel(before)
    assert words_of(KafkaTimeoutError("late")) == (
        "KafkaTimeoutError: late; the newest connection ended with OSError: no such CA"
    )
    assert words_of(NodeNotReadyError("1")) == "NodeNotReadyError: 1"
    assert not caplog.records


def test_a_connection_that_ends_while_it_logs_in_asks_for_the_login() -> None:
    """What the server said of it is mostly lost. A login that was let in is not asked about, nor one of before."""
    hear_losses()
    lost = logging.getLogger("kafka.net.connection")
    said = []
    for let_in in (False, True, None):
        if let_in is not None:
            began_login(Mock(is_authenticated=lambda let_in=let_in: let_in))
        lost.error("%s: Connection lost: %s", "node 1", KafkaConnectionError("socket disconnected"))
        said.append(words_of(KafkaTimeoutError("late")))
    assert ["are user name, password and mechanism right?" in words for words in said] == [True, False, False]
