// Numbers with their units, in the language of the page; temperatures as the person likes them.
import { fahrenheit } from "./prefs.js";
import { spoken, t } from "./words.js";

const formats = new Map();

function digits(value, count, most = count) {
  const key = `${spoken()} ${count} ${most}`;
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(spoken(), { minimumFractionDigits: count, maximumFractionDigits: most, signDisplay: "negative" }));
  return formats.get(key).format(value).replace("-", "−");
}

const known = {};
export const learnUnits = (units) => Object.assign(known, units);

const isWarmth = (metric) => known[metric] === "°C";
const isState = (metric) => known[metric] === "0/1";

export const unitOf = (metric) => (isWarmth(metric) && fahrenheit() ? "°F" : isState(metric) ? "" : known[metric] ?? "");

// As it is drawn; `isDifference` for a change of temperature.
export function shown(value, metric, isDifference = false) {
  if (!Number.isFinite(value) || !isWarmth(metric) || !fahrenheit()) return value;
  return value * 1.8 + (isDifference ? 0 : 32);
}

// Back to what the API takes.
export const meant = (value, metric, isDifference = false) => (isWarmth(metric) && fahrenheit() ? (value - (isDifference ? 0 : 32)) / 1.8 : value);

const places = (value, metric) => (unitOf(metric) === "kPa" ? 2 : Math.abs(value) >= 100 || ["%", "ppm", "W/m²"].includes(unitOf(metric)) ? 0 : 1);

// How a chart shows it.
export const axisOf = (metric) => ({ unit: unitOf(metric), places: places(0, metric), minSpan: { kPa: 0.2, ppm: 50 }[unitOf(metric)] ?? 2 });

export function plain(value, metric, isDifference = false) {
  if (!Number.isFinite(value)) return "–";
  const number = shown(value, metric, isDifference);
  return digits(number, unitOf(metric) === "%" && Math.abs(number) < 10 && isDifference ? 1 : places(number, metric));
}

export function number(value, metric, isDifference = false) {
  if (!Number.isFinite(value)) return "–";
  if (isState(metric)) return t(value >= 0.5 ? "yes" : "no");
  return `${plain(value, metric, isDifference)}\u00a0${unitOf(metric)}`.trim();
}

// A limit: one digit more than a reading has, where somebody wrote one.
export function limitOf(value, metric, isDifference) {
  const size = shown(value, metric, isDifference);
  return `${digits(size, places(size, metric), places(size, metric) + 1)}\u00a0${unitOf(metric)}`;
}

// A difference with its sign, which a value that is shown as 0 has not.
export function signed(value, metric) {
  const words = number(Math.abs(value), metric, true);
  return /[1-9]/.test(words) ? `${value < 0 ? "−" : "+"}${words}` : words;
}

// An error: two digits that say something, where there are any.
export function errorOf(value, metric) {
  if (!Number.isFinite(value)) return "–";
  const size = shown(value, metric, true);
  return `${digits(size, size < 0.095 ? 3 : size < 9.95 ? 2 : 0)}\u00a0${unitOf(metric)}`;
}

export const count = (value, places = 0) => digits(value, places);

// How many places tell the values of an axis apart that are a step from each other: one for 2.5.
export const placesOf = (step) => [0, 1].find((places) => Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) < 1e-6) ?? 2;
export const span = (low, high, metric) => t("span", { low: plain(low, metric), high: number(high, metric) });

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  if (share < 0.01) return t("percent.under", { n_: count(1) });
  if (share > 0.99) return t("percent.over", { n_: count(99) });
  return `${count(Math.round(100 * share))}\u00a0%`;
}

// Of what was counted, or is a part: there all is all, and none is none. A chance is never certain.
export const shareOf = (part) => (part === 0 || part === 1 ? `${count(100 * part)}\u00a0%` : percent(part));

// "20 minutes ago"
export const ago = (age_s) => (age_s >= 900 ? ` (${new Intl.RelativeTimeFormat(spoken()).format(-Math.round(age_s / 60), "minute")})` : "");

// "2 h 30 min"
export function duration(minutes) {
  const rounded = Math.round(minutes);
  if (rounded < 60) return t("minutes", { count: rounded });
  if (rounded < 48 * 60) return rounded % 60 ? t("hours.and", { hours: Math.floor(rounded / 60), count: rounded % 60 }) : t("hours", { count: rounded / 60 });
  return t("days", { count: Math.round(rounded / 1440) });
}
