// Every time is shown as the greenhouse's clock shows it, wherever the browser is.
import { spoken } from "./words.js";

const formats = new Map();

function format(timeZone, fields) {
  const key = `${spoken()} ${timeZone} ${JSON.stringify(fields)}`;
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat(spoken() === "en" ? "en-GB" : spoken(), { timeZone, hourCycle: "h23", ...fields }));
  return formats.get(key);
}

const parts = new Map();

// {year, month, day, hour, minute, second} as the clock of the time zone shows them.
export function wallParts(ms, timeZone) {
  if (!parts.has(timeZone)) {
    const fields = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
    parts.set(timeZone, new Intl.DateTimeFormat("en-CA", { timeZone, hourCycle: "h23", ...fields }));
  }
  const found = {};
  for (const { type, value } of parts.get(timeZone).formatToParts(ms)) if (type !== "literal") found[type] = Number(value);
  return found;
}

// How far the clock is before UTC then, in ms.
export function offsetMs(ms, timeZone) {
  const { year, month, day, hour, minute, second } = wallParts(ms, timeZone);
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1000) * 1000;
}

// The moment at which the clock shows this; in the hour that a clock leaves out, that of an hour later.
export function momentOf(year, month, day, hour, minute, timeZone) {
  const local = Date.UTC(year, month - 1, day, hour, minute);
  const guess = local - offsetMs(local, timeZone);
  const found = local - offsetMs(guess, timeZone);
  return found === guess || offsetMs(found, timeZone) === offsetMs(guess, timeZone) ? found : Math.max(guess, found); // else it is left out
}

export function midnightOf(ms, timeZone, days = 0) {
  const { year, month, day } = wallParts(ms, timeZone);
  return momentOf(year, month, day + days, 0, 0, timeZone);
}

export const timeOf = (ms, timeZone) => format(timeZone, { hour: "2-digit", minute: "2-digit" }).format(ms);
export const dayOf = (ms, timeZone) => format(timeZone, { weekday: "short", day: "numeric", month: "short" }).format(ms);
export const dayAndTime = (ms, timeZone) => `${dayOf(ms, timeZone)}, ${timeOf(ms, timeZone)}`;
export const sameDay = (a, b, timeZone) => midnightOf(a, timeZone) === midnightOf(b, timeZone);

// "14:05" on the day of `now`, else with its day.
export const whenOf = (ms, now, timeZone) => (sameDay(ms, now, timeZone) ? timeOf(ms, timeZone) : dayAndTime(ms, timeZone));

// "CET", or "GMT-5" where the language has no name for it.
export const clockName = (ms, timeZone) => format(timeZone, { timeZoneName: "short" }).formatToParts(ms).find((part) => part.type === "timeZoneName").value;

// What a chart's axis calls a moment: the hour, and the day where one begins.
export function axisLabel(ms, timeZone, step_s) {
  if (step_s >= 28 * 86400) return format(timeZone, { month: "short", year: "2-digit" }).format(ms);
  if (step_s >= 86400) return format(timeZone, { day: "numeric", month: "short" }).format(ms);
  const { hour, minute } = wallParts(ms, timeZone);
  return hour === 0 && minute === 0 ? format(timeZone, { weekday: "short", day: "numeric", month: "short" }).format(ms) : timeOf(ms, timeZone);
}
