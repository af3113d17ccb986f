"""The shard actors of one system: started together, asked together, stopped together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from services.config import Settings
from services.errors import StartError
from services.runtime.interrupts import deferred_interrupts

__all__ = ["Shards", "stop_all"]

START_S = 60.0
STOP_S = 4.0
ABANDON_S = 1.0
"""How long they have to stop while they start: they have nothing yet that must be saved, and the log has all of it."""
ASK_S = 5.0


class Shards:
    """Each has its share of the partitions. Actors live as long as their handles, which are kept here."""

    def __init__(self, settings: Settings) -> None:
        with deferred_interrupts():
            from services.ingest.shard_actor import start_shard

        count, partitions = settings.stream.shards, range(settings.log.partitions)
        self.actors = [start_shard(settings, index, list(partitions[index::count])) for index in range(count)]
        self._stop_s = ABANDON_S

    def await_started(self) -> None:
        """A shard that cannot start (its settings differ from its snapshot's, say) stops the start, in one sentence:
        raises :class:`StartError`.
        """
        import ray

        try:
            ray.get([shard.ping.remote() for shard in self.actors], timeout=START_S)
        except ray.exceptions.GetTimeoutError as error:
            raise StartError(f"the shards did not start within {START_S:g} s") from error
        except ray.exceptions.RayError as error:
            # Ray tells why an actor's constructor failed as text: its last line is the exception.
            reason = str(error).strip().splitlines()[-1].partition("Error: ")[2] or str(error).splitlines()[0]
            raise StartError(f"a shard did not start: {reason}") from error
        self._stop_s = STOP_S

    def ask(self, question: str) -> list[Any]:
        """What all shards answer to a question; nothing while one of them restarts: it is asked again."""
        import ray

        try:
            answers = ray.get([getattr(shard, question).remote() for shard in self.actors], timeout=ASK_S)
        except ray.exceptions.RayError:
            return []
        return [one for answer in answers for one in answer]

    def stop(self) -> None:
        """Ask them to stop; one that does not answer in time is ended with Ray."""
        stop_all(self.actors, self._stop_s)


def stop_all(actors: Sequence[Any], timeout_s: float) -> None:
    """Ask actors to stop in order; one that does not answer in time is ended with Ray."""
    import ray

    with suppress(ray.exceptions.RayError):
        ray.get([actor.stop.remote() for actor in actors], timeout=timeout_s)
