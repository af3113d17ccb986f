"""The sections that the gateway needs: names, types, defaults, and what is allowed. The others are in ``services``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from edge.config.addresses import Host, ListenHost, Server
from edge.config.forms import of_form
from edge.tls_files import TlsSettings, tls_files

__all__ = [
    "GatewaySettings", "KafkaSettings", "LogSettings", "LogsSettings", "MqttSettings", "Section", "StreamSettings",
    "UplinkSettings",
]  # fmt: skip

_Tls = TypeVar("_Tls", bound=TlsSettings)
_CERTIFICATE = "Certificate that is shown to a server which asks for one, with its chain, in PEM."


class Section(BaseModel):
    """A table of the configuration file. It is frozen, and refuses names that are no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_no_file(cls, value: Any, about: ValidationInfo) -> Any:
        """As with other settings. A path that is empty would be the current folder."""
        of = cls.model_fields.get(about.field_name or "")
        return None if value == "" and of is not None and of.annotation == Path | None else value

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, about: ValidationInfo) -> Any:
        of = cls.model_fields.get(about.field_name or "")
        if isinstance(value, bool) and of is not None and of.annotation in (int, float):
            raise ValueError("must be a number")
        return value


def _with_tls(section: _Tls) -> _Tls:
    """Refuses a certificate without its key, or without a CA."""
    tls_files(section)
    return section


class MqttSettings(Section):
    """Where samples come from."""

    host: Host = Field(
        "", description="Broker to connect to; empty: `hothouse up` starts a local one, a gateway alone asks loopback."
    )
    port: int = Field(1883, ge=1, le=65535, description="Port of that broker.")
    listen: Host = Field(
        "", description="Address on which the broker that `hothouse up` starts takes devices, at `mqtt.port`, such as "
        "0.0.0.0; empty: loopback, on a free port.",
    )  # fmt: skip
    username: str = Field("", description="User name, if the broker wants one.")
    password_file: Path | None = Field(None, description="File that holds the password.")
    tls_ca_file: Path | None = Field(None, description="CA certificate; set it to use TLS.")
    tls_cert_file: Path | None = Field(None, description=_CERTIFICATE)
    tls_key_file: Path | None = Field(None, description="The key of that certificate, not encrypted.")
    version: Literal["5", "3.1.1"] = Field("5", description="MQTT version that the gateway tries first.")
    client_id: str = Field("hothouse-gateway", min_length=1, description="Names the gateway's persistent session.")
    session_secret_file: Path | None = Field(
        None, description="File with random text that goes into client ids, so that no device can guess the gateway's. "
        "The broker that `hothouse up` starts has one of its own.",
    )  # fmt: skip
    share: Annotated[str, of_form(r"[^/+#\s]*", "one level of a topic such as gateways, or empty")] = Field(
        "",
        description="Gateways with the same name split the messages among them; each needs its own client id.",
    )
    topics: str = Field(
        "hothouse/#",
        description="Also subscribed to, so that messages on a wrong topic are counted. Empty: they are not.",
    )
    linger_ms: float = Field(
        20, ge=0, le=1000, description="Milliseconds the gateway waits for more messages: records are fewer and larger."
    )
    gateway: Literal["here", "elsewhere"] = Field(
        "here", description="`hothouse up` starts a gateway; elsewhere: one that runs alone fills the log."
    )

    _certificate_and_key = model_validator(mode="after")(_with_tls)


class LogSettings(Section):
    """The durable log between edge and core."""

    kind: Literal["sqlite", "kafka"] = Field("sqlite", description="A file in the data folder, or Kafka.")
    partitions: int = Field(4, ge=1, le=1024, description="Fixed when the log is created.")
    max_mib: float = Field(
        0, ge=0, description="The gateway acknowledges nothing while the file holds this much; 0: no limit."
    )
    reserve_mib: float = Field(
        64, ge=0, description="The gateway acknowledges nothing while the file's disk has less than this left."
    )
    keep_days: int = Field(
        0, ge=0, description="Records older than this leave the file once rows and snapshots hold them; 0: none does."
    )


