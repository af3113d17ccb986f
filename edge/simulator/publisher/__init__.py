"""Step 1 of the way of a reading: the publisher, which sends a source's samples over MQTT as its devices would."""

from __future__ import annotations

from edge.simulator.publisher.loop import Publisher

__all__ = ["Publisher"]
