// Pieces that several views show.
import { order } from "../api.js";
import { byId, h } from "../dom.js";
import { clockName, dayAndTime, whenOf } from "../clock.js";
import { reason } from "../reasons.js";
import { addressOf, alertsOf, learningDay, siteOf, store } from "../store.js";
import { ago, count, limitOf, number, percent } from "../units.js";
import { capital, has, metricName, t } from "../words.js";

export const name = (metric) => capital(metricName(metric, store.labels[metric]));

export const loading = () => h("p", { class: "loading" }, t("loading"));

// A time of a site by its clock. One of no site is by the first site's, which is named where there are others.
export function timeWords(ms, site, show = dayAndTime) {
  const clocks = new Set(Object.values(store.sites).map((one) => one.timezone));
  const own = store.sites[site]?.timezone;
  const timeZone = own ?? [...clocks][0] ?? "UTC";
  return `${show(ms, timeZone)}${!own && clocks.size > 1 ? ` ${clockName(ms, timeZone)}` : ""}`;
}

export const figures = (items) => h("dl", { class: "figures" }, items.map(({ title, figure, words }) => h("div", {},
  h("dt", {}, title), h("dd", { class: "figure" }, figure), words ? h("dd", {}, words) : null)));

// A table that scrolls by itself; `heads` are messages, with the class of their cells.
export const table = (id, label, key, heads, rows, caption = null) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, "data-key": key },
  h("table", { id }, caption, h("thead", {}, h("tr", {}, heads.map(([one, look]) => h("th", { scope: "col", class: look }, capital(t(one)))))), h("tbody", {}, rows)));

// Buttons of which one is pressed: [value, words] each.
export const tabs = (id, label, options, now, take) => h("div", { class: "tabs", role: "group", "aria-label": t(label) }, options.map(([value, words]) => h("button", {
  type: "button", "aria-pressed": String(value === now), "data-key": `${id}-${value}`, onclick: () => take(value),
}, words)));

export function badges(zone) {
  const found = [];
  if (zone.stale) found.push(h("span", { class: "badge bad" }, t("alert.kind.stale_zone")));
  else if (zone.degraded.length) found.push(h("span", { class: "badge warn" }, t("zone.degraded")));
  const day = learningDay(zone.key);
  if (day) found.push(h("span", { class: "badge" }, t("zone.learning", { day })));
  return found;
}

export const reading = ({ now, now_age_s: ages }, metric, tag = "span") => h("span", {}, h(tag, {}, number(now[metric], metric)), h("small", { class: "soft" }, ago(ages[metric])));

export const reasons = (sentences) => (sentences.length ? h("ul", { class: "note warn" }, sentences.map((one) => h("li", {}, reason(one)))) : null);

export function zonePicker(view, key) {
  const bySite = Object.groupBy ? Object.groupBy(store.zones, (zone) => zone.site) : { "": store.zones };
  const option = (zone) => h("option", { value: zone.key, selected: zone.key === key }, zone.label);
  const groups = Object.entries(bySite).map(([site, zones]) => (Object.keys(bySite).length > 1 ? h("optgroup", { label: store.sites[site]?.label ?? site }, zones.map(option)) : zones.map(option)));
  return h("label", { class: "field", for: "zone-choice" }, t("view.zone"),
    h("select", { id: "zone-choice", onchange: (event) => { location.hash = addressOf(view, event.target.value); } }, groups));
}

// What is shown where the address names no zone that there is; null where it does.
export function noZone(zone) {
  if (zone) return null;
  if (!store.loaded) return loading();
  if (!store.zones.length) return waiting();
  return h("section", {}, h("h2", {}, t("zone.unknown")), h("p", {}, t("zone.unknown.words")), h("ul", {}, store.zones.slice(0, 20).map((one) => h("li", {}, h("a", { href: addressOf("zone", one.key) }, one.label)))));
}

export function waiting() {
  const why = store.health?.reasons?.at(-1) ?? "";
  return h("section", {}, h("h2", {}, t("empty")), h("p", { class: "lead" }, t("empty.words")), why ? h("p", { class: "note" }, capital(reason(why))) : null,
    h("p", { class: "small soft" }, t("empty.hint")));
}

// Orders under way, by the key of an alert or group; why the last about an alert failed, while it is unchanged. Lists are drawn anew meanwhile.
const busy = new Set();
const failures = new Map();
const changeOf = (alert) => `${alert.id} ${alert.change}`;

function tellFailure(key, words, alerts) {
  const keys = [key, ...alerts.map((one) => (failures.set(changeOf(one), words), one.id))];
  for (const item of document.querySelectorAll("li[data-key]")) if (keys.includes(item.dataset.key)) item.lastElementChild.textContent = words;
}

// Gives an alert the focus back: its fold, its first button, or itself.
function focusOn(id) {
  const item = document.querySelector(`[data-alert="${CSS.escape(id)}"]`);
  (item?.closest("details:not([open])")?.querySelector("summary") ?? item?.querySelector("button") ?? item)?.focus();
}

