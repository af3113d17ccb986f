"""Step 8 of the way of a reading, in a shard: examples for the network that is fine-tuned, of a few of the zones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from models.network.tuned_network import CorrectionInputs
from models.online.corrections.tuned_correction import Shown
from services.store.examples.shown_examples import KeptExamples

__all__ = ["MOST_ZONES", "ExampleIntake"]

MOST_ZONES = 12
"""Zones of a partition that give examples: more teach little, and each takes 70 kB a day."""


class ExampleIntake:
    """Takes examples of the zones of a partition whose names come first by their hash: with many sites they are of
    many, and they stay the same while zones come and go.

    What is in ``kept`` is to be made durable before the snapshot that comes after it; it is no part of a snapshot.
    """

    def __init__(self) -> None:
        self.kept: list[KeptExamples] = []
        self._zones: dict[str, tuple[str, ...]] = {}  # of each site
        self._chosen: frozenset[tuple[str, str]] = frozenset()

    def know(self, site: str, zones: tuple[str, ...]) -> None:
        """The zones of a site's newest row."""
        if self._zones.get(site) != zones:
            self._zones[site] = zones
            everyone = [(at, zone) for at, names in self._zones.items() for zone in names]
            self._chosen = frozenset(sorted(everyone, key=_rank)[:MOST_ZONES])

    def take(self, site: str, end_ms: int, zones: Sequence[str], shown: Shown) -> None:
        """What the network was ``shown`` of a row; ``zones`` are those of ``shown.zones``."""
        mine = np.array([z for z, zone in enumerate(zones) if (site, zone) in self._chosen], np.int64)
        if len(mine):
            one = shown.take(mine)
            names = tuple(zones[z] for z in mine.tolist())
            self.kept.append(KeptExamples(site, end_ms, names, CorrectionInputs(one.origin, one.ahead, one.base)))


def _rank(zone: tuple[str, str]) -> bytes:
    return hashlib.blake2b("/".join(zone).encode(), digest_size=8).digest()
