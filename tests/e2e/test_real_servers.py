"""The whole system between servers that people run: a real Mosquitto before it, a real InfluxDB behind it; its log in
a file, or on a real Kafka.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from influxdb_client import InfluxDBClient

from edge.log.kafka.kafka_log import KafkaLog
from edge.mqtt.connection import MqttAddress
from edge.recordings.importing import import_samples
from edge.recordings.replay import RecordingSource
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from services.app import System
from services.config import Settings, load_settings
from services.demo.watch import DemoWatch
from services.forecast_spec import forecast_spec
from services.log import open_settings_log
from services.store.history import History
from tests.ci.record import balance
from tests.conftest import require_env
from tests.kafka_logs import delete_topics
from tests.patience import patience_s
from tests.patience import until as wait_until

pytestmark = [
    pytest.mark.e2e, pytest.mark.broker, pytest.mark.influx, pytest.mark.slow, pytest.mark.timeout(600),
]  # fmt: skip

RECORDING = Path(__file__).parents[1] / "data" / "lettuce_2022"
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
HOURS = 4
SPEED = 1500.0
COMPARED = ("air_temp_c", "co2_ppm", "vent_lee_pct", "out_temp_c")


@pytest.fixture
def log_sections(name: str) -> Iterator[dict[str, Any]]:
    """The settings of the log: a topic of its own where there is a Kafka, which is deleted afterwards, else a file."""
    server = os.environ.get("HOTHOUSE_TEST_KAFKA")
    if not server:
        yield {}
        return
    yield {"log": {"kind": "kafka"}, "kafka": {"servers": [server], "topic": name, "group": name}}
    delete_topics(server, [name, f"{name}.meta"])


@dataclass(frozen=True)
class Servers:
    """Where the real ones are."""

    mqtt: MqttAddress
    influx_url: str
    influx_token: str
    influx_org: str
    bucket: str


@pytest.fixture
def servers() -> Servers:
    """From the environment; skipped without."""
    host, _, port = require_env("HOTHOUSE_TEST_MQTT").rpartition(":")
    return Servers(
        MqttAddress(host=host, port=int(port)),
        require_env("HOTHOUSE_TEST_INFLUXDB_URL"),
        require_env("HOTHOUSE_TEST_INFLUXDB_TOKEN"),
        os.environ.get("HOTHOUSE_TEST_INFLUXDB_ORG", "-"),
        os.environ.get("HOTHOUSE_TEST_INFLUXDB_BUCKET", "hothouse/autogen"),
    )


@pytest.fixture
def name(servers: Servers) -> Iterator[str]:
    """A site and client name that no other run has; its session on the broker is ended afterwards."""
    name = f"e2e-{uuid.uuid4().hex[:12]}"
    yield name
    forget_session(servers.mqtt, name)


def test_rows_and_forecasts_go_from_mosquitto_to_influxdb(
    servers: Servers, name: str, log_sections: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was published to Mosquitto stands in InfluxDB as in the Parquet history, and /predict answers each zone; a
    group on Kafka has no lag left.
    """
    source = RecordingSource(RECORDING, site=name)
    warm_ms = source.start_ms + DAY_MS
    end_ms = warm_ms + HOURS * HOUR_MS
    monkeypatch.setenv("HOTHOUSE_INFLUX__TOKEN", servers.influx_token)
    settings = load_settings(
        data_dir=tmp_path / "data",
        mqtt={"host": servers.mqtt.host, "port": servers.mqtt.port, "client_id": name},
        influx={"url": servers.influx_url, "org": servers.influx_org, "bucket": servers.bucket},
        api={"port": 0},
        learn={"retrain_every_s": 0},
        sites=[{"name": name, "timezone": source.timezone, "primary": dict(source.primary)}],
        **log_sections,
    )
    ledger = Ledger()
    publisher = Publisher(source, servers.mqtt, ledger, Pace(SPEED), with_clock=True, until_ms=end_ms)

    def warm_up(log: Any) -> None:
        import_samples(source, log, warm_ms)

    with System(settings, receive_clock="replayed", warm_up=warm_up) as system:
        watch = DemoWatch(system.url)
        assert watch.wait_until_ready(patience_s(90)), watch.problem
        wait_until(lambda: bool(system.gateway_status.get("connected")), "the gateway is connected")
        feeding = threading.Thread(target=publisher.run, name="publisher", daemon=True)
        feeding.start()
        feeding.join(patience_s(90))
        assert ledger.status["complete"], ledger.status
        last_ms = end_ms - end_ms % 300_000 - 300_000  # the last step closes with the samples after it only
        wait_until(lambda: all(at >= last_ms for at in origins(watch, name)), "every zone is forecast to the end")
        wait_until(lambda: sent_all(watch, last_ms), "InfluxDB has taken every point")
        answers = {zone: predict(system.url, name, zone) for zone in source.zones}
        assert not watch.look().errors
        watch.close()
    if log_sections:
        assert_no_lag(settings)
    assert_rows_equal(servers, settings, name, source.zones)
    for zone, answer in answers.items():
        assert (answer["site"], answer["zone"], answer["model_version"]) == (name, zone, "online")
        assert_forecast_equal(servers, answer)