// The same order for each; what changed meanwhile needs none, unless it is all that was meant.
async function give(verb, key, alerts, button) {
  if (busy.has(key)) return;
  busy.add(key);
  button.ariaDisabled = "true"; // "disabled" would take the focus from it
  let refused = "";
  tellFailure(key, "", alerts);
  try {
    for (const { id } of alerts) {
      try {
        if ((await order("POST", `alerts/${encodeURIComponent(id)}/${verb}`, verb === "mute" ? { hours: 8 } : undefined)) === null) break;
      } catch (error) {
        if (alerts.length === 1 || ![403, 404, 409].includes(error.status)) throw error;
        if (error.status === 403) refused = reason(error.message);
      }
    }
    if (refused) tellFailure(key, refused, alerts);
  } catch (error) {
    tellFailure(key, reason(error.message), alerts);
  }
  busy.delete(key);
  for (const one of document.querySelectorAll(`[data-order="${CSS.escape(key)}"]`)) one.ariaDisabled = null;
  if (document.activeElement === document.body) focusOn(alerts[0].id); // the list was drawn anew while the key was asked for
}

// The end of an entry: what can be ordered about its alerts, all in one state, and why that failed.
const ORDERS = { firing: ["acknowledge", "mute"], muted: ["acknowledge", "unmute"], acknowledged: ["mute"] };
export function orders(key, alerts, words = (verb) => verb) {
  const can = ORDERS[alerts[0].state];
  const button = (verb) => h("button", {
    type: "button", "data-key": `${key} ${verb}`, "data-order": key, "aria-disabled": busy.has(key) ? "true" : null, onclick: ({ target }) => give(verb, key, alerts, target),
  }, words(t(`alert.${verb}`)));
  return [can ? h("p", { class: "row left" }, can.map(button)) : null, h("p", { class: "small", role: "status" }, alerts.map((one) => failures.get(changeOf(one))).find((words) => words) ?? null)];
}

// Where an alert is: in words, as a link where its zone is there, and by which clock.
export function placeOf(alert) {
  const zone = store.zones.find((one) => one.site === alert.site && one.zone === alert.zone);
  const site = siteOf(alert);
  const isAlone = zone && Object.keys(store.sites).length === 1;
  const label = alert.zone === "_site" ? site.label : `${isAlone ? "" : `${site.label}, `}${zone?.label ?? alert.zone}`;
  return {
    label, link: zone ? h("a", { href: addressOf("zone", zone.key), "data-key": `${alert.id} zone` }, label) : label, timeZone: zone?.timezone ?? site.timezone ?? "UTC",
    read: zone?.stale ? zone.read_ms : null, now: zone?.origin_ms ?? Math.max(alert.seen_ms, ...store.zones.filter((one) => one.site === alert.site).map((one) => one.origin_ms)),
  };
}

export const severityBadge = (alert) => h("span", { class: `badge ${(alert.state === "firing" && { critical: "bad", warning: "warn" }[alert.severity]) || ""}` }, t(alert.state === "firing" ? `severity.${alert.severity}` : `alert.state.${alert.state}`));

export function alertItem(alert, { withZone = true } = {}) {
  const { link, timeZone, now, read } = placeOf(alert);
  const isOld = read && alert.state !== "resolved" && !OF_STATE.includes(alert.kind); // its chance is that of the last readings
  return h("li", { class: `alert ${alert.state === "resolved" ? "" : alert.severity}`, tabindex: "-1", "data-key": alert.id, "data-alert": alert.id, "data-rule": alert.rule, "data-state": alert.state },
    h("div", { class: "row" }, h("strong", {}, alertWords(alert, timeZone, now)), severityBadge(alert)),
    h("p", { class: "small soft" }, [
      withZone ? [link, " · "] : null,
      alert.muted_until_ms && alert.state === "muted" ? `${t("alert.until", { time: whenOf(alert.muted_until_ms, now, timeZone) })} · ` : null,
      whyWords(alert), whyWords(alert) ? " · " : null, t(`alert.since.${alert.state}`, { time: whenOf(alert.changed_ms, now, timeZone) }),
      isOld ? ` · ${t("zone.last", { time: whenOf(read, now, timeZone) })}` : null,
      alert.state === "resolved" && alert.came_true !== null ? ` · ${t(alert.came_true ? "alert.came" : "alert.false")}` : null,
    ]),
    orders(alert.id, [alert]));
}

export const OF_STATE = ["sensor_fault", "silent_metric", "stale_zone", "drift", "plan_not_followed"];

export const goesOn = (alert) => alert.came_ms !== null && alert.from_ms < alert.seen_ms;

export const kindWords = (alert) => capital(alert.rule === alert.kind ? t(`alert.kind.${alert.kind}`) : alert.rule);

