"""What the columns of a recording mean: column name -> metric, device and conversion.

The built-in table knows the columns of the recordings this project is developed with, and every name of the metric
vocabulary as itself. Anything else is said in a small TOML file, ``recording.toml`` beside the recordings or one
given by hand; every key is optional::

    site = "north"
    timezone = "Europe/Amsterdam"      # the clock that `time` shows
    clock = "civil"                    # or "standard": a clock that leaves daylight saving out
    latitude = 51.98
    longitude = 4.53
    time = "timestamp"                 # the time column, when it is not `time`
    time_format = "%d-%m-%Y %H:%M"     # how it is written, when not as 2022-02-01 00:05; Unix time: unix_s, unix_ms
    separator = ";"                    # of a CSV file's columns, when it is not ","
    decimal = ","                      # of its numbers, when it is not "."
    missing = ["ERR"]                  # more words that mean a missing value
    ignore = ["operator", "remarks"]   # columns to leave out without a warning

    [columns]
    Tair = "air_temp_c"
    Tair_2 = { metric = "air_temp_c", device = "second" }
    Tout_F = { metric = "out_temp_c", unit = "°F" }
    RH = { metric = "rh_pct", unit = "share" }
    lux = { metric = "par_umol_m2_s", scale = 0.0185 }
    wind = { metric = "wind_dir_deg", coding = "sectors" }
    CO2dos = { metric = "co2_dosing_pct", coding = "dosing" }
    drip = { metric = "irrigation_l_m2", coding = "gained" }

``value = column * scale + offset``; ``unit`` is short for both, and says that the column is in that unit, also where it
is the metric's own. Column names are compared without regard to case.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from edge.wire.topic import is_name
from edge.wire.vocabulary import VOCABULARY, base_metric

__all__ = ["Column", "Mapping", "RecordingError", "convert", "find_column", "load_mapping"]

F64 = npt.NDArray[np.float64]


class RecordingError(Exception):
    """A recording, or what is said about it, cannot be used; the message is one sentence for a person."""


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one column holds. ``device`` empty: the device that usually reports the metric; ``unit`` empty: its own.

    ``coding`` says what the numbers are: ``sectors``, a wind direction as a bit (1 north, 2 north-east … 128
    north-west); ``dosing``, a CO₂ valve as 1 dosing / 2 off, as 0…1, or in per cent (see :func:`convert`); ``gained``,
    what came since the row before, where the metric is a counter that goes up.
    """

    metric: str
    device: str = ""
    scale: float = 1.0
    offset: float = 0.0
    coding: Literal["", "sectors", "dosing", "gained"] = ""
    unit: str = ""

    @property
    def is_stated(self) -> bool:
        """Whether a unit or a scale says what its numbers are."""
        return bool(self.unit) or self.scale != 1 or self.offset != 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    site: str | None = None
    timezone: str | None = None
    clock: Literal["civil", "standard"] = "civil"
    latitude: float | None = None
    longitude: float | None = None
    time: str = "time"
    time_format: str = ""
    separator: str = ","
    decimal: Literal[".", ","] = "."
    missing: list[str] = []
    ignore: list[str] = []
    columns: dict[str, str | Column] = {}


@dataclass(frozen=True, slots=True)
class Mapping:
    """What a mapping file or the caller says about a recording; names of columns are in lower case."""

    site: str | None = None
    timezone: str | None = None
    clock: Literal["civil", "standard"] = "civil"
    latitude: float | None = None
    longitude: float | None = None
    time: str = "time"
    time_format: str = ""
    separator: str = ","
    decimal: Literal[".", ","] = "."
    missing: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    columns: dict[str, Column] = field(default_factory=dict)


