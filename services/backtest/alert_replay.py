"""Rules along a recording: what they would have warned of, and how good that was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.wire.vocabulary import VOCABULARY
from models.alerts.alert_book import Alert
from models.alerts.alert_desk import AlertDesk
from models.alerts.alert_rule import AlertRule
from models.alerts.foreseen import STEP_MS, steps_of
from models.alerts.measures import Track, margin, measure
from models.alerts.occurrences import occurring
from models.alerts.rule_watch import METRICS, Said, SiteAhead, with_held
from models.alerts.scoring.alert_scores import (
    ACTIONS,
    KNOWN,
    RuleScore,
    ToldAlert,
    acted,
    came_near,
    day_before,
    score_rule,
    score_together,
)
from models.durations import DAY_MS, MINUTE_MS
from models.features.inputs import local_ms
from models.features.plans import Plan
from models.online.basis import Learned
from models.online.online_forecaster import OnlineForecaster
from models.paths.paths import Paths, night_by_clock
from models.spec import ForecastSpec, Place
from services.backtest.prequential import BacktestOptions, replay, spec_of
from services.backtest.table import Table, sun_sine
from services.errors import HothouseError

__all__ = ["Scored", "Scores", "limits_by_share", "score_alerts"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

SHARE, LEAST, MOST = 0.05, 0.02, 0.10
"""A limit is chosen at which a rule has an event in this share of hours, or as near to it as between these."""

SITE = "backtest"


@dataclass(frozen=True, slots=True)
class Scored:
    """A rule, the share of hours in which it had events in the recording's first part and after it, and its score;
    without a score ``why_not`` says why.
    """

    rule: AlertRule
    first_share: float
    share: float
    score: RuleScore | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """The score of each rule, and of all together, None without rules; and every alert that fired."""

    rules: list[Scored]
    together: RuleScore | None
    fired: list[Alert]


class _Ground:
    """What of a recording is known without any forecast: sun, clock, and where events were."""

    def __init__(self, table: Table, options: BacktestOptions) -> None:
        table = self.table = replace(table, values=with_held(table.values, spec_of(table)))
        self.step = table.step_ms
        ends = table.end_ms
        self.ends = np.concatenate([ends, ends[-1] + np.arange(1, DAY_MS // self.step + 1) * self.step])
        sine = sun_sine(self.ends, table.clock(options.timezone), options.latitude, options.longitude)
        bins = self.ends % DAY_MS // self.step
        self.night = np.where(np.isnan(sine), night_by_clock(bins, DAY_MS // self.step), sine < 0)
        self.minute = self.ends // MINUTE_MS % 1440
        self.first = options.warmup_ms // self.step
        self.scored = slice(self.first, None)
        self.columns = {name: list(VOCABULARY).index(name) for name in METRICS}
        # Times with an offset are a table's as UTC; a control computer's clock is the site's.
        place = Place(options.timezone or "UTC") if table.is_utc else Place()
        self.day_before = day_before(local_ms(place, table.end_ms), self.step)
        self.begins = [(begin - table.start_ms) // self.step for begin, _ in table.spans]
        length = len(ends)
        self.tracks = [
            Track({name: held[:, c] for name, c in self.columns.items()}, self.step, self.night[:length],
                  self.minute[:length])
            for held in table.values
        ]  # fmt: skip

    def events(self, rule: AlertRule) -> tuple[Bool, Bool]:
        """Where the rule had an event, and where it could be known: ``[Z, T]`` each."""
        beyond = [margin(rule, track) for track in self.tracks]
        steps = [steps_of(minutes, self.step) for minutes in (rule.for_min, rule.keep_min)]
        on = np.stack([occurring(each, rule.hysteresis, *steps) for each in beyond])
        return on, np.stack([np.isfinite(each) | np.isneginf(each) for each in beyond])

    def share(self, rule: AlertRule, part: slice) -> float:
        """The share of a part's known time with an event."""
        on, known = self.events(rule)
        return float((on & known)[:, part].sum() / max(known[:, part].sum(), 1))

    def shares(self, rule: AlertRule) -> tuple[float, float]:
        """The :meth:`share` of the first part, and of the part that is scored."""
        return self.share(rule, slice(None, self.first)), self.share(rule, self.scored)