// "below 12.0 °C": beyond which limit a rule warns; none where it is the dew point, at which vapour condenses anyway.
export function limitWords(kind, limit) {
  if (kind === "condensation" && !limit) return "";
  if (kind === "botrytis") return t("limit.botrytis", { limit: `${count(limit, Number.isInteger(limit) ? 0 : 1)}\u00a0${t("unit.h")}` });
  const metric = kind.startsWith("vpd") ? "vpd_kpa" : kind.startsWith("co2") ? "co2_ppm" : "air_temp_c";
  const isMean = kind.startsWith("mean"); // how far it is from what the light asks for
  const words = isMean ? "mean" : has(`limit.${kind}`) ? kind : ["frost", "co2_low"].includes(kind) ? "below" : "above";
  return t(`limit.${words}`, { limit: limitOf(kind === "mean_low" ? -limit : limit, metric, isMean || kind === "condensation") });
}

export function alertWords(alert, timeZone, now) {
  const limit = alert.limit === undefined ? "" : limitWords(alert.kind, alert.limit); // an alert of a release before has none
  const kind = kindWords(alert) + (limit && ` (${limit})`);
  if (OF_STATE.includes(alert.kind)) return kind;
  if (goesOn(alert)) { // its chance is that of more to come
    const [time, until] = [alert.from_ms, alert.until_ms].map((ms) => whenOf(ms, now, timeZone));
    const quiet_ms = alert.seen_ms - alert.until_ms; // rules look each half hour
    return t(quiet_ms < 0 && alert.state !== "resolved" ? "alert.now.until" : quiet_ms < 1_800_000 ? "alert.now" : "alert.now.past", { kind, time, until });
  }
  const from = whenOf(alert.from_ms, now, timeZone);
  const times = alert.until_ms > alert.from_ms ? t("alert.between", { from, to: whenOf(alert.until_ms, alert.from_ms, timeZone) }) : t("alert.at", { time: from });
  return `${kind}: ${percent(alert.chance)} ${times}`;
}

// Figures are those of when it is, or will be, most likely: of one that goes on and will last they are not what is measured now.
export function whyWords(alert) {
  const isAhead = goesOn(alert) && alert.until_ms > alert.seen_ms && alert.why.some(({ name: what }) => what !== "fact");
  const METRIC = { air: "air_temp_c", fruit: "leaf_temp_c", leaf: "leaf_temp_c", dew_point: "dew_point_c", humidity: "rh_pct", vpd: "vpd_kpa", co2: "co2_ppm" };
  const figure = ({ name: what, value, unit }) => (METRIC[what] ? number(value, METRIC[what]) : `${count(value, 1)}\u00a0${unit === "h" ? t("unit.h") : unit}`);
  return (isAhead ? t("why.ahead") : "") + alert.why.map((one) => (one.name === "fact" ? reason(one.label, one)
    : one.name === "beside_light" ? t(`why.light.${one.value > 0 ? "above" : "below"}`, { value: number(Math.abs(one.value), "air_temp_c", true) })
    : `${has(`why.${one.name}`) ? t(`why.${one.name}`) : metricName(METRIC[one.name])} ${figure(one)}`)).join(OF_STATE.includes(alert.kind) ? "; " : ", ");
}

const STATES = ["firing", "acknowledged", "muted"];
export const SEVERITIES = ["critical", "warning", "info"];
export const isPressing = (alert) => alert.state === "firing" && alert.severity !== "info";

// What fires, was seen or is quiet: the worst first, then the newest.
export const shownAlerts = () => Object.values(store.alerts).filter((one) => STATES.includes(one.state))
  .sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || b.changed_ms - a.changed_ms);

// Rules about the climate need half of a zone's last day (docs/alerts.md): without it "no alert" is no verdict.
export const youngNote = (keys) => (keys.some((key) => store.days[key] < 0.5) ? h("p", { class: "small soft" }, t("alerts.young")) : null);

export const foldedAlerts = (box, id, title, items) => (items.length
  ? h("details", { open: box.querySelector(`#${id}`)?.open, id }, h("summary", { "data-key": `${id} summary` }, title), h("ul", {}, items)) : null);

// Zones in the order in which to look at them: alerts, no readings, weak ones, by name.
export function byRisk(zones) {
  const score = (zone) => {
    const firing = alertsOf(zone.key).filter((one) => one.state === "firing");
    const worst = Math.min(9, ...firing.map((one) => SEVERITIES.indexOf(one.severity)));
    const chance = Math.max(0, ...alertsOf(zone.key).map((one) => one.chance ?? 0));
    return [worst, zone.stale ? 0 : zone.degraded.length ? 1 : 2, -chance];
  };
  const scored = zones.map((zone) => [score(zone), zone]);
  scored.sort(([a, one], [b, other]) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || one.label.localeCompare(other.label, undefined, { numeric: true }));
  return scored.map(([, zone]) => zone);
}

// Asks before something that others notice; resolves to whether to do it.
export function sure(what) {
  const dialog = byId("sure");
  byId("sure-what").textContent = what;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