_UNITS: dict[str, dict[str, tuple[float, float]]] = {
    "°C": {"C": (1, 0), "°F": (5 / 9, -160 / 9), "F": (5 / 9, -160 / 9), "K": (1, -273.15)},
    "%": {"pct": (1, 0), "percent": (1, 0), "share": (100, 0)},
    "µS/cm": {"uS/cm": (1, 0), "mS/cm": (1000, 0), "dS/m": (1000, 0)},
    "m/s": {"km/h": (1 / 3.6, 0), "mph": (0.44704, 0), "kn": (0.514444, 0)},
    "W/m²": {"W/m2": (1, 0), "kW/m²": (1000, 0), "kW/m2": (1000, 0)},
    "J/cm²": {"J/cm2": (1, 0), "MJ/m²": (100, 0), "MJ/m2": (100, 0)},
    "ppm": {"%": (10_000, 0)},
    "g/m³": {"g/m3": (1, 0), "kg/m³": (1000, 0), "kg/m3": (1000, 0)},
    "l/m²": {"l/m2": (1, 0), "mm": (1, 0)},
    "µmol/m²/s": {"umol/m2/s": (1, 0)},
}
"""For each unit of a metric: other units, with the scale and offset that convert them to it."""

_BUILT_IN = {
    "t_air_c": Column("air_temp_c"),
    "humdef_gm3": Column("hd_g_m3"),
    "par_in_umol": Column("par_umol_m2_s"),
    "pipe_low_c": Column("heat_pipe_low_c"),
    "pipe_grow_c": Column("heat_pipe_grow_c"),
    "co2_valve": Column("co2_dosing_pct", coding="dosing"),
    "soil_t_c": Column("soil_temp_c"),
    "soil_ec_uscm": Column("soil_ec_us_cm"),
    "tleaf_ridder": Column("leaf_temp_c", device="ridder"),
    "out_t_c": Column("out_temp_c"),
    "out_rad_wm2": Column("out_radiation_w_m2"),
    "out_wind_ms": Column("wind_m_s"),
    "out_radsum_jcm2": Column("out_rad_sum_j_cm2"),
    "out_winddir": Column("wind_dir_deg", coding="sectors"),
    "out_rain": Column("rain"),
    "out_pyrgeo_wm2": Column("out_longwave_net_w_m2"),
    "sp_co2_vip": Column("sp_co2_ppm"),
    "sp_dx_vip": Column("sp_hd_g_m3"),
    "sp_heating_temp_vip": Column("sp_heat_c"),
    "sp_net_pipe_vip": Column("sp_pipe_min_c"),
    "sp_scr_enrg_vip": Column("sp_screen_energy_pct"),
    "sp_scr_blck_vip": Column("sp_screen_black_pct"),
    # The lee side opens first, so its setpoint is the zone's; the wind side's is that of a second device.
    "sp_vent_templee_vip": Column("sp_vent_c"),
    "sp_vent_tempwind_vip": Column("sp_vent_c", device="control-wind"),
}

_SECOND_SENSORS = [
    (re.compile(r"t_?air_(\w+?)(?:_c)?\Z"), "air_temp_c"),
    (re.compile(r"rh(?:air)?_(\w+?)(?:_pct)?\Z"), "rh_pct"),
    (re.compile(r"par_?in_(\w+?)(?:_umol)?\Z"), "par_umol_m2_s"),
    (re.compile(r"t_?leaf_(\w+?)(?:_c)?\Z"), "leaf_temp_c"),
    (re.compile(r"co2(?:air)?_(\w+?)_ppm\Z"), "co2_ppm"),
]
"""``t_air_L_c``, ``Tair_sigrow``, ``rh_R_pct`` …: a second sensor of the zone, a device of that name."""

_DEVICES = {"l": "left", "r": "right"}


def find_column(name: str, mapping: Mapping) -> Column | None:
    """What the column ``name`` holds, ``None`` if that is not known; the mapping wins over the built-in table.

    >>> find_column("t_air_c", Mapping()).metric, find_column("Tair_sigrow", Mapping()).device
    ('air_temp_c', 'sigrow')
    >>> find_column("stomata_cond", Mapping()) is None, find_column("RH_außen", Mapping()) is None
    (True, True)
    """
    key = name.strip().lower()
    known = mapping.columns.get(key) or _BUILT_IN.get(key)
    if known is not None:
        return known
    if key in VOCABULARY:
        return Column(key)
    for pattern, metric in _SECOND_SENSORS:
        found = pattern.match(key)
        if found is not None and is_name(found[1]):  # no gateway takes a device of another name
            return Column(metric, device=_DEVICES.get(found[1], found[1]))
    return None


