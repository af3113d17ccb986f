"""What columns mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge.recordings.columns import Column, Mapping, RecordingError, convert, find_column, load_mapping
from edge.wire.vocabulary import VOCABULARY

HEADER = """
t_air_c,rh_pct,co2_ppm,humdef_gm3,vent_lee_pct,vent_wind_pct,lamp_pct,screen_energy_pct,screen_black_pct,pipe_low_c,
pipe_grow_c,co2_valve,par_in_umol,out_t_c,out_rh_pct,out_rad_wm2,out_wind_ms,out_radsum_jcm2,out_winddir,out_rain,
out_pyrgeo_wm2,sp_CO2_vip,sp_dx_vip,sp_heating_temp_vip,sp_net_pipe_vip,sp_scr_enrg_vip,sp_scr_blck_vip,
sp_vent_templee_vip,sp_heat_c,sp_vent_c,soil_vwc_pct,soil_t_c,soil_ec_uscm
""".replace("\n", "").split(",")


def converted(column: Column, *raw: float) -> list[float]:
    values = np.array(raw, dtype=float)
    return convert(column, values, np.full(len(raw), np.nanmin(values)), np.full(len(raw), np.nanmax(values))).tolist()


@pytest.mark.parametrize("name", HEADER)
def test_documented_columns_are_known(name: str) -> None:
    """Every column of the documented layout that has a metric is understood as it is."""
    column = find_column(name, Mapping())
    assert column is not None
    assert column.metric in VOCABULARY


@pytest.mark.parametrize(
    ("name", "metric", "device"),
    [
        ("Tair_sigrow", "air_temp_c", "sigrow"),
        ("Rhair_sigrow", "rh_pct", "sigrow"),
        ("PARin_sigrow", "par_umol_m2_s", "sigrow"),
        ("Tleaf_ridder", "leaf_temp_c", "ridder"),
        ("t_air_L_c", "air_temp_c", "left"),
        ("rh_R_pct", "rh_pct", "right"),
        ("t_air_zone1_c", "air_temp_c", "zone1"),
    ],
)
def test_second_sensors_are_devices(name: str, metric: str, device: str) -> None:
    """A second sensor of a zone becomes another device of it."""
    found = find_column(name, Mapping())
    assert found is not None
    assert (found.metric, found.device) == (metric, device)


def test_a_vocabulary_name_is_itself() -> None:
    """A column that is named as the vocabulary names it needs no mapping."""
    assert all(find_column(name, Mapping()) == Column(name) for name in VOCABULARY)


@pytest.mark.parametrize(
    ("raw", "per_cent"),
    [
        ((1, 2, 2, 1.5), [100, 0, 0, 50]),  # a code, and its average over a row
        ((2, 2, 2), [0, 0, 0]),
        ((0, 1, 0.25), [0, 100, 25]),
        ((0, 0, 0), [0, 0, 0]),
        ((0, 40, 100), [0, 40, 100]),
        ((0, 1, 2), [0, 1, 2]),
    ],
)
def test_a_valve_is_understood_in_each_coding(raw: tuple[float, ...], per_cent: list[float]) -> None:
    """1 dosing / 2 off, a share of time, and per cent all become per cent."""
    assert converted(Column("co2_dosing_pct", coding="dosing"), *raw) == per_cent


def test_sectors_become_degrees() -> None:
    """A sector's bit is its direction; an average of bits, or none, is no direction."""
    bits = converted(Column("wind_dir_deg", coding="sectors"), 1, 2, 4, 8, 16, 32, 64, 128)
    assert bits == [0, 45, 90, 135, 180, 225, 270, 315]
    assert np.isnan(converted(Column("wind_dir_deg", coding="sectors"), 6.667, 0, 256, np.nan, -1)).all()


def test_a_dark_offset_is_zero() -> None:
    """A light sensor that reads slightly less than nothing reads 0; what is far out of range is left to be refused."""
    assert converted(Column("par_umol_m2_s"), -0.04, 5, -999) == [0, 5, -999]
    assert converted(Column("air_temp_c"), -0.3) == [-0.3]


def test_a_mapping_file_is_read(tmp_path: Path) -> None:
    """A mapping gives a column its metric, device and unit, whatever its case, and wins over the built-in table."""
    path = tmp_path / "recording.toml"
    path.write_text(
        'timezone = "Europe/Berlin"\nignore = ["Remarks"]\n[columns]\nTair = "air_temp_c"\n'
        'T_AIR_C = { metric = "air_temp_c", device = "second", scale = 0.5, offset = 1.0 }\n'
    )
    mapping = load_mapping(path)
    assert mapping.timezone == "Europe/Berlin"
    assert mapping.ignore == {"remarks"}
    assert find_column("TAIR", mapping) == Column("air_temp_c")
    second = find_column("t_air_c", mapping)
    assert second is not None
    assert second.device == "second"
    assert converted(second, 40.0) == [21.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[columns]\nx = 'no_metric'", "no_metric, which is not in the vocabulary"),
        ("[columns]\nx = { metric = 'rh_pct', device = 'a/b' }", "'a/b', which is not a name"),
        ("[columns]\nx = { metric = 'rh_pct', units = 'K' }", "unknown field `units`"),
        ("zone = 'UTC'", "unknown field `zone`"),
        ("clock = 'sundial'", "sundial"),
        ("clock = ", "not valid TOML"),
    ],
)
def test_a_wrong_mapping_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    """A mapping that cannot be used is refused in one sentence that names the place."""
    path = tmp_path / "recording.toml"
    path.write_text(text)
    with pytest.raises(RecordingError, match=r"recording\.toml") as error:
        load_mapping(path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
