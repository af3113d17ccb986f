"""The sections of the whole system: names, types, defaults, what is allowed. Those of the gateway are in ``edge``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from edge.config import Host, HttpUrl, ListenHost, Section
from edge.wire.plan import METRICS_OF
from edge.wire.vocabulary import VOCABULARY
from models.families import FAMILIES
from services.config.texts import (
    ApiRoute,
    BucketUrl,
    CollectorUrl,
    CronExpression,
    DiscoveryPrefix,
    MailAddress,
    Name,
    Origin,
    ProxyAddress,
    RayResource,
    ServerUrl,
    TimeZone,
    WebAddress,
    WebUrl,
    ZoneOrAll,
)  # fmt: skip

__all__ = [
    "AlertSettings", "ApiSettings", "ClientSettings", "ForecastSettings", "InfluxSettings", "LearnSettings",
    "RaySettings", "SiteSettings", "StorageSettings", "TracesSettings", "WeatherSettings",
]  # fmt: skip

VARIABLES = {
    "temperature_2m": "out_temp_c", "relative_humidity_2m": "out_rh_pct", "shortwave_radiation": "out_radiation_w_m2",
    "wind_speed_10m": "wind_m_s", "wind_direction_10m": "wind_dir_deg",
}  # fmt: skip


class ForecastSettings(Section):
    """What is forecast."""

    horizons_min: tuple[int, ...] = Field(
        (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440), description="Horizons in minutes, rising."
    )
    targets: tuple[str, ...] = Field(
        ("air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa"), description="Metrics that are forecast."
    )
    lookback_hours: int = Field(24, ge=1, le=72, description="History the network sees, in hours.")
    stale_after_s: int = Field(
        1800,
        ge=60,
        description="Age of a forecast, in stream time, from which /predict answers 503; more "
        "than a step and the lateness.",
    )

    @field_validator("targets")
    @classmethod
    def _known_targets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in VOCABULARY and name != "vpd_kpa"]
        if unknown or not value or len(set(value)) < len(value):
            raise ValueError("must be metrics of the vocabulary or vpd_kpa, each once, such as air_temp_c")
        angles = [name for name in value if name != "vpd_kpa" and VOCABULARY[name].kind == "angle"]
        if angles:
            raise ValueError(f"{angles[0]} cannot be forecast: a direction is neither more nor less than another")
        return value

    @field_validator("horizons_min")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or list(value) != sorted(set(value)) or value[0] < 1 or value[-1] > 7 * 1440:
            raise ValueError("must rise, each between 1 and 10080 minutes")
        return value


class LearnSettings(Section):
    """Periodic retraining."""

    retrain_every_s: float = Field(
        6 * 3600, ge=0, description="Wall seconds between retrainings; 0: no schedule, and no first model by itself, "
        "unless `learn.retrain_cron` is set.",
    )  # fmt: skip
    retrain_cron: CronExpression = Field(
        "", description="Cron expression of five fields, such as `0 3 * * *`, instead of `learn.retrain_every_s`. A "
        "time is left out if no training can begin then or within the next hour.",
    )  # fmt: skip
    retrain_timezone: TimeZone = Field("UTC", description="IANA time zone of `learn.retrain_cron`.")
    retrain_on_drift: Literal["never", "site", "zone"] = Field(
        "site", description="Retrain when a site as a whole drifts, or also when a single zone does."
    )
    retrain_rows: int = Field(0, ge=0, description="Retrain after this many new zone rows; 0: off.")
    retrain_days: float = Field(
        0.0, ge=0, description="Retrain after this many days of new rows, in the stream's time; 0: off."
    )
    trees_every_days: float = Field(
        5.0, ge=0, description="Train the mixture's trees after this many days of new rows, in the stream's time; "
        "0: only when asked.",
    )  # fmt: skip
    tuned_every_days: float = Field(
        3.0, ge=0, description="Fine-tune the package's network to the sites after this many days of new rows, in the "
        "stream's time; 0: not at all.",
    )  # fmt: skip
    trees_tolerance: float = Field(
        0.01, ge=0, lt=0.5, description="Newer trees may be worse than the serving ones by up to this share."
    )
    kind: str = Field(
        "network", description="The kind of model that replicas run and trainings train; others may be submitted."
    )
    cool_down_s: float = Field(10.0, ge=0, description="No training starts by itself this soon after another ended.")
    rest: float = Field(
        10.0, ge=0, description="After a training, drift and new rows start none for this many times its duration."
    )
    timeout_s: float = Field(1800, gt=0, description="A training that takes longer is ended; the champion stays.")
    min_days: float = Field(2.0, gt=0, description="History needed before the first training, in days.")
    # A share of it is held back, and a zone's first day teaches nothing: little more than a day is never enough.
    window_days: float = Field(60.0, ge=2, description="History used for a training, in days.")
    held_back: float = Field(0.15, gt=0, lt=0.9, description="Newest share of the history, held back for the gate.")
    workers: int = Field(
        -1, ge=-1, le=256,
        description="Ray Train workers; 0: inside the trainer's own process; -1: one a GPU or node, 0 for only one.",
    )  # fmt: skip
    min_workers: int = Field(
        0, ge=0, le=256, description="Train with as few workers as this if there is no room for all; 0: wait for room."
    )
    sharded: bool = Field(
        False, description="Each of several workers holds a piece of the network (FSDP2) instead of all of it (DDP)."
    )
    use_gpu: Literal["auto", "yes", "no"] = Field("auto", description="Train on GPUs.")
    epochs: int = Field(6, ge=1, le=1000, description="Passes over the training windows.")
    max_windows: int = Field(20_000, ge=100, description="Windows drawn for one epoch, all zones together.")
    seed: int = Field(7, ge=0, description="Seed of initial weights and shuffling.")
    shadow_hours: float = Field(
        24.0, ge=0, le=24 * 60, description="Hours of live rows on which a challenger is compared with the champion; "
        "0: held-back rows decide alone.",
    )  # fmt: skip
    shadows: int = Field(
        2, ge=1, le=16, description="Challengers that may be in shadow at once. The next training begins when the "
        "newest has had that part of its time, by default half; with 1, after its verdict.",
    )  # fmt: skip
    watch_hours: float = Field(
        48.0, ge=0, le=24 * 60, description="Hours of live rows on which a new champion is compared with the previous "
        "one; it is withdrawn if it is worse. 0: no watch.",
    )  # fmt: skip
    gate_budget: float = Field(
        0.2, gt=0, lt=1, description="Chance that any of a champion's challengers replaces it without being better."
    )
    gate_margin: float = Field(
        0.002, ge=0, lt=0.5, description="A challenger's error must be smaller by more than this share."
    )
    learning_rate: float = Field(4e-3, gt=0, le=1, description="Highest rate of the cycle; see `hothouse tune`.")
    fine_tuning_rate: float = Field(
        5e-4, gt=0, le=1, description="The same where a training goes on from the weights of the package "
        '(`learn.kind = "pretrained"`).',
    )  # fmt: skip
    weight_decay: float = Field(0.05, ge=0, le=1, description="How strongly weights are drawn to zero.")
    hidden: int = Field(64, ge=4, le=4096, description="Width of the network.")
    mixes: int = Field(6, ge=1, le=256, description="Mixtures of a channel's course over the look-back.")
    dropout: float = Field(0.2, ge=0, lt=1, description="Share of hidden values left out in training.")
    silence: float = Field(0.3, ge=0, lt=1, description="Share of channels taken away in training.")
    force_promote: bool = Field(False, description="Promote whatever the gate says (demonstrations only).")
    keep_models: int = Field(
        20, ge=0,
        description="How many of the newest models keep their files, besides those in use; all records stay. 0: all.",
    )  # fmt: skip
    mlflow_uri: str = Field("", description="MLflow tracking server; empty: an SQLite file in the data folder.")

    @field_validator("mlflow_uri")
    @classmethod
    def _an_address(cls, value: str) -> str:
        if value and not re.fullmatch(r"[a-z0-9+]+:/\S+", value):
            raise ValueError(
                "must be an address such as http://mlflow:5000, or empty"
            )  # MLflow makes a folder of others
        return value

    @model_validator(mode="after")
    def _fewer_workers(self) -> LearnSettings:
        if 0 <= self.workers < self.min_workers:
            raise ValueError(f"min_workers is {self.min_workers}: it must not exceed workers, {self.workers}")
        return self

    @field_validator("kind")
    @classmethod
    def _takes_windows(cls, value: str) -> str:
        fitting = [kind for kind, known in FAMILIES.items() if known.takes == "windows"]
        if value not in fitting:
            raise ValueError(f"must be a kind of model that takes windows of rows: {', '.join(fitting)}")
        return value


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
        """The token, from wherever it is named; empty where none is. ``OSError`` for a file that is not there."""
        if self.token is not None and self.token.get_secret_value():
            return self.token.get_secret_value()
        return "" if self.token_file is None else self.token_file.read_text().strip()


class HomeAssistantSettings(Section):
    """Zones as devices of Home Assistant, by its MQTT discovery; off while prefix is empty."""

    prefix: DiscoveryPrefix = Field(
        "",
        description="Home Assistant's discovery prefix, `homeassistant` unless you changed it there; empty: nothing "
        "is announced.",
    )  # fmt: skip


class ApiSettings(Section):
    """HTTP."""

    host: ListenHost = Field("127.0.0.1", description="Address to listen on; loopback unless you say otherwise.")
    port: int = Field(8000, ge=0, le=65535, description="Port; 0: a free one.")
    route: ApiRoute = Field(
        "/",
        description="Path of the API; installations on one Ray cluster need one each. The page needs "
        "`/`.",
    )  # fmt: skip
    url: ServerUrl = Field(
        "",
        description="Where the API is reached, such as http://front:8000, where a balancer stands before a cluster; "
        "empty: where it listens, on a cluster on the head node.",
    )  # fmt: skip
    replicas: int = Field(1, ge=1, le=32, description="API replicas.")
    read_key_file: Path | None = Field(
        None, description="File with a key that readers must send; none: reading is open."
    )
    read_needs_key: bool = Field(False, description="Reading needs a key, of the file before or of `hothouse keys`.")
    tls_cert_file: Path | None = Field(
        None,
        description="Certificate with its chain, in PEM: host and port speak HTTPS then. A renewed one is used within "
        "ten seconds.",
    )
    tls_key_file: Path | None = Field(None, description="The certificate's key, in PEM, without a passphrase.")
    cors_origins: tuple[Origin, ...] = Field(
        (),
        description="Origins, such as https://office.example.org, whose pages may ask the API; none: only its own "
        "page.",
    )  # fmt: skip
    rate_per_s: float = Field(
        100, ge=0, le=1e6,
        description="Requests a second that a replica takes of one client: of a key, or of an address where no key is "
        "sent; 0: any number.",
    )  # fmt: skip
    rate_burst: int = Field(500, ge=1, le=1_000_000, description="So many requests may come at once.")
    streams_per_client: int = Field(
        200,
        ge=0,
        le=3000,
        description="Streams of `/events` that one client may have open at a replica; 0: any number.",
    )
    proxies: tuple[ProxyAddress, ...] = Field(
        (), max_length=64,
        description="Addresses, or networks such as 10.0.7.0/24, of proxies before Hothouse that add to "
        "`X-Forwarded-For`: of a request that came through them the address is the one that the first of them saw.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _certificate_with_key(self) -> ApiSettings:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file belong together: set both, or none")
        if self.tls_cert_file is not None and self.port == 0:
            raise ValueError("port must be named where tls_cert_file is set")
        return self


class WeatherSettings(Section):
    """Where `hothouse weather` gets its forecasts from."""

    url: WebUrl = Field(
        "https://api.open-meteo.com/v1/forecast",
        description="Address of a service that answers as Open-Meteo does.",
    )  # fmt: skip
    source: str = Field(
        "open-meteo", min_length=1, max_length=64,
        description="What its forecasts are called; a newer one replaces the one before.",
    )  # fmt: skip
    sites: tuple[str, ...] = Field((), description="Sites that it is asked for; none: all with coordinates.")
    variables: dict[str, str] = Field(
        dict(VARIABLES), description="variable = metric: what is asked for, and what it is here."
    )
    every_min: float = Field(60, ge=5, le=1440, description="Minutes between two questions for a site.")
    days: int = Field(3, ge=1, le=15, description="How far ahead it is asked, in days, today among them.")
    key_file: Path | None = Field(None, description="File with the service's key, if it wants one.")

    @field_validator("variables")
    @classmethod
    def _weather_metrics(cls, value: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(value.values()) - set(METRICS_OF["weather"]))
        if unknown or not value or len(set(value.values())) < len(value):
            known = ", ".join(METRICS_OF["weather"])
            raise ValueError(f"must name metrics of the weather, each once: {known}")
        return value


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


class ClientSettings(Section):
    """Which running system commands ask (`hothouse status`, `predict` ...), instead of the one on the data folder."""

    url: HttpUrl = Field("", description="Its address, http://HOST:PORT; empty: the system on the data folder.")
    key_file: Path | None = Field(
        None,
        description="File with the key that is sent to it; none: the operator's, to the system on the data folder.",
    )


class StorageSettings(Section):
    """Where all is kept that outlives a process, but for a log in a file: history, snapshots, models and more."""

    url: BucketUrl = Field(
        "",
        description="Bucket, or container, and a folder in it: `s3://BUCKET/FOLDER` or `az://…`; empty: the folder "
        "`storage` of the data folder. Not yet `gs://`, which compares versions in another way.",
    )  # fmt: skip
    endpoint: WebAddress = Field(
        "",
        description="Address of the server, where it is not the cloud's own, such as http://minio:9000.",
    )
    region: str = Field("", description="Region of the bucket (S3); empty: as the environment says, or us-east-1.")
    path_style: bool = Field(
        False, description="The bucket is in the path of requests, not in the name of the host: most servers that are "
        "not Amazon's want that.",
    )  # fmt: skip
    account: str = Field("", description="Storage account (Azure).")
    credentials_file: Path | None = Field(
        None, description="File with the login: as `~/.aws/credentials` (S3), or the account's key (Azure). It is read "
        "again when it is refused. None: what the environment says (`AWS_…`, `AZURE_…`), or the machine's own role.",
    )  # fmt: skip
    retry_s: float = Field(
        10.0, ge=0, le=300, description="For so long a request that gets no answer is asked again at once. Then what "
        "was to be written waits, and is tried again as a whole.",
    )  # fmt: skip


class RaySettings(Section):
    """The Ray runtime."""

    address: str = Field(
        "", description="Cluster to join; empty: start one here. Its nodes need a bucket (`storage.url`), or a folder "
        "that all of them see.",
    )  # fmt: skip
    num_cpus: int = Field(
        0, ge=0, le=1024, description="Logical CPUs of a local runtime; 0: as many as there are, at least 2."
    )
    object_store_mb: int = Field(256, ge=80, le=1_000_000, description="Object store of a local runtime.")
    live_states: int = Field(
        0, ge=0, le=64,
        description="So many processes hold what is known of zones now, never more than there are shards; 0: one on "
        "this machine, one for each shard on a cluster.",
    )  # fmt: skip
    forecaster_replicas: int = Field(1, ge=1, le=64, description="Replicas that run the model.")
    replicas_per_node: int = Field(
        0, ge=0, le=64,
        description="So many replicas of the API, and so many that run the model, may be on one node of a cluster; 0: "
        "any number. With two of each and 1 the loss of a node leaves one of each.",
    )  # fmt: skip
    api_resource: RayResource = Field(
        "",
        description="Resource of Ray that some nodes of a cluster have one of, for a replica of the API, which is put "
        "on no other node; empty: on any node. Where these nodes have no CPUs, nothing else is put there.",
    )
    keep_serving: bool = Field(
        False,
        description="On a cluster: the API goes on answering with what it knows when `hothouse up` has ended, until "
        "the next one takes it over.",
    )


class SiteSettings(Section):
    """One site; a site that is not listed gets UTC and no sun position."""

    name: Name = Field(description="As in the topic.")
    label: str = Field("", max_length=64, description="What people call it, as on the page.")
    zone_labels: dict[Name, str] = Field(
        default_factory=dict, description='zone = what people call it, such as `north-1 = "Tomatoes, north"`.'
    )
    timezone: TimeZone = Field("UTC", description="IANA time zone.")
    latitude: float | None = Field(None, ge=-90, le=90, description="Degrees north.")
    longitude: float | None = Field(None, ge=-180, le=180, description="Degrees east.")
    clock: Literal["civil", "standard"] = Field("civil", description="Which clock its climate control follows.")
    repeat_setpoints: tuple[ZoneOrAll, ...] = Field(
        (), description="Zones for which yesterday's setpoints are today's plan, where nobody plans them; `*`: all."
    )
    rules_file: Path | None = Field(None, description="Its rules of alerts, instead of `alerts.rules_file`.")
    primary: dict[str, Name] = Field(default_factory=dict, description="metric = device: its value is the zone's.")

    @field_validator("primary")
    @classmethod
    def _known_metrics(cls, value: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(value) - set(VOCABULARY))
        if unknown:
            raise ValueError(f"names {', '.join(unknown)}, which is not in the vocabulary")
        return value

    @model_validator(mode="after")
    def _whole_place(self) -> SiteSettings:
        if (self.latitude is None) != (self.longitude is None):
            raise ValueError(f"{self.name}: latitude and longitude belong together: set both, or none")
        return self
