// How good: what was said beside what came, errors beside those of simple rules, and what each part weighs.
import { get, Offline } from "../api.js";
import { TimeChart } from "../chart.js";
import { timeOf, dayAndTime } from "../clock.js";
import { h, put, single } from "../dom.js";
import { nearest } from "../forecast.js";
import { broken } from "../past.js";
import { FEW, judged, lastNightWords, pastForecasts } from "../quality_words.js";
import { reason } from "../reasons.js";
import { keyOf, learningDay, query, siteOf, store, zoneOf } from "../store.js";
import { nights } from "../sun.js";
import { axisOf, count, duration, errorOf, shareOf, shown } from "../units.js";
import { has, t } from "../words.js";
import { showAlertScores } from "./alert_scores.js";
import { figures, name, noZone, table, tabs, zonePicker } from "./parts.js";

const DAY_MS = 86_400_000;
const AGAIN_MS = 60_000; // the shard is asked for all of it
const TONES = ["main", "vent", "sun", "screen", "heat", "leaf", "dew", "other", "lamp", "co2", "black", "rain"];

// What is measured in a zone, or was: of other targets there is no forecast to judge.
const targetsOf = ({ scores }, { now }) => {
  const known = Object.keys(scores).filter((one) => Number.isFinite(now[one]) || Object.values(scores[one]).some(({ n }) => n));
  return known.length ? known : Object.keys(scores);
};
const horizonsOf = ({ scores }) => Object.keys(Object.values(scores)[0] ?? {}).map(Number);

