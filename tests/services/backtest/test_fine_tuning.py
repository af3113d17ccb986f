"""The network of the package, fine-tuned along a recording: on the past alone, in steps that grow with the days."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.pretraining.fine_tuner import FineTuning, fine_tune
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.table import Table, read_table
from tests.services.backtest.short_recordings import DAY_MS, made_up

OPTIONS = BacktestOptions(warmup_ms=2 * DAY_MS, every_ms=3_600_000, fine_tune=True, trees=False)


@pytest.fixture
def table(tmp_path) -> Table:
    """Six made-up days of two zones."""
    return read_table(made_up(tmp_path / "r", days=6, step_min=30))


@pytest.mark.thorough
def test_a_fine_tuning_knows_nothing_of_later_rows(table: Table) -> None:
    """Rows after it may be anything: its examples come out the same, byte for byte; those before it change them."""
    seen = []

    def tuner(start, spec, examples, config):
        seen.append((examples, config))
        return start

    replay(table, OPTIONS, tuner=tuner)
    later = table.values.copy()
    later[:, 2 * 48 + 1 :] += 3
    replay(replace(table, values=later), OPTIONS, tuner=tuner)
    (first, config), (second, other), (again, _), (changed, _) = seen
    assert [one.learning_rate for one in (config, other)] == pytest.approx(
        [FineTuning().learning_rate * days / 10 for days in (2, 5)]
    )
    for name in ("origin", "ahead", "baseline", "truth"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
    assert second.truth.tobytes() != changed.truth.tobytes()
    assert np.isfinite(first.truth).any()
    assert np.isnan(first.truth).any()


@pytest.mark.thorough
def test_two_runs_are_equal_and_it_takes_over(table: Table) -> None:
    """Forecasts before the first training are those without it; later ones are not; a second run gives equal bytes."""
    quick = FineTuning(epochs=2, batch_size=32)

    def tuner(start, spec, examples, config):
        return fine_tune(start, spec, examples, quick)

    plain = replay(table, replace(OPTIONS, fine_tune=False))
    one, other = (replay(table, OPTIONS, tuner=tuner) for _ in range(2))
    assert one.quantiles.tobytes() == other.quantiles.tobytes()
    early = one.origin_ms < table.start_ms + 2.5 * DAY_MS
    np.testing.assert_array_equal(one.quantiles[early], plain.quantiles[early])
    assert not np.array_equal(one.quantiles, plain.quantiles, equal_nan=True)
