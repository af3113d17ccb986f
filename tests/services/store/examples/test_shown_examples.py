"""Examples on the storage: each once, by day, none of another schema, release or time, and none for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.network.house_features import HouseFeatures
from models.network.tuned_network import CorrectionInputs
from models.online.corrections.house_memory import channels_of
from models.online.corrections.tuned_correction import KEPT_DAYS
from models.spec import ForecastSpec
from services.errors import HistoryError
from services.store.examples import shown_examples
from services.store.examples.shown_examples import FOLDER, KeptExamples, ShownExamples

SPEC = ForecastSpec(("air_temp_c", "rh_pct", "vent_lee_pct"), ("air_temp_c", "rh_pct"), (30, 60))
T0, HOUR_MS, DAY_MS = 1_646_092_800_000, 3_600_000, 86_400_000


def kept(end_ms: int, zones: tuple[str, ...] = ("z1", "z2"), number: float = 1.0, site: str = "demo", more: int = 0):
    """Examples that all have this number; ``more`` features than this release has."""
    features, n = HouseFeatures(SPEC, channels_of(SPEC)), len(zones)
    shapes = ((n, features.width + more), (n, 2, features.ahead_width), (n, 2, 2, 3))
    kinds = (np.float16, np.float16, np.float32)
    inputs = (np.full(shape, number, kind) for shape, kind in zip(shapes, kinds, strict=True))
    return KeptExamples(site, end_ms, zones, CorrectionInputs(*inputs))


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    """A replay brings examples again, in other groups, by a writer that knows nothing of the first: each is there once,
    in order of time and zone.
    """
    first = ShownExamples(tmp_path, SPEC)
    first.put(0, [kept(T0 + HOUR_MS), kept(T0 + 2 * HOUR_MS)])
    first.put(0, [kept(T0 + 3 * HOUR_MS)])
    again = ShownExamples(tmp_path, SPEC)
    again.put(0, [kept(T0 + 2 * HOUR_MS, number=5.0), kept(T0 + 3 * HOUR_MS, number=5.0), kept(T0 + 4 * HOUR_MS)])
    found = again.read(0, T0 + DAY_MS, 12)
    assert found.end_ms.tolist() == [T0 + n * HOUR_MS for n in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert found.zone_ids.tolist() == [0, 1] * 4
    assert {float(found.inputs.origin.max()), float(found.inputs.baseline.max())} == {1.0}
    assert again.extent() == (8, T0 + HOUR_MS)


def test_days_partitions_and_ranges(tmp_path: Path) -> None:
    """A file a partition and day; a range takes those after its beginning and not after its end."""
    made = ShownExamples(tmp_path, SPEC)
    for partition in (0, 1):
        made.put(partition, [kept(T0 + n * DAY_MS, site=f"s{partition}") for n in (0, 1, 2)])
    names = sorted(file.name for file in (tmp_path / FOLDER).iterdir())
    assert names == sorted(f"2022-03-0{n}-p{p}-{SPEC.hash}.parquet" for n in (1, 2, 3) for p in (0, 1))
    found = made.read(T0, T0 + DAY_MS, 12)
    assert (found.zones, set(found.end_ms.tolist())) == (("s0/z1", "s0/z2", "s1/z1", "s1/z2"), {T0 + DAY_MS})
    assert made.read(T0, T0 + DAY_MS, 2).zones == ("s0/z1", "s1/z1")
    assert len(made.read(T0 + 3 * DAY_MS, T0 + 9 * DAY_MS, 12)) == 0


def test_old_ones_go_and_others_own_stay(tmp_path: Path) -> None:
    """As a partition begins a day, files of its own that are too old go, whatever their schema was, once as many days
    have come since.
    """
    other = replace(SPEC, horizons_min=(30, 60, 90))
    (tmp_path / FOLDER).mkdir()
    old = tmp_path / FOLDER / f"2022-03-01-p0-{other.hash}.parquet"
    old.write_bytes(b"")
    made = ShownExamples(tmp_path, SPEC)
    for partition in (0, 1):
        made.put(partition, [kept(T0), kept(T0 + DAY_MS)])
    made.put(0, [kept(T0 + n * DAY_MS) for n in range(2, KEPT_DAYS + 1)])
    assert old.exists()
    made.put(0, [kept(T0 + (KEPT_DAYS + 1) * DAY_MS)])
    names = {file.name for file in (tmp_path / FOLDER).iterdir()}
    assert old.name not in names
    assert f"2022-03-01-p0-{SPEC.hash}.parquet" not in names
    assert names >= {f"2022-03-02-p0-{SPEC.hash}.parquet", f"2022-03-01-p1-{SPEC.hash}.parquet"}


def test_a_site_whose_clock_is_ahead_takes_no_examples_of_the_others(tmp_path: Path) -> None:
    """Those of its neighbours stay, and go on day by day."""
    made = ShownExamples(tmp_path, SPEC)
    made.put(0, [kept(T0 + n * DAY_MS) for n in range(5)])
    made.put(0, [kept(T0 + 365 * DAY_MS, site="ahead")])
    made.put(0, [kept(T0 + n * DAY_MS) for n in range(5, 8)])
    assert len(made.read(0, T0 + 8 * DAY_MS, 12)) == 2 * 8


def test_a_day_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each flush, also while rows of another day come, of a site whose clock is ahead."""
    read: list[str] = []
    made = ShownExamples(tmp_path, SPEC)
    monkeypatch.setattr(shown_examples, "version_of", lambda storage, key: read.append(key) or "")
    for n in range(5):
        made.put(0, [kept(T0 + n * HOUR_MS), kept(T0 + 365 * DAY_MS + n * HOUR_MS, site="ahead")])
    assert len(read) == 2


def test_those_of_another_release_or_schema_are_left_out(tmp_path: Path) -> None:
    """Features of another width cannot be trained on with those of now."""
    made = ShownExamples(tmp_path, SPEC)
    made.put(0, [kept(T0 + HOUR_MS, more=3), kept(T0 + 2 * HOUR_MS)])
    ShownExamples(tmp_path, replace(SPEC, lookback_steps=SPEC.lookback_steps + 1)).put(0, [kept(T0 + 3 * HOUR_MS)])
    assert set(made.read(0, T0 + DAY_MS, 12).end_ms.tolist()) == {T0 + 2 * HOUR_MS}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A training over it fails with its name."""
    made = ShownExamples(tmp_path, SPEC)
    made.put(0, [kept(T0)])
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_bytes(b"torn")
    with pytest.raises(HistoryError, match=file.name):
        ShownExamples(tmp_path, SPEC).read(0, T0 + DAY_MS, 12)


def test_without_any_there_is_nothing(tmp_path: Path) -> None:
    """No folder, no example, no error."""
    made = ShownExamples(tmp_path, SPEC)
    made.put(0, [])
    assert (len(made.read(0, T0, 12)), made.extent()) == (0, (0, 0))
    assert not (tmp_path / FOLDER).exists()