export default function qualityView(box, key) {
  let [quality, mixture, origin, closed, loadedAt] = [null, null, 0, false, 0];
  let [target, horizon, days, weightAt] = ["air_temp_c", 720, 2, 720];
  let [chart, choices, asked, unanswered] = [null, "", 0, false];
  const learning = h("div", {});
  const night = h("p", { class: "lead", id: "last-night" }, "…");
  const chartBox = h("div", {});
  const chartWords = h("p", { id: "past-words", "aria-live": "polite" });
  const controls = h("div", { class: "row" });
  const tableBox = h("section", {});
  const parts = h("section", {});
  const alerts = h("section", {});
  const zone = () => zoneOf(key);

  const load = single(async () => {
    if (closed) return;
    const { stale, read_ms, origin_ms } = zone();
    origin = stale ? read_ms : origin_ms; // of a zone that is silent for days that is where its past is
    loadedAt = Date.now();
    [quality, mixture] = await Promise.all([
      get(`quality?${query(key)}`).then((answer) => answer.zones[0]), get("models/zones").then((answer) => answer.zones.find((one) => keyOf(one) === key) ?? null).catch(() => null),
    ]);
    if (closed) return;
    const horizons = horizonsOf(quality);
    const targets = targetsOf(quality, zone());
    if (!targets.includes(target)) target = targets[0] ?? target;
    if (horizons.length && !horizons.includes(horizon)) horizon = horizons.at(-1);
    const day = learningDay(key);
    put(learning, day ? h("p", { class: "note" }, t("quality.learning", { day })) : null);
    if (!chart) {
      put(box,
        h("section", {}, h("div", { class: "row" }, h("h2", {}, t("quality.title", { zone: zone().label })), zonePicker("quality", key)), night, learning),
        h("section", {}, h("h3", {}, t("quality.past")), controls, chartWords, chartBox), tableBox, alerts, parts);
      chart = new TimeChart(chartBox, { label: t("quality.past"), timeZone: zone().timezone, height: 280 });
    }
    const wanted = JSON.stringify([targets, horizons]);
    if (choices !== wanted) showControls(horizons); // else they stay: a list that is open would close
    choices = wanted;
    showTable(horizons);
    showParts();
    await Promise.all([showPast(), showNight(), showAlerts()]);
  });

  function showControls(horizons) {
    const taken = () => {
      showControls(horizons);
      showTable(horizons);
      showPast();
    };
    put(controls,
      tabs("target", "chart.target", targetsOf(quality, zone()).map((one) => [one, name(one)]), target, (value) => {
        target = value;
        taken();
      }),
      h("label", { class: "field", for: "ahead" }, t("quality.ahead"), h("select", { id: "ahead", onchange: (event) => {
        horizon = Number(event.target.value);
        showPast();
      } }, horizons.map((one) => h("option", { value: one, selected: one === horizon }, t("quality.before", { time: duration(one) }))))),
      tabs("span", "chart.span", [[2, t("span.two")], [7, t("span.week")], [30, t("span.month")]], days, (value) => {
        days = value;
        taken();
      }));
  }

  async function showPast() {
    const [from, to] = [origin - days * DAY_MS, origin];
    const number_ = (asked += 1);
    unanswered = false;
    try {
      const { past } = await pastForecasts(key, target, horizon, from, to);
      if (closed || number_ !== asked) return;
      const found = judged(past);
      chartWords.textContent = found ? t("quality.words", { inside: shareOf(found.inside), error: errorOf(found.error, target), from: dayAndTime(found.from, zone().timezone), n: found.cases }) : t("quality.few", { time: duration(horizon) });
      const of = (values) => values.map((value) => (value === null ? null : shown(value, target)));
      const { time, values: [low, middle, high, came] } = broken(past.time_ms, [past.p10, past.p50, past.p90, past.came].map(of));
      Object.assign(chart.options, axisOf(target));
      chart.describe(`${t("quality.past")}: ${name(target)}, ${t("quality.before", { time: duration(horizon) })}. ${chartWords.textContent}`);
      chart.show([
        { id: "said", name: t("quality.said", { time: duration(horizon) }), colour: "main", width: 1.8, time, values: middle, low, high },
        { id: "came", name: t("quality.came"), colour: "past", width: 2, time, values: came },
      ], { from: found ? Math.max(from, past.time_ms[0]) : from, to, nights: nights(from, to, siteOf(zone())) });
    } catch (error) {
      if (number_ !== asked) return;
      unanswered = error instanceof Offline;
      chartWords.textContent = reason(error.message);
    }
  }

  async function showAlerts() {
    try {
      await showAlertScores(alerts, key, zone().timezone);
    } catch (error) {
      put(alerts, h("h3", {}, t("scores.title")), h("p", { class: "soft" }, reason(error.message)));
    }
  }

  async function showNight() {
    if (zone().stale) { // the last night that it knows may be days ago
      night.textContent = t("zone.last", { time: dayAndTime(origin, zone().timezone) });
      return;
    }
    try {
      night.textContent = (await lastNightWords(key, siteOf(zone()), origin, nearest(horizonsOf(quality), 720))).words;
    } catch (error) {
      night.textContent = reason(error.message);
    }
  }

  function showTable(horizons) {
    const rows = horizons.map((one) => [one, quality.scores[target]?.[one]]).filter(([, score]) => score?.n);
    const better = (score) => (score.n >= FEW && score.naive_24h ? `${count(Math.round(100 * (1 - score.model / score.naive_24h)))}\u00a0%` : "–");
    const honest = ({ coverage, n }) => (n < 50 ? "" : coverage >= 0.7 && coverage <= 0.92 ? "good" : coverage < 0.6 ? "bad" : "");
    const title = t("quality.table", { metric: name(target) });
    const heads = [["quality.lead", "text"], ["quality.error"], ["quality.now"], ["quality.yesterday"], ["quality.less"], ["quality.inside"], ["quality.cases"]];
    put(tableBox, h("h3", {}, title), rows.length ? [h("p", { class: "soft small" }, t("quality.table.words")), table("scores", title, "table", heads,
      rows.map(([minutes, score]) => h("tr", {}, h("th", { scope: "row" }, duration(minutes)), h("td", {}, errorOf(score.model, target)), h("td", {}, errorOf(score.persistence, target)),
        h("td", {}, errorOf(score.naive_24h, target)), h("td", {}, better(score)), h("td", { class: honest(score) }, shareOf(score.coverage)), h("td", {}, count(score.n)))))]
      : h("p", {}, t("quality.none")));
  }

  // Of the parts that weigh something at a horizon, how much each does.
  function showParts() {
    if (!mixture) {
      put(parts, h("h3", {}, t("parts.title")), h("p", { class: "soft" }, t("parts.none")));
      return;
    }
    const horizons = [...new Set(Object.values(mixture.weights).flatMap((one) => Object.keys(one).map(Number)))].sort((a, b) => a - b);
    if (!horizons.includes(weightAt)) weightAt = horizons.at(-1);
    const found = Object.entries(mixture.weights).map(([part, weights]) => [part, weights[weightAt] ?? 0]).filter(([, weight]) => weight >= 0.005).sort((a, b) => b[1] - a[1]);
    put(parts, h("h3", {}, t("parts.title")), h("p", { class: "soft small" }, t("parts.words")),
      tabs("weight", "quality.lead", horizons.map((one) => [one, duration(one)]), weightAt, (one) => {
        weightAt = one;
        showParts();
      }),
      h("ul", { class: "parts-list" }, found.map(([part, weight], index) => {
        const bar = h("i", {});
        bar.style.width = `${100 * weight}%`;
        bar.style.setProperty("--tone", `var(--${TONES[index % TONES.length]})`);
        return h("li", { class: "parts" }, h("span", {}, partName(part)), h("span", { class: "bar" }, bar), h("span", { class: "num" }, shareOf(weight)));
      })));
  }

  function start() {
    const instead = noZone(zoneOf(key));
    if (instead) put(box, instead);
    else load(false).catch((error) => !closed && put(box, h("section", {}, h("div", { class: "row" }, h("h2", {}, t("quality.title", { zone: zone().label })), zonePicker("quality", key)), h("p", { class: "note warn" }, reason(error.message)))));
  }

  start();
  return {
    update: (kind, what) => {
      if ((kind === "zones" || kind === "state") && !quality) start();
      else if (kind === "state" && store.live && unanswered) showPast(); // the connection is back
      else if (kind === "zone" && what === key && quality && Date.now() - loadedAt >= AGAIN_MS) load().catch(() => {});
    },
    close: () => {
      closed = true;
      chart?.close();
    },
  };
}

// "pooled ridge 2.5 d" -> its name, with the days that it remembers.
export function partName(part) {
  const [, base, days] = /^(.*?)(?: ([\d.]+) d)?$/.exec(part);
  const words = has(`part.${base}`) ? t(`part.${base}`) : base;
  return days ? t("part.days", { part: words, days: count(Number(days), Number.isInteger(Number(days)) ? 0 : 1) }) : words;
}
