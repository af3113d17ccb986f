// A zone's past from /series, and sums and means of it.
import { get } from "./api.js";
import { midnightOf } from "./clock.js";
import { path } from "./store.js";
import { sunOfDay } from "./sun.js";

const HOUR_MS = 3_600_000;
const LONG_MS = 8 * HOUR_MS; // no sensor reports more seldom, and no day is shorter
const DARK_W_M2 = 5; // sensors of radiation are some W/m² off at night
const SHORT_MS = 1_500_000; // sensors that send on change do so every twenty minutes (docs/sensors.md)
const DRIEST_C = -30; // no air in a greenhouse has such a dew point: its humidity of 0 % is that of a broken sensor
const HELD_MS = { setpoint: 24 * HOUR_MS, weather: HOUR_MS / 2 }; // so long the last value of a plan holds (HOLD_MS in models/features/plans.py)

export async function seriesOf(key, metrics, from, to, options) {
  const { base, site } = path(key);
  const found = { interval_s: 300, end_ms: [], values: Object.fromEntries(metrics.map((metric) => [metric, { mean: [], min: [], max: [] }])) };
  let cursor = null;
  do {
    const more = cursor === null ? "" : `&cursor=${cursor}`;
    const answer = await get(`${base}/series?${site}&metrics=${metrics.join(",")}&since_ms=${Math.max(0, Math.round(from))}&until_ms=${Math.round(to)}${more}`, options);
    found.interval_s = answer.interval_s;
    found.end_ms.push(...answer.end_ms);
    for (const metric of metrics) for (const part of ["mean", "min", "max"]) found.values[metric][part].push(...answer.values[metric][part]);
    cursor = answer.cursor;
  } while (cursor !== null);
  const { dew_point_c: dew } = found.values;
  for (const part of Object.keys(dew ?? {})) dew[part] = dew[part].map((value) => (value < DRIEST_C ? null : value));
  return found;
}

// After Tetens, as FAO's paper 56 has it; null where air or humidity is not known, or is that of no greenhouse.
export function dewPoint(air, humidity) {
  if (!Number.isFinite(air) || !Number.isFinite(humidity)) return null;
  const x = Math.log(Math.max(humidity, 0.1) / 100) + (17.27 * air) / (air + 237.3);
  const point = (237.3 * x) / (17.27 - x);
  return point < DRIEST_C ? null : point;
}

// Adds the newest row, which the history may not have yet. Values with an age are of earlier rows.
export function withRow(series, { origin_ms: end_ms, step_s, now, now_age_s: ages }) {
  if (series.interval_s !== step_s || (series.end_ms.at(-1) ?? 0) >= end_ms) return series;
  const row = Object.fromEntries(Object.entries(now).filter(([metric]) => !ages[metric]));
  row.dew_point_c = dewPoint(row.air_temp_c, row.rh_pct);
  series.end_ms.push(end_ms);
  for (const [metric, parts] of Object.entries(series.values)) for (const part of ["mean", "min", "max"]) parts[part].push(row[metric] ?? null);
  return series;
}

// Of two spans the shorter: the other may be a gap.
const usualOf = (times) => times.slice(1).map((ms, index) => ms - times[index]).sort((a, b) => a - b)[(times.length - 2) >> 1] ?? 0;

// For a chart a null ends a line, and it goes on over what is undefined: between two values of a sensor that reports seldom.
function bridged(times, values) {
  const known = values.flatMap((value, index) => (Number.isFinite(value) ? [index] : []));
  const longest = Math.max(SHORT_MS, 2.5 * usualOf(known.map((index) => times[index])));
  const made = [...values];
  known.slice(1).forEach((next, n) => times[next] - times[known[n]] <= longest && made.fill(undefined, known[n] + 1, next));
  return made;
}

// Times and values as a chart takes them: where intervals are missing there is a gap.
export function lineOf(series, metric, part = "mean") {
  const [time, values] = [[], []];
  const longest = 2.5 * series.interval_s * 1000;
  series.end_ms.forEach((ms, index) => {
    if (index && ms - series.end_ms[index - 1] > longest) {
      time.push(series.end_ms[index - 1] + 1000);
      values.push(null);
    }
    time.push(ms - (series.interval_s > 300 ? (series.interval_s * 1000) / 2 : 0));
    values.push(series.values[metric]?.[part][index] ?? null);
  });
  return { time, values: bridged(time, values) };
}

