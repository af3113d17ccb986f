"""Which zones of a partition give examples."""

from __future__ import annotations

import numpy as np

from models.online.corrections.tuned_correction import Shown
from services.ingest.learned.example_intake import MOST_ZONES, ExampleIntake


def shown(zones: int) -> Shown:
    """An example of zones 0 to so many, that has their numbers in it."""
    numbers = np.arange(zones)
    return Shown(
        4, numbers, numbers[:, None].astype(np.float16), np.zeros((zones, 1, 1), np.float16),
        np.zeros((zones, 1, 1, 3), np.float32),
    )  # fmt: skip


def test_a_dozen_zones_of_many_sites_and_always_the_same() -> None:
    """Of 40 sites with five zones each, in whatever order they came; each with what was shown of it."""
    names = tuple(f"z{n}" for n in range(5))
    found = []
    for order in (range(40), range(39, -1, -1)):
        intake = ExampleIntake()
        for site in order:
            intake.know(f"s{site}", names)
        for site in range(40):
            intake.take(f"s{site}", 7, names, shown(5))
        for one in intake.kept:
            assert [names[int(n)] for n in one.inputs.origin[:, 0]] == list(one.zones)
        found.append({(one.site, zone) for one in intake.kept for zone in one.zones})
    assert found[0] == found[1]
    assert len(found[0]) == MOST_ZONES
    assert len({site for site, _ in found[0]}) > MOST_ZONES / 2


def test_zones_that_leave_make_room() -> None:
    """A site whose zones were all given other names gives examples again."""
    intake = ExampleIntake()
    for year in (1, 2):
        names = tuple(f"y{year}-{n}" for n in range(20))
        intake.know("demo", names)
        intake.take("demo", 7, names, shown(20))
        assert len(intake.kept[-1].zones) == MOST_ZONES
        assert set(intake.kept[-1].zones) <= set(names)
