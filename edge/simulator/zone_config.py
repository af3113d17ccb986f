"""What a simulated zone is: its crop, lamps, screens, shell and its grower's recipe; and a set of zones that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace

import numpy as np

__all__ = [
    "HPS", "LED", "NO_LAMPS", "Control", "Crop", "Lamps", "Recipe", "Shell", "ZoneConfig", "as_arrays", "default_zones",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop:
    """A canopy. Defaults: tomato, Vanthoor 2011 part 2 (electron transport a second and m² of leaf at 25 °C)."""

    leaf_area_index: float = 2.4
    min_stomatal_resistance_s_m: float = 82.0
    electron_transport_umol: float = 210.0
    respiration_mg_m2_s: float = 0.025
    """Maintenance, mg CO₂ a second and m² of leaf at 25 °C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lamps:
    """Top lights. Defaults: high-pressure sodium, Katzin 2020 table of lamp parameters."""

    power_w_m2: float = 110.0
    par_share: float = 0.36
    nir_share: float = 0.22
    cooled_share: float = 0.0
    umol_per_j: float = 5.0
    area: float = 0.03
    emissivity_top: float = 0.1
    emissivity_bottom: float = 0.9
    heat_capacity_j_m2_k: float = 100.0
    convection_w_m2_k: float = 0.09


HPS = Lamps()
LED = Lamps(
    power_w_m2=116.0, par_share=0.31, nir_share=0.02, cooled_share=0.63, umol_per_j=5.2, area=0.05,
    emissivity_top=0.88, emissivity_bottom=0.88, heat_capacity_j_m2_k=10.0, convection_w_m2_k=2.3,
)  # fmt: skip
"""Water-cooled light-emitting diodes, Katzin 2020."""
NO_LAMPS = replace(HPS, power_w_m2=0.0, area=0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The house around a zone. Defaults: Vanthoor 2011, the Dutch greenhouse (a Venlo house with single glass)."""

    cover_per_floor: float = 1.8 / 1.4
    insulation_m2_k_w: float = 0.0
    """Resistance added to the glass: 0.15 makes it double."""
    cover_transmission: float = 0.85
    """Share of the sun's light that the cover lets through."""
    leakage: float = 1e-4
    roof_vent_per_floor: float = 0.1
    height_m: float = 4.2
    below_screens_m: float = 3.8
    heating_w_m2: float = 130.0
    co2_capacity_mg_m2_s: float = 1.6
    has_black_screen: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the grower wants, before edits. Hours are local; temperatures °C, light W/m² outside."""

    heat_day_c: float = 19.0
    heat_night_c: float = 15.5
    vent_above_heat_c: float = 2.5
    light_raise_c: float = 2.5
    """How much the vents wait longer in full light."""
    light_follow_c: float = 2.0
    """How much warmer after a bright day, and colder after a dull one."""
    rh_max_pct: float = 87.0
    vent_min_pct: float = 5.0
    """How far the lee vents stay open in the light, for fresh air."""
    co2_day_ppm: float = 750.0
    pipe_min_c: float = 25.0
    day_from_h: float = 5.0
    day_to_h: float = 19.0
    lamps_off_above_w_m2: float = 250.0
    screen_below_c: float = 9.0
    screen_below_w_m2: float = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How a climate computer turns setpoints into positions: bands, and speeds as shares of the way a minute."""

    pipe_max_c: float = 70.0
    pipe_per_k: float = 9.0
    """K of pipe for each K that the air lacks."""
    pipe_per_loss: float = 0.9
    """K of pipe for each K between inside and outside."""
    valve_w_m2_k: float = 45.0
    """Heat for each K that the pipe lacks."""
    vent_band_c: float = 5.0
    vent_band_rh: float = 60.0
    humid_vent_max: float = 0.15
    vent_stroke_a_min: float = 0.2
    screen_stroke_a_min: float = 0.3
    co2_band_ppm: float = 120.0
    storm_m_s: float = 14.0
    """In more wind the vents are shut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneConfig:
    """One zone."""

    name: str
    crop: Crop = Crop()
    lamps: Lamps = HPS
    shell: Shell = Shell()
    recipe: Recipe = Recipe()
    control: Control = Control()


_Parts = Sequence[Crop] | Sequence[Lamps] | Sequence[Shell] | Sequence[Recipe] | Sequence[Control]


def as_arrays(parts: _Parts) -> SimpleNamespace:
    """The zones' parts of one kind as a namespace of arrays of shape (zones,).

    >>> as_arrays([HPS, LED]).power_w_m2.tolist()
    [110.0, 116.0]
    """
    return SimpleNamespace(
        **{
            field.name: np.array([getattr(part, field.name) for part in parts], dtype=float)
            for field in fields(parts[0])
        }
    )


_TOMATO = ZoneConfig(name="tomato")
_LETTUCE = ZoneConfig(
    name="lettuce",
    crop=Crop(leaf_area_index=1.2, electron_transport_umol=150.0, respiration_mg_m2_s=0.02),
    lamps=LED,
    shell=Shell(insulation_m2_k_w=0.12, leakage=6e-5),
    recipe=Recipe(
        heat_day_c=17.0, heat_night_c=13.0, vent_above_heat_c=3.0, rh_max_pct=85.0, vent_min_pct=8.0,
        co2_day_ppm=650.0, pipe_min_c=15.0, day_from_h=4.0, day_to_h=20.0, lamps_off_above_w_m2=180.0,
        screen_below_c=7.0,
    ),
)  # fmt: skip
_CUCUMBER = ZoneConfig(
    name="cucumber",
    crop=Crop(leaf_area_index=2.8, min_stomatal_resistance_s_m=70.0, electron_transport_umol=230.0),
    lamps=replace(HPS, power_w_m2=70.0),
    shell=Shell(leakage=1.4e-4, has_black_screen=0.0),
    recipe=Recipe(
        heat_day_c=21.0, heat_night_c=18.5, vent_above_heat_c=3.5, rh_max_pct=89.0, vent_min_pct=3.0,
        co2_day_ppm=900.0, pipe_min_c=35.0, day_from_h=6.0, day_to_h=18.0, lamps_off_above_w_m2=150.0,
        screen_below_c=12.0,
    ),
)  # fmt: skip
_KINDS = (_TOMATO, _LETTUCE, _CUCUMBER)


def default_zones(count: int, seed: int) -> list[ZoneConfig]:
    """``count`` zones that differ: crops in turn, and each with its own leaf area, shell and recipe.

    >>> [zone.name for zone in default_zones(4, seed=1)]
    ['tomato-1', 'lettuce-1', 'cucumber-1', 'tomato-2']
    """
    zones = []
    for index in range(count):
        kind = _KINDS[index % len(_KINDS)]
        rng = np.random.default_rng([seed, 3, index])
        shift, lai, leak, hours = rng.uniform(-1, 1, 4).tolist()
        recipe = replace(
            kind.recipe,
            heat_day_c=kind.recipe.heat_day_c + 0.5 * shift, heat_night_c=kind.recipe.heat_night_c + 0.5 * shift,
            day_from_h=kind.recipe.day_from_h + hours, day_to_h=kind.recipe.day_to_h + 0.5 * hours,
        )  # fmt: skip
        crop = replace(kind.crop, leaf_area_index=kind.crop.leaf_area_index * (1 + 0.1 * lai))
        shell = replace(kind.shell, leakage=kind.shell.leakage * (1 + 0.2 * leak))
        name = f"{kind.name}-{index // len(_KINDS) + 1}"
        zones.append(replace(kind, name=name, crop=crop, shell=shell, recipe=recipe))
    return zones