def forget_session(address: MqttAddress, client_id: str) -> None:
    """End a persistent session on the broker: connect under its name once without wanting it."""
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=True)
    client.connect(address.host, address.port)
    client.loop_start()
    wait_until(client.is_connected, "the broker answers")
    client.disconnect()
    client.loop_stop()


def origins(watch: DemoWatch, site: str) -> list[int]:
    """The origins of this site's forecasts; other sites may be on a shared broker."""
    found = watch.look().forecasts.items()
    return [forecast["origin_ms"] for (of_site, _), forecast in found if of_site == site]


def sent_all(watch: DemoWatch, last_ms: int) -> bool:
    """Whether the shards, by figures of after the last step, have sent all to InfluxDB, and nothing was lost."""
    shards = watch.look().shards
    series = [shard["series"] for shard in shards]
    assert not any(stats["refused"] or stats["dropped"] for stats in series), series
    at_the_end = all((shard["origin_ms"] or 0) >= last_ms for shard in shards)
    return at_the_end and all(stats["sent"] and not stats["queued"] for stats in series)


def predict(url: str, site: str, zone: str) -> dict[str, Any]:
    """``GET /predict`` as any client asks."""
    answer = httpx.get(f"{url}/predict", params={"site": site, "zone": zone}, timeout=patience_s(30))
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def flux(servers: Servers, measurement: str, site: str, more: str) -> list[Any]:
    """The records of a site, found by a Flux query."""
    query = (
        f'from(bucket: "{servers.bucket}") |> range(start: 2022-01-01T00:00:00Z, stop: 2022-03-01T00:00:00Z)'
        f' |> filter(fn: (r) => r._measurement == "{measurement}" and r.site == "{site}" and ({more}))'
    )
    with InfluxDBClient(url=servers.influx_url, token=servers.influx_token, org=servers.influx_org) as client:
        return [record for table in client.query_api().query(query, org=servers.influx_org) for record in table.records]


def assert_no_lag(settings: Settings) -> None:
    """The offsets that the shards committed are the ends of the partitions, ticks after the last save aside."""
    with closing(open_settings_log(settings)) as log:
        assert isinstance(log, KafkaLog)
        kept = {partition: log.committed(partition) for partition in range(log.partitions)}
        left = [record.kind for partition, offset in kept.items() for record in log.read(partition, offset or 0, 1000)]
        assert sum(offset or 0 for offset in kept.values()) > 0
    assert set(left) <= {"tick"}, Counter(left)


def assert_rows_equal(servers: Servers, settings: Settings, site: str, zones: Any) -> None:
    """Each compared channel of each row in the history is a point with that very value, and there is no other."""
    table = History(settings.storage_folder, forecast_spec(settings).channels, settings.stream.step_s).read(
        sites=[site]
    )
    assert set(table["zone"].to_pylist()) == set(zones)
    assert len(table) > (24 + HOURS - 1) * 12 * len(zones)
    wanted = {
        (row["zone"], row["end_ms"], channel): row[channel]
        for row in table.select(["zone", "end_ms", *COMPARED]).to_pylist()
        for channel in COMPARED
        if row[channel] is not None and row[channel] == row[channel]
    }
    fields = " or ".join(f'r._field == "{channel}"' for channel in COMPARED)
    found = {
        (record["zone"], round(record.get_time().timestamp() * 1000), record.get_field()): record.get_value()
        for record in flux(servers, "zone_climate", site, fields)
    }
    with balance():
        assert found == wanted


def assert_forecast_equal(servers: Servers, answer: dict[str, Any]) -> None:
    """Each point of an answer of /predict stands in InfluxDB, its quantiles in order."""
    stored: dict[tuple[str, int, int], dict[str, Any]] = {}
    for record in flux(servers, "forecast", answer["site"], f'r.zone == "{answer["zone"]}"'):
        key = record["target"], int(record["horizon_min"]), round(record.get_time().timestamp() * 1000)
        stored.setdefault(key, {})[record.get_field()] = record.get_value()
    for target, points in answer["forecasts"].items():
        for point in points:
            found = stored[target, point["horizon_min"], point["time_ms"]]
            said = {"origin_ms": answer["origin_ms"], "version": answer["model_version"]}
            assert found == {**said, **{q: point[q] for q in ("p10", "p50", "p90")}}
            assert found["p10"] <= found["p50"] <= found["p90"]