def limits_by_share(
    table: Table, options: BacktestOptions, rules: Sequence[AlertRule], whole: bool = True
) -> list[Scored]:
    """The rules of a course, each with a limit at which it has an event in about a twentieth of the hours: of the
    ``whole`` recording, if also the part that is scored has events in 2 to 10 % of its hours; else of the first part
    (``options.warmup_ms``) alone, and then nothing later is looked at. Without such a limit: why not.
    """
    ground, found = _Ground(table, options), []
    span = slice(None) if whole else slice(None, ground.first)
    for rule in rules:
        if not rule.is_course:
            continue
        plain = replace(rule, night_limit=None)
        values = np.concatenate([measure(plain, track)[span] for track in ground.tracks])
        if not np.isfinite(values).any():
            found.append(Scored(rule, np.nan, np.nan, None, "the recording does not have what it watches"))
            continue
        levels = np.nanquantile(values, np.linspace(0.8, 0.998, 60) if rule.sign > 0 else np.linspace(0.2, 0.002, 60))
        tried = [replace(plain, limit=float(_rounded(level))) for level in np.unique(levels)]
        part = "scored" if whole else "first part's"
        fits = [each for each in tried if LEAST <= ground.share(each, ground.scored if whole else span) <= MOST]
        chosen = min(fits or tried, key=lambda each: abs(ground.share(each, span) - SHARE))
        why = "" if fits else f"no limit has events in {LEAST:.0%} to {MOST:.0%} of the {part} hours"
        found.append(Scored(chosen, *ground.shares(chosen), None, why))
    return found


