"""Who is told besides the API: people, InfluxDB, Home Assistant, a collector of traces."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from edge.config import Host, HttpUrl, Section
from edge.secret_file import read_secret
from services.config.texts import CollectorUrl, DiscoveryPrefix, MailAddress, WebAddress

__all__ = ["AlertSettings", "HomeAssistantSettings", "InfluxSettings", "TracesSettings"]


class AlertSettings(Section):
    """Rules of alerts, and how people are told."""

    rules_file: Path | None = Field(
        None, description="Rules in TOML, of every site that has none of its own; none: those of the crop `other`."
    )
    mqtt: bool = Field(True, description="Each alert stands retained on a topic of its own.")
    mqtt_clear_min: float = Field(60, ge=0, description="Minutes after which a resolved alert leaves its topic.")
    webhook_url: WebAddress = Field("", description="Address that changes are posted to; empty: none is.")
    webhook_secret_file: Path | None = Field(None, description="File with the secret that signs; none: unsigned.")
    webhook_severity: Literal["info", "warning", "critical"] = Field(
        "info", description="The least severity that is posted."
    )
    email_to: tuple[MailAddress, ...] = Field((), description="Addresses that alerts are mailed to; none: no mail.")
    email_from: str = Field("hothouse@localhost", min_length=3, description="Sender of these mails.")
    email_severity: Literal["info", "warning", "critical"] = Field(
        "warning", description="The least severity that is mailed."
    )
    email_gather_s: float = Field(60, ge=0, le=3600, description="Seconds in which alerts gather for one mail.")
    smtp_host: Host = Field("localhost", min_length=1, description="Server that takes the mails.")
    smtp_port: int = Field(587, ge=1, le=65535, description="Port of that server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field("starttls", description="How the way to it is encrypted.")
    smtp_username: str = Field("", description="User name, if it wants one.")
    smtp_password_file: Path | None = Field(None, description="File that holds the password.")


class InfluxSettings(Section):
    """Series in InfluxDB; off while url is empty."""

    url: HttpUrl = Field("", description="InfluxDB address; empty: rows and forecasts are not sent.")
    org: str = Field("-", description="Organisation (2.x); anything on 1.8.")
    bucket: str = Field(
        "hothouse/autogen", min_length=1, description="Bucket (2.x), or database/retention policy (1.8)."
    )
    token: SecretStr | None = Field(None, description="Token; only from the environment (HOTHOUSE_INFLUX__TOKEN).")
    token_file: Path | None = Field(None, description="File that holds the token.")
    queue_points: int = Field(
        200_000, ge=1000,
        description="Points in memory while InfluxDB is away; older ones are sent from the history later.",
    )  # fmt: skip

    @property
    def secret(self) -> str:
        """The token, from wherever it is named; empty where none is. ``OSError`` for a file that cannot be read."""
        if self.token is not None and self.token.get_secret_value():
            return self.token.get_secret_value()
        return "" if self.token_file is None else read_secret(self.token_file)


class HomeAssistantSettings(Section):
    """Zones as devices of Home Assistant, by its MQTT discovery; off while prefix is empty."""

    prefix: DiscoveryPrefix = Field(
        "",
        description="Home Assistant's discovery prefix, `homeassistant` unless you changed it there; empty: nothing "
        "is announced.",
    )  # fmt: skip


class TracesSettings(Section):
    """Traces of steps and requests, as OpenTelemetry's spans; off while endpoint is empty."""

    endpoint: CollectorUrl = Field(
        "",
        description="Collector that takes OTLP over HTTP, such as http://collector:4318; spans go to `/v1/traces` "
        "there. Wants the extra `traces`.",
    )  # fmt: skip
    share: float = Field(1.0, ge=0, le=1, description="Share of steps, and of requests, that are traced.")
    headers_file: Path | None = Field(
        None, description="File with headers that the collector wants, `name: value` a line, such as a token."
    )
