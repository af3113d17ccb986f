"""What-ifs against what then happened: simulated houses that are run twice under the same weather.

    python -m benchmarks.what_if [--pairs 200] [--seed 2] [--effects FOLDER] [--details]

Houses are drawn from another seed than those that the network of effects learned from. Each is streamed row by row,
with its sensors' faults, through what a shard runs (sensor checks, online forecaster, plans as they were issued,
changes that a zone has seen), for a week. Then somebody asks what a change would do, drawn by chance, as a shard is
asked. The truth is the difference of two runs. Last, each zone is asked something for which there can be no evidence.
Exit code 1 where a budget is missed:

- the sign is right in 95 % of the pairs whose true effect, the mean while the change lasts, is above .3 °C or 2 % RH;
- the 80 % interval holds the truth at 70 to 90 % of the times of the path from the change on, for each target;
- "not enough evidence" is said in 95 % of the cases without support.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge.simulator.fleet.counterfactuals import Pair, simulate_pairs
from edge.simulator.fleet.draws import draw_site
from edge.simulator.fleet.fleet_recording import recording_layout
from edge.wire.vocabulary import VOCABULARY
from models.effects.effect_artefact import SHIPPED_EFFECTS, load_effects
from models.effects.effect_network import EffectNetwork
from models.effects.effect_support import NO_EVIDENCE
from models.effects.plan_change import GRID_MIN, PlanChange
from models.effects.seen_changes import SeenChanges, seen_columns
from models.effects.situation import EFFECT_TARGETS, SEEN
from models.effects.zone_effect import ZoneEffect, zone_effect
from models.features.inputs import day_bins, sun_sine
from models.features.plans import BINS_BACK, PLANNED, bins_ahead
from models.features.sensor_faults import SensorFaults
from models.online.online_forecaster import OnlineForecaster
from models.paths.steps import Knots, path_steps
from models.pretraining.effect_pairs import EffectPairs, RunPair, pairs_of
from models.pretraining.fleet_chunk import FleetChunk
from models.spec import ForecastSpec
from services.cli.pretrain.effects import changes_of
from services.ingest.paths.zone_question import ZoneQuestion, zone_question

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

SPEC = ForecastSpec(tuple(VOCABULARY))
DAYS, FIRST_ASKED_DAY = 9, 7
STEP_MIN = 5
BIN_STEPS = 6
LEAST = {"air_temp_c": 0.3, "rh_pct": 2.0}
WITHOUT_SUPPORT = (
    "far too much heat", "a metric that was never tried", "an actuator that was never tried",
    "a way that was never tried", "impossible weather", "ten minutes", "air that is 25 °C off",
    "three hours of history", "a setpoint that nobody says", "five changes at a time",
)  # fmt: skip
FIVE = ("sp_heat_c", "sp_vent_c", "sp_rh_pct", "sp_co2_ppm", "out_temp_c")
SIGNS, HELD, REFUSED = 0.95, (0.70, 0.90), 0.95


@dataclass(frozen=True, slots=True)
class Asked:
    """A pair, what the zone's shard knew at its origin, and what was answered."""

    pair: RunPair
    question: ZoneQuestion
    answer: ZoneEffect
    truth: F32  # [T, M]


