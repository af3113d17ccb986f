"""Steps 4 to 9 of the way of a reading, for operators: a step in a shard's log, and as spans where traces are on.

All of a step has the ids of ``edge.wire.trace_id``. When traces are off, a round costs a few calls that return at once,
and a step the lines of the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from edge.log import Record
from edge.log_lines import LinesOfAStep
from edge.wire.reading import Sample
from edge.wire.topic import parse_topic
from edge.wire.trace_id import in_step, step_end_ms, step_span_id, step_trace_id
from services.messages import ZoneForecast
from services.store.rows import ClosedStep, DeadLetter

if TYPE_CHECKING:
    from services.observe.spans import Spans

__all__ = ["StepTrace"]

_log = logging.getLogger(__name__)

Attributes = dict[str, str | int]

MOST_OPEN = 12
"""Steps of a site that wait for their forecast, at most; of an older one nothing is heard any more."""
PHASES = ("read", "close rows", "learn")


class StepTrace:
    """A sink; the shard also calls :meth:`begin` and :meth:`lap` around what it does. ``step_ms`` is that of the
    settings.

    A span ``step`` goes from the read that closed the step until its forecast is published, or until the step is
    learned from where none is made. In it: ``read``, ``close rows`` and ``learn`` (of all that one read closed
    together), ``forecast`` (from then until the Forecaster's answer is there), ``publish``, and ``look for alerts``,
    which comes at later ticks.
    """

    def __init__(self, step_ms: int, spans: Spans | None) -> None:
        self._step_ms, self._spans = step_ms, spans
        self._lines = LinesOfAStep()
        self._times: list[int] = []  # begin and end of each phase of the read
        self._answered_ns = 0
        self._read: Sequence[Record] = ()
        self._open: dict[str, dict[int, tuple[int, int]]] = {}  # site -> end -> begin of the read, end of learning

    @property
    def dropped(self) -> int:
        """Spans that did not get to the collector."""
        return 0 if self._spans is None else self._spans.dropped

    def begin(self) -> None:
        """A partition is to be read."""
        if self._spans is not None:
            self._times = [time.time_ns()]

    def took(self, records: Sequence[Record]) -> None:
        """These were read."""
        self._read = records
        self.lap()

    def lap(self) -> None:
        """The next phase of the read is over."""
        if self._spans is not None:
            self._times.append(time.time_ns())

    def answered(self) -> None:
        """The Forecaster has answered."""
        if self._spans is not None:
            self._answered_ns = time.time_ns()

    def letters(self, letters: Sequence[DeadLetter]) -> None:
        """What a read has kept out: a line for each topic and reason, once a step. A late sample has the id of the step
        that it came too late for, all else that of the step in which it came, as in the gateway's log.
        """
        sites = {record.offset: record.site for record in self._read} if letters else {}
        for letter in letters:
            came_ms = step_end_ms(letter.receive_ms, self._step_ms)
            if self._lines.is_new(came_ms, letter.topic, letter.reason):
                where, at_ms = parse_topic(letter.topic), _sample_ms(letter)
                end_ms = came_ms if at_ms is None else step_end_ms(at_ms, self._step_ms)
                place, zone = f"{letter.partition}:{letter.offset}", where.zone if where else ""
                extra = in_step(sites.get(letter.offset, ""), end_ms, zone, log=place)
                _log.info("kept out on %s, %s: %s", letter.topic, letter.reason, letter.detail, extra=extra)

    def looked(self, looked: Collection[tuple[str, int]]) -> None:
        """Rules have looked at zones of sites whose newest rows end then."""
        if self._spans is not None and looked:
            for site, end_ms in looked:
                self._add("look for alerts", site, end_ms, (self._times[-2], self._times[-1]), {})

    def rows(self, steps: Sequence[ClosedStep]) -> None:
        """See :class:`~services.ingest.sinks.sink.Sink`."""
        if steps and _log.isEnabledFor(logging.DEBUG):
            first, last = self._read[0], self._read[-1]
            for step in steps:
                words = "rows of %d zones closed, by records %d to %d of partition %d"
                extra = in_step(step.site, step.end_ms)
                _log.debug(words, len(step.zones), first.offset, last.offset, step.partition, extra=extra)
        if self._spans is None:
            return
        for step in steps:
            known: Attributes = {"hothouse.partition": step.partition, "hothouse.zones": len(step.zones)}
            for name, times_ns in zip(PHASES, pairwise(self._times), strict=True):
                self._add(name, step.site, step.end_ms, times_ns, known)
            waiting = self._open.setdefault(step.site, {})
            waiting[step.end_ms] = self._times[0], self._times[-1]
            if not step.zones:
                self._close(step.site, step.end_ms)
            elif len(waiting) > MOST_OPEN:
                self._close(step.site, min(waiting))

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """See :class:`~services.ingest.sinks.sink.Sink`; it is the last, so that the others' work is in ``publish``."""
        if not forecasts:
            return
        first = forecasts[0]
        site, end_ms, version = first["site"], first["origin_ms"], first["model_version"]
        _log.info("forecast of %d zones issued, by %s", len(forecasts), version, extra=in_step(site, end_ms))
        if self._spans is None:
            return
        known: Attributes = {"hothouse.model_version": version, "hothouse.zones": len(forecasts)}
        waiting = self._open.get(site, {})
        if end_ms in waiting:  # not where it is made again, as after a swap
            self._add("forecast", site, end_ms, (waiting[end_ms][1], self._answered_ns), known)
        self._add("publish", site, end_ms, (self._answered_ns, time.time_ns()), known)
        for older_ms in [at for at in sorted(waiting) if at <= end_ms]:
            self._close(site, older_ms, time.time_ns() if older_ms == end_ms else 0)

    def _close(self, site: str, end_ms: int, until_ns: int = 0) -> None:
        """The span that all others of a step are in; without ``until_ns`` nothing was forecast from the step."""
        begun_ns, learned_ns = self._open[site].pop(end_ms)
        if self._spans is not None:
            trace_id, span_id = step_trace_id(site, end_ms), step_span_id(site, end_ms)
            times_ns = begun_ns, until_ns or learned_ns
            known: Attributes = {
                "hothouse.site": site,
                "hothouse.step_end_ms": end_ms,
                "hothouse.forecast": until_ns > 0,
            }
            self._spans.add("step", trace_id, times_ns, known, span_id=span_id)

    def _add(self, name: str, site: str, end_ms: int, times_ns: tuple[int, int], more: Attributes) -> None:
        assert self._spans is not None
        known: Attributes = {"hothouse.site": site, **more}
        parent_id = step_span_id(site, end_ms)
        self._spans.add(name, step_trace_id(site, end_ms), times_ns, known, parent_id=parent_id)


def _sample_ms(letter: DeadLetter) -> int | None:
    """The time of a late sample; ``None`` of other letters, and where too many values have cut it off."""
    if letter.reason != "late":
        return None
    try:
        return msgspec.json.decode(letter.payload, type=Sample).ts_ms
    except msgspec.DecodeError:
        return None
