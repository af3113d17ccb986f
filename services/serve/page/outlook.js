// What scenarios say of tonight and tomorrow, in words for who grows the crop.
import { dateOf, timeOf } from "./clock.js";

export const TARGET = "air_temp_c";
export const QUESTION = `targets=${TARGET}&events=night,day,night_below:${TARGET}`;

// `said` is the answer of /predict to the question; each item has a title, a figure and a sentence.
export function outlookItems(said, timeZone, number) {
  const events = Object.fromEntries(said.events.map((event) => [event.event, event]));
  const { night, day, night_below: below } = events;
  if (!night) return [];
  const isToday = (event) => dateOf(Date.parse(event.time), timeZone) === dateOf(said.origin_ms, timeZone);
  return [
    extreme(night, `Tonight's minimum${night.goes_on ? ", from now on" : ""}`, timeZone, number),
    chance(below, number),
    extreme(day, dayTitle(day, isToday), timeZone, number),
  ];
}

function dayTitle(day, isToday) {
  if (day.missing) return "The next day's maximum";
  return `${isToday(day) ? "Today's" : "Tomorrow's"} maximum${day.goes_on ? ", from now on" : ""}`;
}

function extreme(event, title, timeZone, number) {
  if (event.missing) return { title, figure: "–", words: `Not known: ${event.missing}.` };
  const at = (name) => timeOf(Date.parse(event[name]), timeZone);
  const span = event.earliest === event.latest ? "" : `; the time: ${at("earliest")} to ${at("latest")}`;
  return {
    title,
    figure: `${number(event.p50)} at about ${at("time")}`,
    words: `80 % likely: ${number(event.p10)} to ${number(event.p90)} (p10 to p90)${span}.`,
  };
}

function chance(event, number) {
  if (event.missing) return { title: "Chance of an unusually cold night", figure: "–", words: `Not known: ${event.missing}.` };
  return {
    title: `Chance of a night below ${number(event.limit)}`,
    figure: percent(event.chance),
    words: `The limit is the zone's own: one in ten of its ${event.nights} nights so far was colder.`,
  };
}

function percent(share) {
  if (share < 0.01) return "under 1 %";
  return share > 0.99 ? "over 99 %" : `${Math.round(100 * share)} %`;
}
