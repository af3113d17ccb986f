// Alerts of one rule in many zones as one entry.
import { h } from "../dom.js";
import { t } from "../words.js";
import { alertItem, alertWords, goesOn, kindWords, OF_STATE, orders, placeOf, SEVERITIES, severityBadge, whyWords } from "./parts.js";

const FEWEST = 3; // two entries are as short as a group of two

const likelihood = (alert) => (goesOn(alert) && alert.until_ms > alert.seen_ms - 1_800_000 ? 2 : alert.chance ?? 0); // one that is past has the chance of more
const worse = (a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || likelihood(b) - likelihood(a) || a.from_ms - b.from_ms;

// Items of a list: each group stands where its first alert does. `box` holds the list as it is shown now.
export function groupedItems(box, alerts) {
  const groups = new Map();
  for (const one of alerts) {
    const key = one.zone === "_site" ? one.id : `${one.kind} ${one.rule} ${one.state}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups].flatMap(([key, found]) => (found.length < FEWEST ? found.map((one) => alertItem(one)) : groupItem(box, `group ${key}`, found.sort(worse))));
}

function groupItem(box, key, alerts) {
  const [worst] = alerts;
  const { label, link, timeZone, now } = placeOf(worst);
  if (link !== label) link.dataset.key = `${key} worst`; // its own entry has such a link, too
  const isOfState = OF_STATE.includes(worst.kind);
  return h("li", { class: `alert ${worst.severity}`, tabindex: "-1", "data-key": key, "data-group": key },
    h("details", { open: box.querySelector(`[data-group="${CSS.escape(key)}"] > details`)?.open },
      h("summary", { "data-key": `${key} summary` }, h("strong", {}, `${kindWords(worst)}: ${t("zones.count", { n: alerts.length })}`), " ", severityBadge(worst)),
      h("ul", {}, alerts.map((one) => alertItem(one)))),
    h("p", { class: "small soft" }, isOfState
      ? [alerts.slice(0, 3).map((one) => placeOf(one).label).join(", "), alerts.length > 3 ? " …" : ""]
      : [t("alerts.worst"), link, " · ", alertWords(worst, timeZone, now), whyWords(worst) ? ` · ${whyWords(worst)}` : ""]),
    orders(key, alerts, (verb) => t("alerts.each", { verb, n_: alerts.length })));
}