def main() -> int:
    """Run it, print a table, compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--effects", type=Path, default=SHIPPED_EFFECTS)
    parser.add_argument("--details", action="store_true", help="A line for each pair.")
    options = parser.parse_args()
    network, manifest = load_effects(options.effects)
    if manifest.get("seed") == options.seed:
        parser.error(f"the network of effects learned from seed {options.seed}: name another --seed")
    asked = list(ask_all(network, options.seed, options.pairs))
    rows = evaluated(asked, details=options.details)
    refused = unsupported(network, asked, np.random.default_rng([options.seed, 17]))
    rows.append(("not enough evidence, where there is none", refused, REFUSED, 1.0))
    failed = False
    for words, share, least, most in rows:
        good = least <= share <= most
        failed |= not good
        print(f"{words:<64} {share:6.3f}   {least:.2f} to {most:.2f}   {'ok' if good else 'MISSED'}")
    return int(failed)


def ask_all(network: EffectNetwork, seed: int, pairs: int) -> Iterator[Asked]:
    """Simulate as many sites as give ``pairs`` pairs, stream them, and ask each zone at its origin."""
    sites = [draw_site(seed, index) for index in range(pairs)]
    zones = np.cumsum([len(site.zones) for site in sites])
    sites = sites[: int(np.searchsorted(zones, pairs)) + 1]
    recording, drawn = simulate_pairs(sites, DAYS, 1, earliest_day=FIRST_ASKED_DAY)
    chunk = FleetChunk(recording.arrays(), recording_layout(), recording.step_ms)
    runs = [run_pair(pair) for pair in drawn[:pairs]]
    truths = pairs_of(chunk, runs)
    for number, question in stream(chunk, runs):
        pair = runs[number]
        answer = zone_effect(
            network, question.situation, pair.changes, question.minutes, question.spec, question.times_seen
        )
        yield Asked(pair, question, answer, truth_of(truths, number, question.minutes))


def run_pair(pair: Pair) -> RunPair:
    """The pair in rows, with its changes as a request would name them."""
    return RunPair(pair.as_was, pair.as_changed, pair.origin_min // STEP_MIN - 1, changes_of(pair))


def truth_of(pairs: EffectPairs, number: int, minutes: I64) -> F32:
    """The difference of both runs at ``minutes``: ``[T, M]``."""
    return np.asarray(pairs.effect[number][np.searchsorted(GRID_MIN, minutes)])


def stream(chunk: FleetChunk, runs: Sequence[RunPair]) -> Iterator[tuple[int, ZoneQuestion]]:
    """Each run's question, when the rows up to its origin have been learned from. All houses are zones of one
    forecaster, as those of a partition are; each has the sun, clock and plans of its own site.
    """
    zones = np.array([run.as_was for run in runs], np.int64)
    values = chunk.rows(SPEC.channels)[zones]
    places = [chunk.place(int(zone)) for zone in zones]
    ends = chunk.end_ms(zones[:, None], np.arange(values.shape[1])[None])  # [Z, N]
    steps = np.array((0, *SPEC.horizon_steps), np.int64)
    sun = np.stack([
        sun_sine(place, np.arange(len(row) + steps[-1]) * SPEC.step_ms + row[0])
        for place, row in zip(places, ends, strict=True)
    ])  # fmt: skip
    bins = np.stack([day_bins(place, row, SPEC) for place, row in zip(places, ends, strict=True)])
    forecaster, knots = OnlineForecaster(SPEC, len(zones)), Knots.of(path_steps(SPEC), SPEC)
    sensors, seen = SensorFaults(SPEC.channels, SPEC.step_ms, len(zones)), SeenChanges(len(zones))
    for part in (forecaster, sensors, seen):
        part.add_zones(len(zones))
    everybody, cleaned = np.arange(len(zones)), np.full_like(values, np.nan)
    first = SPEC.steps_per_day  # a common count of steps; each site has its own first day
    for n in range(max(run.origin for run in runs) + 1):
        number = first + n
        rows, _ = sensors.learn(everybody, number, values[:, n], n % SPEC.steps_per_day * 24 // SPEC.steps_per_day)
        cleaned[:, n] = rows
        ahead = chunk.foreseen(zones, np.full(len(zones), n), PLANNED, BINS_BACK, bins_ahead(SPEC))
        learned = forecaster.learn(everybody, number, rows, bins[:, n], sun[:, n + steps], ahead)
        if (n + 1) % BIN_STEPS == 0 and n + 1 > SPEC.steps_per_day:
            today, before = cleaned[:, n + 1 - BIN_STEPS : n + 1], n + 1 - SPEC.steps_per_day
            yesterday = cleaned[:, before - BIN_STEPS : before] if before >= BIN_STEPS else np.full_like(today, np.nan)
            seen.learn(everybody, *(seen_columns(one, SPEC.channels) for one in (today, yesterday)))
        due = [z for z, run in enumerate(runs) if run.origin == n]
        if not due:
            continue
        quantiles = forecaster.predict(learned)
        at = np.array(due, np.int64)
        paths = forecaster.path(at, number, bins[at, n], quantiles[at], knots)
        for z, path in zip(due, paths, strict=True):
            yield z, zone_question(
                SPEC, places[z], int(ends[z, n]), "online", cleaned[z, n + 1 - SPEC.steps_per_day : n + 1], path,
                knots.steps, ahead[z], seen.of_zone(z),
            )  # fmt: skip


def evaluated(asked: Sequence[Asked], *, details: bool) -> list[tuple[str, float, float, float]]:
    """Rows of the table: words, share, and between what it has to lie."""
    answered = [one for one in asked if one.answer.effect is not None]
    levels = Counter(one.answer.support.level for one in asked)
    print(
        f"{len(asked)} pairs: {levels['here']} with support here, {levels['simulated']} in simulated houses only, "
        f"{levels['none']} without"
    )
    why = Counter(reason for one in asked if one.answer.effect is None for reason in one.answer.support.reasons)
    for reason, times in why.most_common(6):
        print(f"  {times:3d} × {reason}")
    right, wrong = Counter[str](), Counter[str]()
    steps: dict[str, list[F32]] = {target: [] for target in EFFECT_TARGETS}  # truth, p10, p50, p90
    for one in answered:
        minutes = one.question.minutes
        begin, end = min(c.begin_min for c in one.pair.changes), max(c.end_min for c in one.pair.changes)
        during, after = (minutes > begin) & (minutes <= end), minutes > begin
        for target in EFFECT_TARGETS:
            assert one.answer.effect is not None
            truth = one.truth[:, EFFECT_TARGETS.index(target)]
            said = one.answer.effect[:, SPEC.targets.index(target)]
            known = np.isfinite(truth)
            steps[target].append(np.concatenate([truth[:, None], said], axis=1)[known & after])
            if target in LEAST and (known & during).any():
                true, mean = float(truth[known & during].mean()), float(said[known & during, 1].mean())
                agrees = bool(np.sign(true) == np.sign(mean))
                if abs(true) > LEAST[target]:
                    (right if agrees else wrong)[target] += 1
                    if details or not agrees:
                        print(f"  {target:<11}{true:7.2f} was said {mean:7.2f}: {_words(one.pair.changes)}")
    signs, wrongs = right.total(), wrong.total()
    words = f"sign right, of {signs + wrongs} effects ({dict(right)} right, {dict(wrong)} wrong)"
    table = [(words, signs / max(signs + wrongs, 1), SIGNS, 1.0)]
    for target, parts in steps.items():
        truth, low, median, high = np.concatenate(parts).T
        inside = (low <= truth) & (truth <= high)
        line = f"  {target:<11} error {np.abs(truth - median).mean():.3f}, without {np.abs(truth).mean():.3f}"
        line += f"; widest interval {(high - low).max():.3g}"
        if target in LEAST:
            large = np.abs(truth) > LEAST[target]
            line += f"; where it is above {LEAST[target]:g} ({large.mean():.2f} of the times) the sign is right in "
            line += f"{(np.sign(truth) == np.sign(median))[large].mean():.3f}, held {inside[large].mean():.3f}"
        print(line)
        table.append((f"80 % interval holds {target}, at {len(truth):,} times", float(inside.mean()), *HELD))
    return table


def unsupported(network: EffectNetwork, asked: Sequence[Asked], rng: np.random.Generator) -> float:
    """The share of questions without support that are answered so; each zone is asked one."""
    refused, kinds = [], Counter[str]()
    for n, one in enumerate(asked):
        question, changes, kind = _without_support(one, n, rng)
        answer = zone_effect(network, question.situation, changes, question.minutes, question.spec, question.times_seen)
        said = answer.effect is None and NO_EVIDENCE in answer.support.words
        refused.append(said)
        if not said:
            kinds[kind] += 1
    for kind, times in kinds.items():
        print(f"  answered all the same, {times} times: {kind}")
    return float(np.mean(refused))


def _without_support(one: Asked, n: int, rng: np.random.Generator) -> tuple[ZoneQuestion, list[PlanChange], str]:
    begin = float(rng.integers(0, 200) * 5)
    end = begin + 300.0
    sign = float(rng.choice([-1.0, 1.0]))
    question, situation = one.question, one.question.situation
    heat = PlanChange("sp_heat_c", "add", 1.0, begin, end)
    kind = WITHOUT_SUPPORT[n % len(WITHOUT_SUPPORT)]
    changes = {
        "far too much heat": [PlanChange("sp_heat_c", "add", sign * float(rng.uniform(8, 20)), begin, end)],
        "a metric that was never tried": [PlanChange("fog_pct", "set", 50.0, begin, end)],
        "an actuator that was never tried": [PlanChange("heat_pipe_low_c", "set", 60.0, begin, end)],
        "a way that was never tried": [PlanChange("vent_lee_pct", "most", 0.0, begin, end)],
        "impossible weather": [PlanChange("out_temp_c", "add", sign * float(rng.uniform(11, 25)), begin, end)],
        "ten minutes": [PlanChange("sp_heat_c", "add", 1.0, begin, begin + 10.0)],
        "a setpoint that nobody says": [PlanChange("sp_heat_c", "set", 18.0, begin, end)],
        "five changes at a time": [PlanChange(name, "add", 1.0, begin, end) for name in FIVE],
    }.get(kind, [heat])
    if kind == "air that is 25 °C off":
        off = 25 * sign * np.isin(np.arange(len(SEEN)), SEEN.index("air_temp_c")).astype(np.float32)
        path, day = situation.path + off[:3], situation.day + off
        situation = replace(situation, path=path.astype(np.float32), day=day.astype(np.float32))
    elif kind == "three hours of history":
        day = situation.day.copy()
        day[:, :-6] = np.nan
        situation = replace(situation, day=day)
    elif kind == "a setpoint that nobody says":
        situation = replace(
            situation, day=_without(situation.day, "sp_heat_c"), now=_without(situation.now, "sp_heat_c"),
            foreseen=np.full_like(situation.foreseen, np.nan),
        )  # fmt: skip
    return replace(question, situation=situation), changes, kind


def _without(values: F32, metric: str) -> F32:
    found = values.copy()
    found[..., SEEN.index(metric)] = np.nan
    return found


def _words(changes: Sequence[PlanChange]) -> str:
    return ", ".join(
        f"{c.metric} {c.how} {c.value:g} from {c.begin_min / 60:.1f} to {c.end_min / 60:.1f} h" for c in changes
    )


if __name__ == "__main__":
    sys.exit(main())
