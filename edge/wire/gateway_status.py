"""Step 2 of the way of a reading: what a gateway tells about itself, in its status file and to Prometheus."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from edge.figure_fields import counter, gauge

__all__ = ["CERTIFICATE_ENDS", "GatewayStatus"]

CERTIFICATE_ENDS = gauge(
    "hothouse_certificate_end_timestamp_seconds", "Unix time at which a certificate ends.", label="of", unit="seconds",
    scale=1e-3, field="Unix time at which a certificate ends, in ms; none without TLS.",
)  # fmt: skip


class GatewayStatus(TypedDict):
    """What a gateway did since it started, and how it is. The last five are the uplink's."""

    pid: int
    updated_ms: Annotated[
        int,
        gauge(
            "hothouse_gateway_updated_timestamp_seconds", "Unix time of these figures.", unit="seconds", scale=1e-3,
            field="Unix time of these figures, in ms.",
        ),
    ]  # fmt: skip
    started_ms: Annotated[
        int,
        gauge(
            "hothouse_gateway_started_timestamp_seconds", "Unix time at which the gateway was started.", unit="seconds",
            scale=1e-3, field="Unix time at which the gateway was started, in ms.",
        ),
    ]  # fmt: skip
    connected: Annotated[bool, gauge("hothouse_gateway_connected", "1 while the broker's subscription is alive.")]
    connects: Annotated[int, counter("hothouse_gateway_connects_total", "Connections to the broker.")]
    messages: Annotated[int, counter("hothouse_gateway_messages_total", "Messages taken.")]
    samples: Annotated[int, counter("hothouse_gateway_samples_total", "Samples that passed.")]
    refused: Annotated[int, counter("hothouse_gateway_refused_total", "Samples and messages refused.")]
    relayed: Annotated[int, counter("hothouse_gateway_relayed_total", "Records taken from other gateways.")]
    records: Annotated[int, counter("hothouse_gateway_records_total", "Records appended durably.")]
    queued: Annotated[int, gauge("hothouse_gateway_queued", "Messages that wait for the log.")]
    dropped_qos0: Annotated[
        int,
        counter("hothouse_gateway_dropped_qos0_total", "Messages of quality 0 dropped because too many waited."),
    ]
    last_error: Annotated[str, msgspec.Meta(description="What fails now, the uplink, too; empty when all is well.")]
    failing: Annotated[
        bool,
        gauge("hothouse_gateway_failing", "1 while the broker or the log fails, so that nothing is acknowledged."),
    ]
    other_topics: Annotated[
        int, counter("hothouse_gateway_other_topics_total", "Messages on topics that nothing reads, each refused.")
    ]
    retained: Annotated[
        int,
        counter(
            "hothouse_gateway_retained_total",
            "Samples without a time of their own that the broker had kept and sent again, left out.",
        ),
    ]
    removed: Annotated[
        int,
        counter(
            "hothouse_gateway_removed_total",
            "Records of kafka.direct_topic that Kafka removed before they were read.",
        ),
    ]
    answered: Annotated[
        int, counter("hothouse_gateway_answered_total", "Answers of decoders that went out to devices.")
    ]
    unanswered: Annotated[
        int,
        counter(
            "hothouse_gateway_unanswered_total",
            "Answers of decoders that did not go out: another just had, or the broker was away.",
        ),
    ]
    certificate_ends_ms: Annotated[dict[str, int], CERTIFICATE_ENDS]  # broker: as it was shown when we connected
    bytes_free: Annotated[
        int | None,
        gauge(
            "hothouse_gateway_free_bytes", "Bytes that the log takes before nothing is acknowledged any more.",
            unit="bytes",
            field="Bytes that the log takes before nothing is acknowledged any more; null with Kafka: nobody can say.",
        ),
    ]  # fmt: skip
    buffered_records: Annotated[int, gauge("hothouse_gateway_buffered_records", "Records that wait for the uplink.")]
    buffered_bytes: Annotated[
        int,
        gauge("hothouse_gateway_buffered_bytes", "Bytes of the buffer's file that hold records.", unit="bytes"),
    ]
    oldest_unsent_s: Annotated[
        float,
        gauge("hothouse_gateway_oldest_unsent_seconds", "Age of the oldest record that waits.", unit="seconds"),
    ]
    uplinked: Annotated[int, counter("hothouse_gateway_uplinked_total", "Records that the central side has durably.")]
    uplink_errors: Annotated[
        int, counter("hothouse_gateway_uplink_errors_total", "Failures of the uplink, each tried again.")
    ]
