"""The simulated greenhouse as devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from edge.recordings.sample_source import CLIMATE, CONTROL, WEATHER, device_of, new_boot
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from edge.wire.reading import Sample, decode, encode_message
from edge.wire.topic import sample_topic
from edge.wire.vocabulary import VOCABULARY

START_MS = 1_643_673_600_000
MINUTE_MS = 60_000


class ScriptedSite:
    """A physical site that says what it is told to: one zone, a set point that changes at the given minutes."""

    name, zones, timezone, latitude, longitude = "s", ("z",), "UTC", 52.0, 4.5
    start_ms, step_ms = START_MS, MINUTE_MS

    def __init__(self, changes: tuple[int, ...] = ()) -> None:
        self._changes = changes
        self._minute = 0

    def instants(self, to_ms: int) -> Iterator[tuple[int, Mapping[str, Mapping[str, float]]]]:
        while (ts_ms := START_MS + self._minute * MINUTE_MS) <= to_ms:
            setpoint = 18.0 + sum(self._minute >= change for change in self._changes)
            self._minute += 1
            yield (
                ts_ms,
                {
                    "z": {"air_temp_c": 20.0, "rh_pct": float("nan"), "vent_lee_pct": 5.0, "sp_heat_c": setpoint},
                    "_site": {"out_temp_c": 3.0},
                },
            )


def by_device(samples: list[Sample]) -> dict[str, Sample]:
    return {sample.device: sample for sample in samples}


def test_a_zone_has_two_devices_and_the_site_a_station() -> None:
    """Sensors, actuators with setpoints, and weather come from three devices; a missing value is left out."""
    _, samples = next(SimulatorSource(ScriptedSite()).samples(START_MS))
    devices = by_device(samples)
    assert devices[CLIMATE].values == {"air_temp_c": 20.0}
    assert devices[CONTROL].values == {"vent_lee_pct": 5.0, "sp_heat_c": 18.0}
    assert (devices[WEATHER].zone, devices[WEATHER].values) == ("_site", {"out_temp_c": 3.0})


def test_setpoints_come_on_change_and_every_quarter_of_an_hour() -> None:
    """A setpoint is sent when it changes and every 15 minutes, an actuator every minute."""
    source = SimulatorSource(ScriptedSite(changes=(4,)))
    minutes = [
        (ts_ms - START_MS) // MINUTE_MS
        for ts_ms, samples in source.samples(START_MS + 40 * MINUTE_MS)
        if "sp_heat_c" in by_device(samples)[CONTROL].values
    ]
    assert minutes == [0, 4, 19, 34]


def test_a_sequence_rises_by_one_a_device() -> None:
    """Each device counts its own samples from 0, also when the source is read in pieces."""
    source = SimulatorSource(ScriptedSite())
    seqs: dict[str, list[int]] = {}
    for to_min in (3, 3, 9):
        for _, samples in source.samples(START_MS + to_min * MINUTE_MS):
            for sample in samples:
                seqs.setdefault(sample.device, []).append(sample.seq)
    assert seqs == {device: list(range(10)) for device in (CLIMATE, CONTROL, WEATHER)}


def test_skipping_gives_only_what_comes_later() -> None:
    """After a skip the first instant is the next one, and setpoints are said at once."""
    source = SimulatorSource(ScriptedSite())
    source.skip(START_MS + 5 * MINUTE_MS)
    ts_ms, samples = next(source.samples(START_MS + 60 * MINUTE_MS))
    assert ts_ms == START_MS + 6 * MINUTE_MS
    assert "sp_heat_c" in by_device(samples)[CONTROL].values


def test_boots_are_random_unless_seeded() -> None:
    """A boot id is 64 bits in hex: new each time, or repeatable and different for each device."""
    assert len(new_boot(None)) == 16
    assert new_boot(None) != new_boot(None)
    assert new_boot(1, "a") == new_boot(1, "a") != new_boot(1, "b")


def test_every_metric_has_a_device() -> None:
    """The vocabulary falls into sensors, control and weather as its groups say."""
    devices = {name: device_of(name) for name in VOCABULARY}
    assert {n for n, d in devices.items() if d == CLIMATE} == {
        "air_temp_c", "rh_pct", "hd_g_m3", "co2_ppm", "par_umol_m2_s", "leaf_temp_c", "soil_vwc_pct", "soil_temp_c",
        "soil_ec_us_cm",
    }  # fmt: skip
    assert {n for n, d in devices.items() if d == WEATHER} == {
        "out_temp_c", "out_rh_pct", "out_radiation_w_m2", "out_longwave_net_w_m2", "wind_m_s", "wind_dir_deg", "rain",
        "out_rad_sum_j_cm2",
    }  # fmt: skip


@pytest.mark.parametrize("zones", [1, 3])
@pytest.mark.thorough
def test_the_simulated_greenhouse_passes_the_gateways_check(zones: int) -> None:
    """Every sample of the physical simulator is one that the gateway takes whole."""
    source = SimulatorSource(SimulatedSite("demo", 7, START_MS, zones=zones))
    count = 0
    for ts_ms, samples in source.samples(START_MS + 60 * MINUTE_MS):
        for sample in samples:
            decoded = decode(sample_topic(sample.site, sample.zone, sample.device), encode_message([sample]), ts_ms)
            assert (decoded.samples, decoded.refusals) == ([sample], [])
            count += 1
    assert count == 61 * (2 * zones + 1)
