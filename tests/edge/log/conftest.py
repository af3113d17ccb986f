"""Empty logs on Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import require_env
from tests.kafka_logs import kafka_logs
from tests.patience import budget_s


@pytest.fixture
def make() -> Iterator[Callable[[int], Any]]:
    """Makes empty logs; the test closes them."""
    with kafka_logs(require_env("HOTHOUSE_TEST_KAFKA"), timeout_s=budget_s(30)) as make:
        yield make


@pytest.fixture
def log(make: Callable[[int], Any]) -> Iterator[Any]:
    """An empty log of two partitions."""
    made = make(2)
    yield made
    made.close()
