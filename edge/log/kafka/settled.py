"""Step 3 of the way of a reading: where a partition ends, once nothing in it is undecided.

A leader writes a record first and shows it to readers when its replicas have it, too. While a replica is away that
takes until it is counted out, or is back. Meanwhile a producer that waited for it in vain has an error, and yet the
record will come: who looks only at what readers see would send it a second time.
"""

from __future__ import annotations

import time
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from edge.log.contract import LogError

__all__ = ["settled_end"]

_LOOK_S = 0.1


def settled_end(consumer: KafkaConsumer, place: TopicPartition, timeout_s: float) -> int:
    """The partition's end, once readers see all that its leader holds by now.

    Raises ``LogError`` where that does not come in time, also where another leader took over that holds less.
    """
    deadline_s = time.monotonic() + timeout_s
    written: int | None = None
    while True:
        end = int(consumer.end_offsets([place])[place])
        if written is None:  # after the answer above the client knows the leader
            written = _written_end(consumer, place, deadline_s)
        elif time.monotonic() > deadline_s:
            raise LogError(
                f"{place.topic}: {written - end} records of partition {place.partition} are not on enough servers yet"
            )
        else:
            time.sleep(_LOOK_S)
        if end >= written:
            return end


def _written_end(consumer: KafkaConsumer, place: TopicPartition, deadline_s: float) -> int:
    """Where the leader's own file ends; the client has no call of its own for that."""
    while True:
        try:
            return int(consumer._net.run(_ask, consumer._manager, place))
        except kafka_errors.RetriableError:
            if time.monotonic() > deadline_s:
                raise
            consumer._manager.cluster.request_update()
            time.sleep(_LOOK_S)
            consumer.end_offsets([place])


async def _ask(manager: Any, place: TopicPartition) -> int:
    leader = manager.cluster.leader_for_partition(place)
    epoch = manager.cluster.leader_epoch_for_partition(place)
    if leader is None or leader < 0 or epoch is None or epoch < 0:
        raise kafka_errors.LeaderNotAvailableError(place)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topic.OffsetForLeaderPartition(
        partition=place.partition, current_leader_epoch=epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=place.topic, partitions=[partition])])
    response = await manager.send(request, node_id=leader)
    (found,) = response.topics[0].partitions
    error = kafka_errors.for_code(found.error_code)
    if error is not kafka_errors.NoError:
        raise error(place)
    return int(found.end_offset)
