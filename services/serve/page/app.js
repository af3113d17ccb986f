// The page: asks the API every few seconds and shows what it says. Text goes in as text, never as markup.
import { draw, hasPath, pointsOf } from "./chart.js";
import { dayAndTime } from "./clock.js";
import { intakeText } from "./intake.js";
import { fetchWithKey, useKeys } from "./key.js";
import { outlookItems, QUESTION, TARGET } from "./outlook.js";

const POLL_MS = 3000;
const byId = (id) => document.getElementById(id);
const chosen = { zone: decodeURIComponent(location.hash.slice(1)) || null, target: "air_temp_c" };
let units = {};
let labels = {};
let timeZones = {};
let outlook = { key: null, origin_ms: 0, said: null };
let past = { key: null, origin_ms: 0, end_ms: [], values: {} };

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

async function ask(path) {
  const answer = await fetchWithKey(path);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.detail ?? answer.statusText);
  return content;
}

function nameOf(metric) {
  const label = labels[metric] ?? metric.replaceAll("_", " ");
  return label[0].toUpperCase() + label.slice(1);
}

const unitOf = (metric) => units[metric] ?? "";

function number(value, metric) {
  if (value === null || value === undefined) return "–";
  if (unitOf(metric) === "0/1") return value >= 0.5 ? "yes" : "no";
  const digits = unitOf(metric) === "kPa" ? 2 : Math.abs(value) >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${unitOf(metric)}`;
}

function showZones(zones) {
  const items = zones.map((zone) => {
    const key = `${zone.site}/${zone.zone}`;
    const button = element("button", zone.zone, { type: "button", "aria-current": String(key === chosen.zone) });
    button.dataset.key = key;
    button.append(element("small", `${zone.site} · ${number(zone.now.air_temp_c, "air_temp_c")}`));
    if (zone.degraded.length) button.append(element("small", "degraded", { class: "warn" }));
    const item = element("li");
    item.append(button);
    return item;
  });
  const focused = document.activeElement?.dataset?.key;
  byId("zones").replaceChildren(...items);
  if (focused) byId("zones").querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function showTargets(targets) {
  const box = byId("targets");
  if (box.dataset.shown === targets.join()) return;
  box.dataset.shown = targets.join();
  if (!targets.includes(chosen.target)) chosen.target = targets[0];
  box.replaceChildren(...targets.map((target) => {
    const label = element("label");
    const input = element("input", undefined, { type: "radio", name: "target", value: target });
    input.checked = target === chosen.target;
    label.append(input, ` ${nameOf(target)}`);
    return label;
  }));
}

function showNow(now) {
  const shown = Object.entries(now).filter(([, value]) => value !== null);
  byId("now").replaceChildren(...shown.map(([metric, value]) => {
    const item = element("div");
    item.append(element("dt", nameOf(metric)), element("dd", number(value, metric)));
    return item;
  }));
}

// The path's first hour, and every full hour after it.
function showTable(forecast, timeZone) {
  const head = element("tr");
  head.append(...["in", "at", "p10", "p50", "p90"].map((text) => element("th", text, { scope: "col" })));
  const learned = new Set((forecast.forecasts[chosen.target] ?? []).map((point) => point.horizon_min));
  const points = pointsOf(forecast, chosen.target).filter(({ horizon_min: minutes }) => learned.has(minutes) || minutes % 60 === 0);
  const rows = points.map((point) => {
    const row = element("tr");
    const span = point.horizon_min < 60 ? `${point.horizon_min} min` : `${point.horizon_min / 60} h`;
    const cells = [span, dayAndTime(point.time_ms, timeZone), ...["p10", "p50", "p90"].map((q) => number(point[q], chosen.target))];
    row.append(...cells.map((text) => element("td", text)));
    return row;
  });
  byId("table").replaceChildren(head, ...rows);
}

function putOutlook(key, items, sentence) {
  const box = byId("outlook");
  box.dataset.key = key;
  box.replaceChildren(...items.map(({ title, figure, words }) => {
    const item = element("div");
    item.append(element("dt", title), element("dd", figure, { class: "figure" }), element("dd", words));
    return item;
  }));
  byId("outlook-said").textContent = sentence;
}

// Scenarios are drawn for each question, so it is asked once a forecast.
async function askOutlook(key, query, forecast) {
  if (outlook.key === key && outlook.origin_ms === forecast.origin_ms) return outlook.said;
  const said = forecast.forecasts[TARGET] ? await ask(`/predict?${query}&${QUESTION}`) : { events: [] };
  outlook = { key, origin_ms: forecast.origin_ms, said };
  return said;
}

// Comes after the forecast: a shard that does not answer must not hold that up.
async function showOutlook(key, query, forecast) {
  if (byId("outlook").dataset.key !== key) putOutlook(key, [], "");
  let items = [];
  let why = "the air temperature is not forecast here";
  try {
    items = outlookItems(await askOutlook(key, query, forecast), timeZones[key], (value) => number(value, TARGET).replaceAll(" ", "\u00a0"));
  } catch (error) {
    why = error.message;
  }
  if (key === chosen.zone) putOutlook(key, items, items.length ? "" : `Tonight and tomorrow cannot be said now: ${why}.`);
}

async function showZone(key) {
  const query = `zone=${encodeURIComponent(key)}`;
  const forecast = await ask(`/predict?${query}`);
  if (past.key !== key || past.origin_ms !== forecast.origin_ms) {
    const history = await ask(`/history?${query}`).catch(() => ({ end_ms: [], values: {} }));
    past = { key, origin_ms: forecast.origin_ms, ...history };
  }
  if (key !== chosen.zone) return; // another zone was chosen meanwhile
  const timeZone = timeZones[key];
  byId("zone-name").textContent = key;
  byId("model").textContent = `${forecast.model_version} · from ${dayAndTime(forecast.origin_ms, timeZone)}`;
  byId("degraded").replaceChildren(...forecast.degraded.map((reason) => element("li", reason)));
  showTargets(Object.keys(forecast.forecasts));
  showNow(forecast.now);
  showTable(forecast, timeZone);
  byId("no-path").hidden = hasPath(forecast, chosen.target);
  byId("time-zone").textContent = timeZone;
  byId("chart").setAttribute("aria-label", `${nameOf(chosen.target)} of ${key}: past 48 hours and forecast for 24 hours`);
  draw(byId("chart"), past, forecast, chosen.target, unitOf(chosen.target), timeZone);
  await showOutlook(key, query, forecast);
}

async function showIntake() {
  byId("intake").textContent = intakeText((await ask("/status")).components);
}

async function refresh() {
  try {
    const answer = await ask("/zones");
    const zones = answer.zones;
    ({ units, labels } = answer);
    timeZones = Object.fromEntries(zones.map((zone) => [`${zone.site}/${zone.zone}`, zone.timezone]));
    if (!zones.some((zone) => `${zone.site}/${zone.zone}` === chosen.zone)) {
      chosen.zone = zones.length ? `${zones[0].site}/${zones[0].zone}` : null;
    }
    showZones(zones);
    const degraded = zones.filter((zone) => zone.degraded.length).length;
    byId("state").textContent = zones.length
      ? `${zones.length} zones${degraded ? `, ${degraded} degraded` : ""}`
      : "waiting for the first forecast";
    await Promise.all([showIntake(), chosen.zone ? showZone(chosen.zone) : null]);
  } catch (error) {
    byId("state").textContent = error.message;
  }
}

byId("zones").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  chosen.zone = button.dataset.key;
  history.replaceState(null, "", `#${encodeURIComponent(chosen.zone)}`);
  refresh();
});
byId("targets").addEventListener("change", (event) => {
  chosen.target = event.target.value;
  refresh();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);

useKeys(refresh);

async function poll() {
  await refresh();
  setTimeout(poll, POLL_MS);
}
poll();
