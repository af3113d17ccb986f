"""The forecaster for DataFrames: what a running system does from row to forecast, as one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd

from models.durations import MINUTE_MS
from models.frames.forecast_frame import forecast_frame
from models.frames.frame_learner import FrameLearner
from models.frames.frame_options import Duration, FrameOptions, checked_options, spec_of_frames
from models.frames.frame_samples import ONLY_ZONE, Frames, MetricMeaning, check_units, read_frames
from models.spec import ForecastSpec
from models.trees.tree_grower import GrowerError, load_library

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FrameForecaster"]


class FrameForecaster:
    """Forecasts of the zones of one site, learned from DataFrames: :meth:`fit` once, then :meth:`update` with each new
    row or day of rows, and :meth:`predict` whenever you like.

    A frame has a ``DatetimeIndex`` and a column a metric, named as in ``metrics``
    (``edge.wire.vocabulary.VOCABULARY``, or one of your own). Times carry an offset, or are what the clock in
    ``timezone`` showed. Several zones are ``{zone: frame}``, or one frame with a column ``zone``. Sun and calendar are
    made from ``timezone``, ``latitude`` and ``longitude``; weather columns are the site's, whichever zone has them.

    ``step`` is how long a row is, by default the longest of 5, 10, 15 and 30 minutes that the interval of the first
    frames fills; ``targets`` are by default those of air temperature, humidity, CO₂ and VPD that the frames have;
    ``horizons`` are by default those of a running system. Durations are what pandas understands (``"30min"``).

    What does not fit is a ``ValueError`` in one sentence, and nothing is learned of it. Equal rows give equal
    forecasts, bit for bit, in however many calls they come.
    """

    _options: FrameOptions
    _fitted: FrameLearner | None

    def __init__(
        self, metrics: Mapping[str, MetricMeaning], *, timezone: str, latitude: float, longitude: float,
        step: Duration | None = None, targets: Sequence[str] | None = None, horizons: Sequence[Duration] | None = None,
    ) -> None:  # fmt: skip
        self._begin(checked_options(metrics, timezone, latitude, longitude, step, targets, horizons))

    @property
    def spec(self) -> ForecastSpec:
        """Targets, horizons and step of the forecasts; raises ``ValueError`` before :meth:`fit`."""
        return self._known.spec

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones so far, in the order in which they came; raises ``ValueError`` before :meth:`fit`."""
        return tuple(self._known.rows.zones)

    def fit(self, frames: Frames, progress: Callable[[int, int], None] = lambda done, total: None) -> Self:
        """Learn from these rows alone, as if they came one after the other; all that was learned before is forgotten.

        ``progress(done, total)`` is called after each row. The frames stay as they are.
        """
        options = self._options
        samples = read_frames(frames, options.metrics, options.place.timezone)
        check_units(samples, options.metrics)
        start_ms = min(int(zone.times_ms[0]) for zone in samples.values() if len(zone.times_ms))
        fitted = FrameLearner(spec_of_frames(options, samples), options, start_ms)
        fitted.take(samples, progress)
        self._fitted = fitted
        return self

    def update(self, frames: Frames) -> Self:
        """Learn from rows that are later than all before; those of all zones belong into one call.

        A zone may be new, or have no new rows: it then counts as silent. Values that are not plausible count as
        missing. A step that has not ended waits for the rest of its rows.
        """
        fitted, options = self._known, self._options
        samples = read_frames(frames, options.metrics, options.place.timezone, fitted.rows.newest_ms)
        if (ONLY_ZONE in samples) != (ONLY_ZONE in fitted.rows.zones):
            named = ", ".join(fitted.rows.zones)
            raise ValueError(
                f"the zones so far are {named}, the new rows are of {', '.join(samples)}: name them as in fit"
            )
        fitted.take(samples, lambda done, total: None)
        return self

    def predict(self) -> pd.DataFrame:
        """Forecasts from the newest complete row: columns ``p10, p50, p90``, index ``zone, target, time``.

        Times are in the site's time zone. A target that a zone did not measure for a day is left out.
        """
        fitted, spec = self._known, self.spec
        times_ms = fitted.origin_ms + np.array(spec.horizons_min, dtype=np.int64) * MINUTE_MS
        zones, quantiles = fitted.quantiles()
        return forecast_frame(zones, spec.targets, times_ms, self._options.place.timezone, quantiles)

    def plot(
        self, forecast: pd.DataFrame, history: Frames | None = None, *, zone: str | None = None,
        target: str | None = None, ax: Axes | None = None,
    ) -> Axes:  # fmt: skip
        """Draw one zone's forecast of one target with its band, and what was measured before, if ``history`` has it.

        ``zone`` and ``target`` may be left out where the forecast has one only. Needs matplotlib.
        """
        from models.frames.forecast_plot import draw  # matplotlib is for those who draw

        metrics, timezone = self._options.metrics, self._options.place.timezone
        past = None if history is None else read_frames(history, metrics, timezone)
        return draw(forecast, past, metrics, timezone, zone, target, ax)

    def save(self, path: Path | str) -> None:
        """Write what was learned to one file (safetensors; nothing is pickled), whole or not at all."""
        from models.frames.frame_file import write_learner  # safetensors is for those who save

        write_learner(Path(path), self._options, self._known)

    @classmethod
    def load(cls, path: Path | str, metrics: Mapping[str, MetricMeaning]) -> Self:
        """A forecaster that goes on where :meth:`save` was called, bit for bit; ``metrics`` as it was made with."""
        from models.frames.frame_file import read_learner

        options, fitted = read_learner(Path(path), metrics)
        made = cls.__new__(cls)
        made._begin(options, fitted)
        return made

    def _begin(self, options: FrameOptions, fitted: FrameLearner | None = None) -> None:
        self._options, self._fitted = options, fitted
        try:
            load_library()  # now, rather than when trees are grown after five days
        except GrowerError as error:
            raise ImportError(f"{error}: {error.hint}") from error

    @property
    def _known(self) -> FrameLearner:
        if self._fitted is None:
            raise ValueError("this forecaster has learned nothing yet: call fit(frame) first")
        return self._fitted
