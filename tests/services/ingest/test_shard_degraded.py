"""What a shard says of the readings that a forecast is made from: how old they are, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.log.memory import MemoryLog
from tests.services.ingest.rig import Rig
from tests.services.ingest.samples import STEP, T0, new_records, sample


def test_a_missing_input_degrades_the_forecast_and_says_why(tmp_path: Path) -> None:
    """A sensor that went silent is named; one that there never was is none that fails."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(10):
        values = {"air_temp_c": 20.0, "rh_pct": 70.0} if n < 3 else {"air_temp_c": 20.0}
        rig.log.append(new_records([[sample(T0 + n * STEP, n, **values)]]))
        shard.step()
        shard.step()
    newest = rig.live_state.published[-1]
    assert newest["degraded"] == ["rh_pct: last reading 30 min before the origin"]
    assert "co2_ppm" not in newest["forecasts"]


def test_now_has_the_newest_values_of_an_hour_and_says_how_old_they_are(tmp_path: Path) -> None:
    """Humidity comes each 20 minutes, half a minute before its row ends, and not any more after an hour. VPD is as old
    as it; what was irrigated counts in one row only.
    """
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(24):
        rig.log.append(new_records([[sample(T0 + n * STEP, n, air_temp_c=20.0)]]))
        if n % 4 == 0 and n <= 8:
            said = sample(T0 + n * STEP - 30_000, n, device="slow", rh_pct=60.1 + n, irrigation_l_m2=float(n))
            rig.log.append(new_records([[said]]))
        shard.step()
        shard.step()
    told = {(f["origin_ms"] - T0) // STEP: f for f in rig.live_state.published}
    assert (told[8]["now"]["rh_pct"], told[8]["now_age_s"]) == (68.1, {})
    for n in range(9, 21):
        age_s = 30 + (n - 8) * 300
        assert told[n]["now"]["rh_pct"] == pytest.approx(68.1, abs=0.05)
        assert told[n]["now"]["vpd_kpa"] == pytest.approx(told[8]["now"]["vpd_kpa"], abs=0.01)
        assert told[n]["now_age_s"] == {"rh_pct": age_s, "vpd_kpa": age_s}
        assert told[n]["now"]["irrigation_l_m2"] is None
    assert (told[21]["now"]["rh_pct"], told[21]["now"]["vpd_kpa"], told[21]["now_age_s"]) == (None, None, {})


@pytest.mark.parametrize("restart_at", [None, 50])
def test_a_zone_that_reports_each_hour_is_weak_once_it_missed_that(tmp_path: Path, restart_at: int | None) -> None:
    """How often it reports is learned from its first four readings, and known after a restart."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(76):
        batch = [sample(T0 + n * STEP, n, "z2", air_temp_c=20.0, rh_pct=70.0, co2_ppm=500.0)]
        if n % 12 == 0 and n <= 48:
            batch.append(sample(T0 + n * STEP, n, air_temp_c=20.0, rh_pct=70.0, co2_ppm=500.0))
        rig.log.append(new_records([batch]))
        shard.step()
        shard.step()
        if n == restart_at:
            shard.close()
            shard = rig.shard()
    told = {((f["origin_ms"] - T0) // STEP, f["zone"]): f for f in rig.live_state.published}
    every_s = {zone: [told[n, zone]["reports_every_s"] for n in range(75)] for zone in ("z1", "z2")}
    assert every_s == {"z1": [3600 if n >= 36 else 0 for n in range(75)], "z2": [0] * 75}
    weak = [n for n in range(75) if told[n, "z1"]["degraded"]]
    assert weak == [*(n for n in range(36) if n % 12 > 3), *range(48 + 14, 75)]
    assert "air_temp_c: last reading 1.2 h before the origin" in told[62, "z1"]["degraded"]
    assert not any(told[n, "z2"]["degraded"] for n in range(75))


def test_a_sensor_of_another_unit_degrades_the_forecast_also_after_a_restart(tmp_path: Path) -> None:
    """After its first hour it is named in `degraded`, in the figures and in one dead letter; a restart repeats none."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(24):
        rig.log.append(new_records([[sample(T0 + n * STEP, n, rh_pct=0.7, air_temp_c=20.0, co2_ppm=500.0)]]))
        shard.step()
        shard.step()
        if n == 16:
            shard.close()
            shard = rig.shard()
    words = "z1/climate rh_pct looks like a share (0.7 to 0.7): send percent"
    told = {f["origin_ms"]: words in f["degraded"] for f in rig.live_state.published}
    assert [told[T0 + n * STEP] for n in range(23)] == [n >= 12 for n in range(23)]
    assert rig.live_state.published[-1]["now"]["rh_pct"] is None
    stats = shard.stats()
    assert (stats["sensor_faults"], stats["sensor_faults_now"]) == ({"unit": 1}, 1)
    assert [(event["kind"], event["words"]) for event in stats["events"]] == [("unit", words)]
    shard.close()
    assert [(letter.reason, letter.topic) for letter in rig.dead_letters()] == [
        ("unit", "hothouse/v1/demo/z1/climate/sample")
    ]
