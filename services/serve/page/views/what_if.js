// What if: a change of tonight's plan, drawn or typed; both paths, and what is known about it.
import { ask, get, Offline } from "../api.js";
import { CHANGES, dayBefore, foreseenAt, heldOver, QUESTIONS } from "../changes.js";
import { TimeChart } from "../chart.js";
import { dayAndTime, momentOf, timeOf, wallParts } from "../clock.js";
import { debounced, h, put, single } from "../dom.js";
import { DragLayer } from "../drag.js";
import { planned, seriesOf } from "../past.js";
import { reason } from "../reasons.js";
import { path, query, siteOf, store, zoneOf } from "../store.js";
import { nights } from "../sun.js";
import { axisOf, meant, number, shown, signed, span, unitOf } from "../units.js";
import { capital, t } from "../words.js";
import { figures, name, noZone, tabs, zonePicker } from "./parts.js";
import { showTime, timeList } from "./time_list.js";

const DAY_MS = 86_400_000;
const GRID_MS = 300_000;
const AGAIN_MS = 60_000; // an answer costs the zone's shard, and is read out
const pad = (value) => String(value).padStart(2, "0");

export default function whatIfView(box, key) {
  let [forecast, plans, before, closed, asked] = [null, [], null, false, 0];
  let [loadedAt, stale, unanswered] = [0, false, false];
  const change = { metric: "sp_heat_c", value: CHANGES.sp_heat_c.usual, from: 0, to: 0 };
  let [target, answer] = ["air_temp_c", null];
  let [planChart, layer, pathChart] = [null, null, null];
  let lines = {}; // what is planned, by metric
  let [made, controls] = ["", {}]; // what the fields were made for, and those that show the change
  const result = h("div", { "aria-live": "polite", class: "fields" });
  const planBox = h("div", {});
  const pathBox = h("div", {});
  const choice = h("div", {});
  const fields = h("div", { class: "fields" });
  const questions = h("div", { class: "tabs", role: "group", "aria-label": t("whatif.questions") });
  const head = (...more) => h("section", {}, h("div", { class: "row" }, h("h2", {}, t("whatif.title", { zone: zone().label })), zonePicker("whatif", key)), more);
  const kind = () => CHANGES[change.metric];
  const zone = () => zoneOf(key);
  const isRelative = () => kind().way === "add";

  const load = single(async () => {
    if (closed) return;
    loadedAt = Date.now();
    const said = (forecast = await get(`predict?${query(key)}`));
    stale = false;
    const { base, site } = path(key);
    const foreseen = await get(`${base}/plan?${site}`).then((found) => found.plans).catch(() => []);
    const known = Object.keys(CHANGES).filter((metric) => Number.isFinite(said.now[metric]));
    const past = await seriesOf(key, [...new Set([...known, "air_temp_c"])], said.origin_ms - DAY_MS, said.origin_ms).catch(() => null);
    if (closed) return;
    [plans, before, lines] = [foreseen, past, {}];
    const offered = available();
    if (!offered.length) {
      showNothing();
      return;
    }
    if (!offered.includes(change.metric)) Object.assign(change, usual(offered[0]));
    if (change.to <= forecast.origin_ms) tonight();
    show();
    question();
  });

  // To sunrise, from sunset or from now where most of the night is to come; else the next night.
  function tonight() {
    const now = forecast.origin_ms;
    const night = nights(now, now + 1.5 * DAY_MS, siteOf(zone())).find(([, rise]) => rise > now + 4 * 3_600_000) ?? [now, now + 8 * 3_600_000];
    change.from = Math.max(now, quarter(night[0]));
    change.to = Math.min(now + DAY_MS, quarter(night[1]));
  }

  const quarter = (ms) => Math.round(ms / 900_000) * 900_000;

  const usual = (metric) => ({ metric, value: CHANGES[metric].usual });

  // What can be changed: what is measured, set or foreseen.
  const available = () => Object.keys(CHANGES).filter((metric) => planAt(metric, forecast.origin_ms) !== null);

  function closeCharts() {
    planChart?.close();
    pathChart?.close();
    planChart = null;
  }

  function showNothing() {
    asked += 1; // an answer that is on its way is about what is not known any more
    closeCharts();
    put(result);
    put(box, head(h("p", { class: "note", id: "nothing" }, t("whatif.nothing"))));
  }

  function show() {
    if (!planChart) {
      put(box,
        head(h("p", {}, t("whatif.words")), questions),
        h("div", { class: "two" }, h("section", {}, h("h3", {}, t("whatif.change")), fields),
          h("section", {}, h("h3", { id: "plan-title" }), planBox, h("p", { class: "small soft" }, t("whatif.drag")))),
        h("section", {}, h("h3", {}, t("whatif.answer")), result, choice, pathBox));
      const options = { timeZone: zone().timezone };
      planChart = new TimeChart(planBox, { ...options, label: t("whatif.plan"), height: 190, sync: `what if ${key}`, onDraw: () => place() });
      pathChart = new TimeChart(pathBox, { ...options, label: t("whatif.answer"), height: 260, sync: `what if ${key}` });
      layer = new DragLayer(planChart, (drawn) => {
        if ("value" in drawn) take({ value: drawnValue(drawn.value) });
        else if ("from" in drawn) take({ from: Math.max(forecast.origin_ms, Math.min(drawn.from, change.to - 1_800_000)) });
        else take({ to: Math.min(forecast.origin_ms + DAY_MS, Math.max(drawn.to, change.from + 1_800_000)) });
      });
    }
    showFields(available());
    showPlan();
  }

  // As the answer takes it (`Situation.usual` in models/effects/situation.py): what a plan says, else what was a day before, else
  // what is now. Setpoints follow the greenhouse's clock, all else the sun.
  function plan(metric) {
    const from = forecast.origin_ms;
    const said = planned(plans, metric, from);
    // The answer takes no plan of a position (`PLANNED` in models/features/plans.py).
    const isForeseen = metric !== "vent_lee_pct" && said.time.length > (said.kind === "setpoint" ? 0 : 1); // one setpoint holds, one value of weather is no line
    const past = { time: before?.end_ms ?? [], values: heldOver(before?.values[metric]?.mean ?? []) };
    const otherwise = forecast.now[metric] ?? (isForeseen ? said.values[0] : null);
    const usual = (ms) => {
      const then = metric.startsWith("sp_") ? dayBefore(ms, siteOf(zone())) : ms - DAY_MS;
      const at = past.time.findIndex((end) => end > then); // a row stands for the minutes before its end
      return past.values.at(at) ?? otherwise;
    };
    const grid = Array.from({ length: DAY_MS / GRID_MS + 1 }, (_, n) => from + n * GRID_MS);
    const time = [...new Set([...grid, ...(isForeseen ? said.time : [])])].filter((ms) => ms >= from && ms <= from + DAY_MS).sort((a, b) => a - b);
    return { time, values: time.map((ms) => (isForeseen ? foreseenAt(said, ms) : null) ?? usual(ms)) };
  }

  const lineOf = (metric) => (lines[metric] ??= plan(metric)); // it holds until the next load

  // What it is then without the change; null where nobody says.
  function planAt(metric, ms) {
    const { time, values } = lineOf(metric);
    return values[Math.max(0, time.findLastIndex((one) => one <= ms))];
  }

  const changedAt = (value) => (isRelative() ? value + change.value : kind().way === "at_least" ? Math.max(value, change.value) : change.value);
  const level = () => (isRelative() ? planAt(change.metric, (change.from + change.to) / 2) + change.value : change.value);

  function drawnValue(y) {
    const value = meant(y, change.metric);
    return bounded(isRelative() ? value - planAt(change.metric, (change.from + change.to) / 2) : value);
  }

  const bounded = (value) => Math.min(kind().high, Math.max(kind().low, Math.round(value / kind().step) * kind().step));

  function take(changes) {
    if (changes.metric && changes.metric !== change.metric && changes.value === undefined) Object.assign(changes, usual(changes.metric));
    Object.assign(change, changes);
    asked += 1; // an answer that is on its way is about another change
    show();
    question();
  }

  // They are made anew only for another metric: a slider that is replaced ends its drag.
  function showFields(offered) {
    const wanted = JSON.stringify([offered, change.metric]);
    if (made !== wanted) makeFields(offered);
    made = wanted;
    const words = isRelative() ? signed(change.value, change.metric) : number(change.value, change.metric);
    controls.output.textContent = words;
    controls.slider.value = change.value;
    controls.slider.setAttribute("aria-valuetext", words);
    for (const id of ["from", "to"]) {
      const { hour, minute } = wallParts(change[id], zone().timezone);
      showTime(controls[id], `${pad(hour)}:${pad(minute)}`);
    }
    controls.span.textContent = t("whatif.span", { from: dayAndTime(change.from, zone().timezone), to: dayAndTime(change.to, zone().timezone) });
  }

  function makeFields(offered) {
    const { low, high, step } = kind();
    const clock = (id) => Object.assign(timeList("00:00", (value) => take({ [id]: moment(value, id) })), { id });
    controls = {
      output: h("output", { class: "num", for: "amount" }), from: clock("from"), to: clock("to"), span: h("p", { class: "small soft" }),
      slider: h("input", { type: "range", id: "amount", min: low, max: high, step, oninput: (event) => take({ value: Number(event.target.value) }) }),
    };
    const ready = Object.entries(QUESTIONS).filter(([, [metric]]) => offered.includes(metric));
    questions.hidden = !ready.length;
    put(questions, ready.map(([id, [metric, value]]) => h("button", {
      type: "button", "data-key": id, onclick: () => {
        tonight();
        take({ metric, value });
      },
    }, t(`question.${id}`, { value: number(Math.abs(value), metric, CHANGES[metric].way === "add") }))));
    put(fields,
      h("label", { class: "field", for: "metric" }, t("whatif.metric"), h("select", { id: "metric", onchange: (event) => take({ metric: event.target.value }) }, offered.map((metric) => h("option", { value: metric, selected: metric === change.metric }, name(metric))))),
      h("label", { class: "field", for: "amount" }, h("span", { class: "row" }, t(`whatif.${kind().way}`), controls.output), controls.slider),
      h("div", { class: "row left" }, h("label", { class: "field", for: "from" }, t("whatif.from"), controls.from), h("label", { class: "field", for: "to" }, t("whatif.to"), controls.to)),
      controls.span);
  }

  // The next time at which the greenhouse's clock shows this, which may be now.
  function moment(text, id) {
    const [hour, minute] = text.split(":").map(Number);
    const after = id === "from" ? forecast.origin_ms - 1 : change.from;
    const { year, month, day } = wallParts(after, zone().timezone);
    const today = momentOf(year, month, day, hour, minute, zone().timezone);
    const found = today > after ? today : momentOf(year, month, day + 1, hour, minute, zone().timezone);
    if (id === "from" && found >= change.to) change.to = Math.min(found + 3_600_000, forecast.origin_ms + DAY_MS);
    return Math.min(found, forecast.origin_ms + DAY_MS);
  }

  function showPlan() {
    box.querySelector("#plan-title").textContent = t("whatif.plan.of", { metric: name(change.metric), unit: unitOf(change.metric) });
    const [from, to] = [forecast.origin_ms, forecast.origin_ms + DAY_MS];
    const times = [...new Set([...lineOf(change.metric).time, change.from - 1, change.from, change.to - 1, change.to])].sort((a, b) => a - b);
    const value = (one) => shown(one, change.metric);
    const base = times.map((ms) => planAt(change.metric, ms));
    Object.assign(planChart.options, axisOf(change.metric), { minSpan: { "°C": 6, "°F": 12, "%": 40, ppm: 400, "W/m²": 200 }[unitOf(change.metric)] ?? 8, floor: unitOf(change.metric).startsWith("°") ? null : 0 });
    planChart.show([
      { id: "plan", name: t("whatif.planned"), colour: "past", step: true, time: times, values: base.map(value) },
      { id: "changed", name: t("whatif.with"), colour: "changed", step: true, width: 2.4, time: times, values: base.map((one, index) => value(times[index] >= change.from && times[index] < change.to ? changedAt(one) : one)) },
    ], { from, to, nights: nights(from, to, siteOf(zone())) });
  }

  const place = () => layer?.place({ from: change.from, to: change.to, value: shown(level(), change.metric) });

  const question = debounced(async () => {
    if (closed || !planChart) return; // meanwhile
    const number_ = (asked += 1);
    unanswered = false;
    result.setAttribute("aria-busy", "true");
    try {
      const said = await ask("predict", { zone: zone().zone, site: zone().site, changes: [{ metric: change.metric, [kind().way]: change.value, from: change.from, to: change.to }] });
      if (number_ !== asked || closed) return;
      answer = said;
      showAnswer();
    } catch (error) {
      if (number_ !== asked || closed) return;
      unanswered = error instanceof Offline;
      refuse(error.message);
    }
    result.removeAttribute("aria-busy");
  }, 250);

  // Why there is no answer now; one of before is not shown as if it held.
  function refuse(why) {
    answer = null;
    put(result, h("p", { class: "note warn" }, capital(reason(why).replace(key, zone().label))));
    for (const part of [choice, pathBox]) part.hidden = true;
  }

  function showAnswer() {
    const { support, effect } = answer;
    const zoneName = zone().timezone;
    for (const part of [choice, pathBox]) part.hidden = false;
    if (support === "none") {
      put(result, h("p", { class: "note warn" }, h("strong", {}, t("support.none")), ` ${t("support.none.words")}`), h("ul", { class: "small" }, answer.reasons.map((one) => h("li", {}, capital(reason(one))))));
    } else {
      const told = Object.keys(effect.targets).map((metric) => ({ metric, ...largest(effect, metric) })).filter(({ value }) => value !== null);
      const air = told.find((one) => one.metric === "air_temp_c");
      const sentence = air ? t(Math.abs(air.value) < 0.05 ? "effect.none" : air.value < 0 ? "effect.colder" : "effect.warmer", {
        value: number(Math.abs(air.value), "air_temp_c", true), time: timeOf(air.at, zoneName), span: difference(air),
      }) : "";
      put(result, h("p", { class: "lead", id: "effect" }, sentence), figures([...coldest(), ...told.filter((one) => one !== air).map((one) => ({
        title: t("effect.most", { metric: name(one.metric) }), figure: signed(one.value, one.metric), words: t("effect.when", { time: timeOf(one.at, zoneName), span: difference(one) }),
      }))]), h("p", { class: `note ${support === "here" ? "good" : ""}`, id: "support" }, t(`support.${support}`)));
    }
    showPaths();
  }

  const difference = ({ low, high, metric }) => t("span", { low: signed(low, metric), high: signed(high, metric) });

  function largest(effect, metric) {
    const { p10, p50, p90 } = effect.targets[metric];
    const index = p50.reduce((best, value, at) => (Math.abs(value) > Math.abs(p50[best]) ? at : best), 0);
    return { value: p50[index] ?? null, low: p10[index], high: p90[index], at: answer.origin_ms + effect.horizon_min[index] * 60e3 };
  }

  // The coldest moment of the change's time, as it is and as it would be.
  function coldest() {
    const of = (found) => {
      const air = found.targets.air_temp_c;
      if (!air) return null;
      let best = null;
      found.horizon_min.forEach((minutes, index) => {
        const at = answer.origin_ms + minutes * 60e3;
        if (at >= change.from && at <= change.to + 3_600_000 && (best === null || air.p50[index] < air.p50[best])) best = index;
      });
      return best === null ? null : { p10: air.p10[best], p50: air.p50[best], p90: air.p90[best] };
    };
    const [now, then] = [of(answer.base), of(answer.changed)];
    if (!now || !then) return [];
    return [{ title: t("effect.coldest"), figure: number(then.p50, "air_temp_c"), words: t("effect.instead", { value: number(now.p50, "air_temp_c"), span: span(then.p10, then.p90, "air_temp_c") }) }];
  }

  function showPaths() {
    const targets = Object.keys(answer.base.targets);
    if (!targets.includes(target)) target = targets[0];
    put(choice, tabs("target", "chart.target", targets.map((one) => [one, name(one)]), target, (one) => {
      target = one;
      showPaths();
    }));
    const time = (found) => found.horizon_min.map((minutes) => answer.origin_ms + minutes * 60e3);
    const line = (found, id, colour, words) => {
      const of = (part) => found.targets[target][part].map((value) => shown(value, target));
      return { id, name: words, colour, width: 2.2, faint: 16, time: time(found), values: of("p50"), low: of("p10"), high: of("p90") };
    };
    Object.assign(pathChart.options, axisOf(target));
    const [from, to] = [answer.origin_ms, answer.origin_ms + DAY_MS];
    pathChart.show([line(answer.base, "base", "main", t("whatif.base")), ...(answer.changed?.targets[target] ? [line(answer.changed, "changed", "changed", t("whatif.with"))] : [])],
      { from, to, nights: nights(from, to, siteOf(zone())), marks: [[change.from, "changed", ""], [change.to, "changed", ""]] });
  }

  function start() {
    const instead = noZone(zoneOf(key));
    if (instead) put(box, instead);
    else load(false).catch((error) => !closed && put(box, head(h("p", { class: "note warn" }, reason(error.message)))));
  }

  // From a newer row. Where the zone has none that can be used (503), it says so until it has; without a connection it stays.
  function renew() {
    load().catch((error) => {
      if (closed || error.status !== 503) return;
      stale = true;
      asked += 1; // an answer that is on its way is one of before
      result.removeAttribute("aria-busy");
      refuse(error.message);
    });
  }

  // Of a change that is over nothing can be asked.
  const isOld = () => change.to <= zone()?.origin_ms || Date.now() - loadedAt >= AGAIN_MS;

  start();
  return {
    update: (what, which) => {
      if ((what === "zones" || what === "state") && !forecast) start();
      else if (what === "zones" && forecast && zone() && Boolean(zone().stale) !== stale) renew();
      else if (what === "zone" && which === key && forecast && isOld()) renew();
      else if (what === "state" && store.live && unanswered) question(); // the connection is back
    },
    close: () => {
      closed = true;
      closeCharts();
    },
  };
}