// The same of columns that have no interval: a gap is far longer than what usually lies between two times.
export function broken(times, columns) {
  const longest = 2.5 * usualOf(times);
  const [time, values] = [[], columns.map(() => [])];
  times.forEach((ms, index) => {
    if (index && ms - times[index - 1] > longest) {
      time.push(times[index - 1] + 1000);
      values.forEach((column) => column.push(null));
    }
    time.push(ms);
    values.forEach((column, n) => column.push(columns[n][index]));
  });
  return { time, values: values.map((column) => bridged(time, column)) };
}

// What is known of a span: values, each with the one before it and the time since. For so long it counts: a sensor may report seldom,
// or on change, which is more often while much changes.
function spans(series, metric, from, to) {
  const found = [];
  let [last, before] = [from, Infinity];
  series.end_ms.forEach((ms, index) => {
    const value = series.values[metric]?.mean[index];
    if (ms > to || !Number.isFinite(value)) return;
    if (ms > from) found.push({ ms, value, before, since: ms - last });
    last = Math.max(ms, from);
    before = value;
  });
  return found;
}

// Null where less than half of the time is known.
export function meanOf(series, metric, from, to) {
  const known = spans(series, metric, from, to);
  const longest = Math.max(HOUR_MS, 2.5 * Math.min(usualOf(known.map(({ ms }) => ms)), LONG_MS));
  let [time, sum] = [0, 0];
  for (const { value, since } of known) {
    const counts = since > longest ? 1000 * series.interval_s : since;
    time += counts;
    sum += value * counts;
  }
  return time >= 0.5 * (to - from) ? sum / time : null;
}

// Values times seconds since midnight. Null where the sensor was silent for over an hour, unless it was dark before and after: what is
// known would be taken for all.
function daySum(series, metric, to, timeZone, dark = 0) {
  const known = spans(series, metric, midnightOf(to, timeZone), to);
  const isKnown = known.length && to - known.at(-1).ms <= HOUR_MS && known.every(({ value, before, since }) => since <= (Math.max(value, before) < dark ? LONG_MS : HOUR_MS));
  return isKnown ? known.reduce((sum, { value, since }) => sum + (Math.max(0, value) * since) / 1000, 0) : null;
}

const scaled = (sum, factor) => (sum === null ? null : sum * factor);
export const lightSum = (series, to, timeZone) => scaled(daySum(series, "out_radiation_w_m2", to, timeZone, DARK_W_M2), 1e-4); // J/cm²
export const parSum = (series, to, timeZone) => scaled(daySum(series, "par_umol_m2_s", to, timeZone), 1e-6); // mol/m²; lamps burn at night

// What is foreseen of a metric after a moment, by the newest plan that says so: {kind, time, values, until}. A setpoint holds until
// the next, so the one in force stands in front.
export function planned(plans, metric, after) {
  const found = plans.filter((plan) => plan.values[metric]?.length).sort((a, b) => Number(a.zone === "_site") - Number(b.zone === "_site") || b.issued_ms - a.issued_ms)[0];
  const all = found?.values[metric] ?? [];
  const isSetpoint = found?.kind === "setpoint";
  const points = all.filter(([ms]) => (isSetpoint ? ms > after : ms >= after - HOUR_MS));
  const held = isSetpoint ? all.filter(([ms]) => ms <= after).at(-1) : undefined;
  if (held && after - held[0] <= HELD_MS.setpoint) points.unshift([after, held[1]]);
  const until = (all.at(-1)?.[0] ?? after) + (HELD_MS[found?.kind] ?? 0);
  return { kind: found?.kind, time: points.map(([ms]) => ms), values: points.map(([, value]) => value), until };
}

// What is foreseen of the rest of a day's light in J/cm²; null where the plan ends before the sun sets.
export function lightAhead(line, after, { timezone, latitude, longitude }) {
  const end = midnightOf(after, timezone, 1);
  const sun = latitude === null ? null : sunOfDay(midnightOf(after, timezone), latitude, longitude);
  if (line.time.at(-1) < Math.min(end, sun?.set ?? end) - HELD_MS.weather) return null;
  let sum = 0;
  let known = false;
  for (let index = 1; index < line.time.length; index += 1) {
    const [from, to] = [Math.max(after, line.time[index - 1]), Math.min(end, line.time[index])];
    if (to > from) {
      known = true;
      sum += (Math.max(0, (line.values[index - 1] + line.values[index]) / 2) * (to - from)) / 1000 / 1e4;
    }
  }
  return known ? sum : null;
}
