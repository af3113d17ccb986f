"""A retrainer with a challenger in shadow."""

from __future__ import annotations

import pytest

from services.learn.loop.retrainer import Retrainer
from tests.services.learn.fakes import Clock, FakeCluster, Make
from tests.services.learn.promotion.shadows import later


@pytest.fixture
def retrainer(make: Make, cluster: FakeCluster, clock: Clock) -> Retrainer:
    """One whose champion is v1, no longer watched, and whose v2 is in shadow for six hours, with no place beside it."""
    made = make(shadow_hours=6, watch_hours=4, shadows=1)
    cluster.results = [True, "shadow"]
    made.retrain_if_due()
    made.prove()
    later(cluster, clock, 5)
    cluster.verdicts = [False]
    made.prove()
    clock.now_s += 100
    made.retrain_if_due()
    cluster.compared.clear()
    return made