def score_alerts(
    table: Table, options: BacktestOptions, rules: Sequence[AlertRule], plans: Sequence[Plan] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Scores:  # fmt: skip
    """Replay a recording with these rules: how good they were after the first part.

    Raises :class:`HothouseError` in one sentence.
    """
    spec = spec_of(table)
    minutes = sorted({*spec.horizons_min, 120})
    spec = replace(spec, horizons_min=tuple(m for m in minutes if m * MINUTE_MS % table.step_ms == 0))
    lacks = {"air_temp_c", "rh_pct"} - set(spec.targets)
    if lacks:
        raise HothouseError(f"the recording has no {' and no '.join(sorted(lacks))}, which rules are about")
    ground = _Ground(table, options)
    if ground.first + DAY_MS // table.step_ms >= len(table.end_ms):
        raise HothouseError("the recording ends with its first part", "Make the first part shorter: --first.")
    watch = _Watch(ground, spec, rules)
    replay(table, replace(options, warmup_ms=0), progress, spec=spec, plans=plans, watch=watch)
    return watch.scores()


class _Watch:
    """Follows a replay."""

    def __init__(self, ground: _Ground, spec: ForecastSpec, rules: Sequence[AlertRule]) -> None:
        zones = len(ground.table.names)
        self._ground, self._spec = ground, spec
        self._desk, self._paths = AlertDesk(rules, spec, zones), Paths(spec, zones)
        self._desk.add_zones(zones)
        self._paths.add_zones(zones)
        self._half = STEP_MS // spec.step_ms
        steps = self._paths.knots.steps
        self._times = np.flatnonzero(steps % self._half == 0)
        self._cases: list[tuple[int, I64, list[list[Said]]]] = []
        self._over: list[Alert] = []

    @property
    def fired(self) -> list[Alert]:
        """Every alert that fired; those that are not over last."""
        return [*self._over, *(alert for alert in self._desk.book if alert.told_ms is not None)]

    def __call__(self, t: int, forecaster: OnlineForecaster, learned: Learned, given: F32) -> None:
        """After each step."""
        ground, table = self._ground, self._ground.table
        self._paths.learn(forecaster, learned, lambda ahead: ground.night[t + ahead])
        end_ms = int(ground.ends[t])
        if end_ms % STEP_MS >= self._spec.step_ms or t < self._spec.steps_per_day:
            return  # another row has looked at this half hour
        zones = learned.zones
        names = [table.names[z] for z in zones]
        path = forecaster.path(zones, learned.step, learned.day_bin, given, self._paths.knots)
        drawn = self._paths.scenarios(zones, learned.step, int(learned.day_bin[0]), path, SITE, names)
        self.look(t, zones, drawn[:, :, self._times])

    def look(self, t: int, zones: I64, drawn: F32) -> None:
        """Take the scenarios ``[S, Z, T, M]`` at half hours ahead of row ``t``."""
        ground, table, end_ms = self._ground, self._ground.table, int(self._ground.ends[t])
        day = slice(t + 1 - self._spec.steps_per_day, t + 1)
        later = t + self._paths.knots.steps[self._times]
        ahead = SiteAhead(
            half_hour=end_ms // STEP_MS,
            scenarios={target: drawn[..., m] for m, target in enumerate(self._spec.targets)},
            night=(ground.night[day], ground.night[later]), minute=(ground.minute[day], ground.minute[later]),
            late_ms=end_ms % STEP_MS,
        )  # fmt: skip
        names = [table.names[z] for z in zones]
        changed, said = self._desk.see(SITE, names, zones, table.values[zones, day], ahead, _clock)
        self._cases.append((t, zones, said))
        self._over += [alert for alert in changed if alert.is_over and alert.told_ms is not None]

    def scores(self) -> Scores:
        """How good rules were."""
        table, found, all_scores, all_cases = self._ground.table, [], [], []
        for r, rule in enumerate(self._desk.rules):
            on, known = self._ground.events(rule)
            told = [self._told(alert, rule) for alert in self.fired if alert.rule == rule.name]
            cases = self._cases_of(r, rule, on, known)
            all_scores.append(score_rule(on, known, told, self._ground.first, table.step_ms, cases))
            all_cases.append(cases)
            found.append(Scored(rule, *self._ground.shares(rule), all_scores[-1]))
        fired = sorted(self.fired, key=lambda alert: (alert.told_ms or 0, alert.zone, alert.rule))
        return Scores(found, score_together(all_scores, all_cases) if found else None, fired)

    def _told(self, alert: Alert, rule: AlertRule) -> ToldAlert:
        table = self._ground.table
        zone = table.names.index(alert.zone)
        told, until, end = (
            (ms - table.start_ms) // table.step_ms for ms in (alert.told_ms or 0, alert.to_ms, alert.changed_ms)
        )
        vocabulary = list(VOCABULARY)
        setpoints = {name: table.values[zone, :, vocabulary.index(name)] for name in ACTIONS.get(rule.kind, {})}
        done = acted(rule.kind, setpoints, told, until, self._ground.day_before)
        near = came_near(margin(rule, self._ground.tracks[zone]), rule.hysteresis, told, max(end, until))
        return ToldAlert(zone, told, end if alert.is_over else None, until, done, near)

    def _cases_of(self, r: int, rule: AlertRule, on: Bool, known: Bool) -> Mapping[str, Any]:
        """Chances after the first part at which no event went on, and whether one began within the lead."""
        lead, rows = steps_of(rule.lead_h * 60, self._spec.step_ms), []
        for t, zones, said in self._cases:
            if t < self._ground.first or t + lead >= on.shape[1]:
                continue
            for z, of_zone in zip(zones.tolist(), said, strict=True):
                each, window = of_zone[r], slice(t + 1, t + 1 + lead)
                if each.event is None or on[z, t] or not known[z, t]:
                    continue
                came = bool(on[z, window].any())
                if came or known[z, window].mean() >= KNOWN:
                    rows.append((each.chance, each.usual, float(came), t // self._spec.steps_per_day))
        held = np.array(rows, dtype=np.float64).reshape(-1, 4)
        return {"chance": held[:, 0], "usual": held[:, 1], "came": held[:, 2], "day": held[:, 3].astype(np.int64)}


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M")


def _rounded(value: float) -> float:
    """Three significant figures, as people write limits."""
    return float(f"{value:.3g}")
