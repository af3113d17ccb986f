// How good forecasts were: of the last night, and in the mean, in words and shares.
import { get } from "./api.js";
import { query } from "./store.js";
import { nights } from "./sun.js";
import { duration, errorOf, number, shareOf } from "./units.js";
import { t } from "./words.js";

const HOUR_MS = 3_600_000;

export const pastForecasts = (key, target, horizon, from, to) =>
  get(`quality?${query(key)}&target=${target}&horizon_min=${horizon}&since_ms=${Math.round(from)}&until_ms=${Math.round(to)}`);

export const FEW = 12; // cases of which nothing is said: an hour of rows

export function judged(past) {
  const cases = past.time_ms.map((ms, index) => ({ ms, said: past.p50[index], low: past.p10[index], high: past.p90[index], came: past.came[index] }))
    .filter((one) => one.said !== null && one.came !== null);
  if (cases.length < FEW) return null;
  const inside = cases.filter((one) => one.came >= one.low && one.came <= one.high).length;
  const least = (field) => cases.reduce((found, one) => (one[field] < found[field] ? one : found));
  return {
    cases: cases.length, from: cases[0].ms, to: cases.at(-1).ms, error: cases.reduce((sum, one) => sum + Math.abs(one.said - one.came), 0) / cases.length,
    inside: inside / cases.length, came: least("came"), said: least("said"),
  };
}

// The night that was over, or goes on, before a moment: [sunset, sunrise].
export function lastNight(before, site) {
  const found = nights(before - 48 * HOUR_MS, before, site).filter(([set, rise]) => rise <= before && set < before);
  return found.at(-1) ?? null;
}

// Of the forecasts that were made `horizon` minutes before each time of the last night: how good were they?
export async function lastNightWords(key, site, before, horizon) {
  const night = lastNight(before, site);
  if (!night) return { words: t("night.none"), found: null };
  const { past } = await pastForecasts(key, "air_temp_c", horizon, ...night);
  const found = judged(past);
  if (!found) return { words: t("night.few"), found: null };
  const verdict = found.inside >= 0.65 ? "night.good" : found.inside >= 0.4 ? "night.fair" : "night.poor";
  const words = t("night.words", {
    ahead: duration(horizon), error: errorOf(found.error, "air_temp_c"), came: number(found.came.came, "air_temp_c"), said: number(found.said.said, "air_temp_c"), inside: shareOf(found.inside),
  });
  return { words: `${t(verdict)} ${words}`, found, night };
}