def convert(column: Column, raw: F64, least: F64, most: F64) -> F64:
    """The metric's values of a column's numbers ``raw [N]``.

    ``least`` and ``most``, ``[N]``, are the extremes that any zone had in that column until each row: what a number
    means must not depend on numbers that come after it. A CO₂ valve that was always from 1 to 2 is a code (averages of
    it, too); one that was never more than 1 is a share of time; else it is in per cent.

    >>> valve, raw = Column("co2_dosing_pct", coding="dosing"), np.array([1, 2, 1.5])
    >>> convert(valve, raw, np.full(3, 1.0), np.full(3, 2.0)).tolist()
    [100.0, 0.0, 50.0]
    >>> convert(valve, raw, np.full(3, 0.0), np.full(3, 2.0)).tolist()
    [1.0, 2.0, 1.5]

    >>> convert(Column("irrigation_l_m2", coding="gained"), np.array([0.5, np.nan, 0.5, 0]), raw, raw).tolist()
    [0.5, nan, 1.0, 1.0]

    A metric that cannot be negative but is by at most 2 % of its range (the dark offset of a PAR sensor, a vent at
    −0.3 %) becomes 0. Whatever else is out of range stays as it is and is refused downstream, where that is counted.
    """
    if column.coding == "dosing":
        values = np.where((least >= 1) & (most <= 2), (2 - raw) * 100, np.where(most <= 1, raw * 100, raw))
    elif column.coding == "sectors":
        bits = np.log2(np.where(raw > 0, raw, np.nan))
        # The average of two bits is no direction: missing.
        values = np.where((bits == np.round(bits)) & (bits <= 7), bits * 45, np.nan)
    else:
        values = raw * column.scale + column.offset
    if column.coding == "gained":
        values = np.where(np.isfinite(values), np.cumsum(np.where(values > 0, values, 0)), np.nan)
    metric = VOCABULARY[base_metric(column.metric)]
    if metric.low == 0:
        values[(values < 0) & (values >= -0.02 * metric.high)] = 0.0
    return values


def load_mapping(path: Path) -> Mapping:
    """Read a mapping file; raises :class:`RecordingError` naming what is wrong in it."""
    try:
        said = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8-sig")), _File)
    except OSError as error:
        raise RecordingError(f"the mapping {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecordingError(f"the mapping {path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise RecordingError(f"the mapping {path} is wrong: {error}") from error
    if len(said.separator) != 1 or said.separator in '"\r\n':
        raise RecordingError(f"the mapping {path} is wrong: separator {said.separator!r} cannot part columns")
    columns = {name.lower(): Column(what) if isinstance(what, str) else what for name, what in said.columns.items()}
    for name, column in columns.items():
        if base_metric(column.metric) not in VOCABULARY:
            raise RecordingError(f"the mapping {path} maps {name} to {column.metric}, which is not in the vocabulary")
        if column.device and not is_name(column.device):
            raise RecordingError(f"the mapping {path} gives {name} the device {column.device!r}, which is not a name")
        if column.unit:
            columns[name] = _in_unit(path, name, column)
    given: dict[str, Any] = msgspec.structs.asdict(said)
    given |= {
        "ignore": frozenset(name.lower() for name in said.ignore), "columns": columns, "time": said.time.lower(),
        "missing": frozenset(word.strip().lower() for word in said.missing),
    }  # fmt: skip
    return Mapping(**given)


def _in_unit(path: Path, name: str, column: Column) -> Column:
    """The column with the scale and offset that its unit means."""
    own = VOCABULARY[base_metric(column.metric)].unit
    units = {own: (1.0, 0.0), **_UNITS.get(own, {})}
    if column.scale != 1 or column.offset != 0 or column.coding:
        raise RecordingError(
            f"the mapping {path} gives {name} a unit and a scale, an offset or a coding: one is enough"
        )
    found = {unit.casefold(): terms for unit, terms in units.items()}.get(column.unit.strip().casefold())
    if found is None:
        raise RecordingError(f"the mapping {path} gives {name} the unit {column.unit!r}, not one of {', '.join(units)}")
    return msgspec.structs.replace(column, scale=found[0], offset=found[1])
