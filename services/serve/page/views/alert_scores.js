// How good a zone's alerts were: by rule, and each of them.
import { get } from "../api.js";
import { dayAndTime } from "../clock.js";
import { h, put } from "../dom.js";
import { query } from "../store.js";
import { count, duration, percent, shareOf } from "../units.js";
import { capital, t } from "../words.js";
import { table } from "./parts.js";

const DAYS = 28;
const TONES = { came: "good", false: "warn" };

export async function showAlertScores(box, key, timeZone) {
  const { rules, alerts } = await get(`alerts/scores?${query(key)}&days=${DAYS}`);
  const title = h("h3", {}, t("scores.title"));
  if (!alerts.length) {
    put(box, title, h("p", {}, t("scores.none", { days: DAYS })));
    return;
  }
  const nameOf = ({ rule, kind }) => capital(rule === kind ? t(`alert.kind.${kind}`) : rule);
  const few = (value, words, { not_enough: missing }, what) => { // "2 of 5 events"
    const [, have, need] = /([\d.]+) of (\d+)/.exec(missing.find((one) => one.endsWith(what)) ?? "") ?? [];
    return value === null ? h("span", { class: "soft" }, t(`scores.few.${what}`, { have: count(Number(have), what === "days" ? 1 : 0), need })) : words;
  };
  const before = (hours) => (hours === null ? "–" : duration(60 * hours));
  const scores = (id, label, heads, rows, texts = []) => table(id, label, `table ${id}`, heads.map((one, place) => [one, place && !texts.includes(place) ? null : "text"]),
    rows.map(([first, ...rest]) => h("tr", {}, h("th", { scope: "row" }, first), rest.map((one, place) => h("td", { class: texts.includes(place + 1) ? "text" : null }, one)))));
  // What had come when its alert fired was no chance any more: the one that is kept is of yet more to come.
  const isForetold = ({ event_ms: came, fired_ms: at }) => came === null || came > at;
  const fired = ({ rule, alerts: over }) => over + alerts.filter((one) => one.rule === rule && one.over_ms === null).length; // only the newest are listed
  const byRule = rules.map((one) => [
    nameOf(one), count(fired(one)), count(one.events), count(one.false), count(one.set_aside), before(one.lead_h),
    few(one.hit_rate, shareOf(one.hit_rate), one, "events"), few(one.false_a_week, count(one.false_a_week ?? 0, 1), one, "days"),
  ]);
  const each = alerts.map((one) => [
    dayAndTime(one.fired_ms, timeZone), nameOf(one), isForetold(one) ? percent(one.chance) : "–", h("span", { class: `badge ${TONES[one.outcome] ?? ""}` }, t(`alert.${one.outcome}`)), before(one.lead_h),
  ]);
  const open = box.querySelector("details")?.open;
  put(box, title, h("p", { class: "soft small" }, t("scores.words", { days: DAYS })),
    scores("alert-scores", t("scores.title"), ["scores.rule", "alerts", "alert.came", "alert.false", "scores.aside", "scores.lead", "scores.hit", "scores.week"], byRule),
    h("details", { open }, h("summary", { "data-key": "past-alerts" }, t("scores.list")), scores("past-alerts", t("scores.list"), ["scores.at", "scores.rule", "scores.chance", "scores.outcome", "scores.lead"], each, [1, 3])));
}
