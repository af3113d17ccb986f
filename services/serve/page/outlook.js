// What scenarios say of tonight and tomorrow, in words for who grows the crop.
import { get } from "./api.js";
import { sameDay, timeOf } from "./clock.js";
import { reason } from "./reasons.js";
import { query } from "./store.js";
import { number, percent, span } from "./units.js";
import { capital, t } from "./words.js";

export const TARGET = "air_temp_c";
const asked = new Map(); // scenarios are drawn for each question, so it is asked once a forecast

export function outlookOf(key, origin_ms) {
  const known = asked.get(key);
  if (known?.origin_ms === origin_ms) return known.said;
  const said = get(`predict?${query(key)}&targets=${TARGET}&events=night,day,mean,night_below:${TARGET}`).then((answer) => ({
    origin_ms: answer.origin_ms, events: Object.fromEntries(answer.events.map((event) => [event.event, event])),
  }));
  asked.set(key, { origin_ms, said });
  said.catch(() => asked.get(key).said === said && asked.delete(key));
  return said;
}

const at = (event, name, timeZone) => timeOf(Date.parse(event[name]), timeZone);
const dayWord = (event, origin_ms, timeZone) => (sameDay(Date.parse(event.time), origin_ms, timeZone) ? "today" : "tomorrow");

// One sentence: "Tonight the air falls to 14.8 °C at about 03:20 (80 % likely: 14.5 to 15.0 °C)."
export function nightSentence({ events }, timeZone) {
  const { night, night_below: below } = events;
  if (!night) return t("outlook.none");
  if (night.missing) return t("outlook.night.missing", { why: reason(night.missing) });
  const values = { value: number(night.p50, TARGET), time: at(night, "time", timeZone), span: span(night.p10, night.p90, TARGET) };
  const first = t(night.goes_on ? "outlook.night.on" : "outlook.night", values);
  if (!below || below.missing) return first;
  return `${first} ${t("outlook.cold", { limit: number(below.limit, TARGET), chance: percent(below.chance) })}`;
}

// The same in few words, for a list.
export function nightBrief({ events }, timeZone) {
  const { night, night_below: below } = events;
  if (!night || night.missing) return nightSentence({ events }, timeZone);
  const first = t("outlook.brief", { value: number(night.p50, TARGET), time: at(night, "time", timeZone), span: span(night.p10, night.p90, TARGET) });
  return !below || below.missing ? first : `${first} ${t("outlook.brief.cold", { limit: number(below.limit, TARGET), chance: percent(below.chance) })}`;
}

// Title, figure and words of each; `origin_ms` says which day is today.
export function outlookItems({ events, origin_ms }, timeZone) {
  const { night, day, night_below: below, mean } = events;
  if (!night) return [];
  const times = (event) => (event.earliest === event.latest ? "" : ` ${capital(t("alert.between", { from: at(event, "earliest", timeZone), to: at(event, "latest", timeZone) }))}.`);
  const extreme = (event, title) => (event.missing
    ? { title, figure: "–", words: t("unknown", { why: reason(event.missing) }) }
    : { title, figure: number(event.p50, TARGET), words: `${t("outlook.at", { time: at(event, "time", timeZone) })}${times(event)} ${t("outlook.likely", { span: span(event.p10, event.p90, TARGET) })}` });
  const chance = below.missing
    ? { title: t("outlook.chance.unknown"), figure: "–", words: t("unknown", { why: reason(below.missing) }) }
    : { title: t("outlook.chance", { limit: number(below.limit, TARGET) }), figure: percent(below.chance), words: t("outlook.limit", { n: below.nights }) };
  const dayTitle = day.missing ? t("outlook.day") : t(`outlook.day.${dayWord(day, origin_ms, timeZone)}${day.goes_on ? ".on" : ""}`);
  return [
    extreme(night, t(night.goes_on ? "outlook.minimum.on" : "outlook.minimum")), chance, extreme(day, dayTitle),
    ...(mean && !mean.missing ? [{ title: t("outlook.mean"), figure: number(mean.p50, TARGET), words: t("outlook.likely", { span: span(mean.p10, mean.p90, TARGET) }), id: "mean" }] : []),
  ];
}
