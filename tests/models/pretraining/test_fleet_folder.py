"""The folder of a recorded fleet: what was written is read, and what was foreseen is what plans say."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.simulator.fleet.draws import draw_site
from edge.simulator.fleet.fleet_recording import FleetRecording, recording_layout
from edge.simulator.fleet.simulation import simulate_fleet
from models.features.plans import PLANNED, Plan, Plans
from models.pretraining.fleet_chunk import FleetChunk
from models.pretraining.fleet_folder import FleetFolder, FleetFolderError, write_chunk, write_manifest

PAGE = (Path(__file__).parents[3] / "docs/pretraining.md").read_text()
BIN_MS = 1_800_000
MADE = {"seed": 4, "sites": 5, "days": 1, "step_s": 300}


@functools.cache
def recording() -> FleetRecording:
    return simulate_fleet([draw_site(4, index) for index in range(5)], 1)


def write(folder: Path) -> FleetFolder:
    write_manifest(folder, recording_layout(), MADE, [write_chunk(folder, 0, recording().arrays())])
    return FleetFolder(folder)


def plans_of(chunk: FleetChunk, zone: int) -> Plans:
    """A zone's plans, as the system keeps them."""
    arrays, layout, plans = chunk.arrays, chunk.layout, Plans()
    site = int(arrays["zone_site"][zone])
    for run in np.flatnonzero(arrays["forecast_came"][site]):
        issued = int(arrays["forecast_issued_ms"][site, run])
        times = issued + BIN_MS + np.arange(layout["forecast_hours"]) * 3_600_000
        said = zip(layout["forecast_metrics"], arrays["forecast"][site, run].T, strict=True)
        plans.add(Plan("service", "weather", issued, {name: (times, values) for name, values in said}))
    for day in np.flatnonzero(arrays["plan_came"][zone]):
        issued = int(arrays["plan_issued_ms"][zone, day])
        times = issued + np.arange(layout["plan_bins"]) * BIN_MS
        series = {
            name: (times[np.isfinite(values)], values[np.isfinite(values)])
            for name, values in zip(layout["plan_metrics"], arrays["plan"][zone, day].T, strict=True)
            if np.isfinite(values).any()
        }
        plans.add(Plan("grower", "setpoint", issued, series, zone="north"))
    return plans


@pytest.mark.thorough
def test_the_page_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/pretraining.md that reads a fleet runs, and its table has every array."""
    (tmp_path / "fleet").mkdir()
    write(tmp_path / "fleet")
    [program] = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "FleetFolder(" in block]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["ahead"].shape == (2, 55, len(PLANNED))
    table = PAGE.partition("| array | shape |")[2].partition("\n\n")[0]
    first = " ".join(re.findall(r"^\| (.*?) \|", table, re.M))
    assert set(re.findall(r"`(\w+)`", first)) == set(recording().arrays())


@pytest.mark.thorough
def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Every array, and the manifest; how much it is."""
    folder = write(tmp_path)
    (chunk,) = folder
    for name, array in recording().arrays().items():
        np.testing.assert_array_equal(chunk.arrays[name], array)
    assert folder.manifest["seed"] == 4
    assert folder.site_weeks == pytest.approx(5 / 7)


def test_rows_join_zone_and_weather(tmp_path: Path) -> None:
    """A channel that there is nothing of is NaN; a row's end and place are those of its site."""
    (chunk,) = write(tmp_path)
    rows = chunk.rows(["rh_pct", "wind_m_s", "fog_pct"])
    assert rows.shape == (len(recording().zone), 288, 3)
    site = int(recording().zone_site[-1])
    np.testing.assert_array_equal(rows[-1, :, 0], recording().values[-1, :, 1])
    np.testing.assert_array_equal(rows[-1, :, 1], recording().weather[site, :, 4])
    assert np.isnan(rows[..., 2]).all()
    last = np.array([len(recording().zone) - 1])
    assert chunk.end_ms(last, np.array([11])).tolist() == [recording().start_ms[site] + 3_600_000]
    place = chunk.place(int(last[0]))
    assert place.local_ms(0) == recording().utc_offset_h[site] * 3_600_000
    assert (place.latitude, place.longitude) == (recording().latitude[site], recording().longitude[site])


def test_what_was_foreseen_is_what_plans_say(tmp_path: Path) -> None:
    """At any row, of weather and setpoints, with forecasts and plans that came and that did not."""
    (chunk,) = write(tmp_path)
    rng = np.random.default_rng(0)
    back, count, found = 6, 60, 0
    for zone in range(chunk.zones):
        plans = plans_of(chunk, zone)
        rows = rng.integers(0, chunk.rows_each, 40)
        zones = np.full(len(rows), zone)
        said = chunk.foreseen(zones, rows, PLANNED, back, count)
        for n, origin in enumerate(chunk.end_ms(zones, rows).tolist()):
            middles = ((origin - 1) // BIN_MS - back + np.arange(count)) * BIN_MS + BIN_MS // 2
            np.testing.assert_allclose(
                said[n], plans.foreseen(origin, ["north"], PLANNED, middles)[0], rtol=1e-5, atol=1e-3
            )
        found += int(np.isfinite(said).sum())
    assert found > 10_000


def test_a_folder_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    """None there, another format, a file that is altered, a file that is gone."""
    with pytest.raises(FleetFolderError, match="simulate a fleet into it first"):
        FleetFolder(tmp_path)
    folder = write(tmp_path)
    path = tmp_path / folder.chunks[0].file
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(FleetFolderError, match="not what the manifest says"):
        folder.read(0)
    path.unlink()
    with pytest.raises(FleetFolderError, match="cannot be read: No such file"):
        folder.read(0)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1,\n "seed"', '"format": 9,\n "seed"'))
    with pytest.raises(FleetFolderError, match="has format 9, and this version reads 1"):
        FleetFolder(tmp_path)