class KafkaSettings(Section):
    """Kafka, if log.kind is kafka."""

    servers: tuple[Server, ...] = Field((), description="Bootstrap servers, each host:port.")
    topic: Annotated[str, of_form(r"[A-Za-z0-9._-]{1,200}", "a topic's name such as hothouse.samples")] = Field(
        "hothouse",
        description="Topic of the log; facts about it are in TOPIC.meta.",
    )
    direct_topic: str = Field("", description="Topic that sites write samples to themselves; empty: none.")
    group: str = Field(
        "hothouse", min_length=1, description="Consumer group whose offsets show how far the shards are."
    )
    username: str = Field("", description="User name (SASL), if the servers want one.")
    password_file: Path | None = Field(None, description="File that holds the password.")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism."
    )
    tls_ca_file: Path | None = Field(None, description="CA certificate; set it to use TLS.")
    tls_cert_file: Path | None = Field(None, description=_CERTIFICATE)
    tls_key_file: Path | None = Field(None, description="The key of that certificate, not encrypted.")
    replication: int = Field(-1, ge=-1, le=9, description="Copies of a new topic; -1: the servers' default.")
    retention_h: int = Field(720, ge=0, description="Hours that a new topic keeps records; 0: no limit.")

    @model_validator(mode="after")
    def _two_topics(self) -> KafkaSettings:
        if self.direct_topic == self.topic:
            raise ValueError("direct_topic must be another topic than topic, which is the log itself")
        return self

    _certificate_and_key = model_validator(mode="after")(_with_tls)


class UplinkSettings(Section):
    """A site's gateway sends its log on to a central one (`hothouse gateway`); off while to is empty."""

    to: str = Field("", description="kafka://host:port[,host:port]/topic, or mqtt://host[:port] of a central broker.")
    username: str = Field("", description="User name, if they want one.")
    password_file: Path | None = Field(None, description="File that holds the password.")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism, for Kafka."
    )
    tls_ca_file: Path | None = Field(None, description="CA certificate; set it to use TLS.")
    tls_cert_file: Path | None = Field(None, description=_CERTIFICATE)
    tls_key_file: Path | None = Field(None, description="The key of that certificate, not encrypted.")
    partitions: int = Field(4, ge=1, le=1024, description="Partitions of the central log, for Kafka.")
    tail_s: int = Field(
        60, ge=1, le=3600,
        description="How long what a central MQTT broker acknowledged stays in the buffer, to be sent again after a "
        "lost connection: longer than the broker takes to save its queues.",
    )  # fmt: skip

    _certificate_and_key = model_validator(mode="after")(_with_tls)


class GatewaySettings(Section):
    """The gateway's process, beside the others or alone."""

    decoders: tuple[str, ...] = Field(
        (), description="Decoders of installed packages, by name, for devices that send another format than Hothouse's."
    )
    clock: Literal["wall", "replayed"] = Field(
        "wall",
        description="Where receive times come from, and what time it is for the API; replayed: from the clock "
        "messages of a fast simulation.",
    )
    status_file: Path | None = Field(
        None, description="JSON, replaced every second; none: gateway-status.json beside a file log."
    )
    metrics_port: int = Field(
        0, ge=0, le=65535, description="Port that answers GET /metrics for Prometheus; 0: none does."
    )
    metrics_host: ListenHost = Field("127.0.0.1", description="Address of that port.")


class LogsSettings(Section):
    """What processes say, in ``logs/`` of the data folder; a gateway that runs alone says it on standard error."""

    format: Literal["text", "json"] = Field("text", description="A line of text, or a JSON object a line.")
    level: Literal["info", "debug"] = Field("info", description="debug: also each step's rows, and each request.")


class StreamSettings(Section):
    """How samples become rows."""

    step_s: int = Field(300, ge=10, le=3600, description="Length of a row in seconds; must divide an hour.")
    lateness_s: int = Field(30, ge=0, le=3600, description="How long a row waits for samples that are out of order.")
    idle_s: int = Field(
        0, ge=0, le=3600, description="A silent site's rows close this long after; 0: 3/10 of a step, at most 60 s."
    )
    shards: int = Field(1, ge=1, le=64, description="Ray actors that share the log's partitions.")
    ring_hours: int = Field(26, ge=26, le=336, description="Rows with all channels kept in memory a zone.")
    snapshot_s: float = Field(5.0, gt=0, le=3600, description="Seconds between snapshots of a shard.")
    retire_days: float = Field(
        7, ge=0, le=3650, description="A zone leaves after this many days of the stream's time without a sample, and "
        "is back with its next; 0: never by itself.",
    )  # fmt: skip

    @field_validator("step_s")
    @classmethod
    def _divides_an_hour(cls, value: int) -> int:
        if 3600 % value:
            raise ValueError("must divide an hour (3600 s) evenly, such as 60, 300, 600 or 900")
        return value
