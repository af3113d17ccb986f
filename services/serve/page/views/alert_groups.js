// Alerts of one rule in many zones as one entry: a cold night is one thing to look at, not one a zone.
import { order, Problem } from "../api.js";
import { h } from "../dom.js";
import { t } from "../words.js";
import { alertItem, alertWords, goesOn, kindWords, OF_STATE, ORDERS, placeOf, SEVERITIES, severityBadge, whyWords } from "./parts.js";

const FEWEST = 3; // two entries are as short as a group of two

const likelihood = (alert) => (goesOn(alert) ? 2 : alert.chance ?? 0);
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

// By a group's key: why its last order failed, for as long as one of those alerts is in it; and whether an order is under
// way. Lists are drawn anew meanwhile.
const failures = new Map();
const busy = new Set();

function tell(key, words, alerts) {
  failures.set(key, { words, ids: alerts.map(({ id }) => id) });
  const item = document.querySelector(`[data-group="${CSS.escape(key)}"]`);
  if (item) item.lastElementChild.textContent = words;
}

// An order for each alert that is in the group now. What has changed by itself meanwhile needs none.
async function orderAll(verb, key, alerts, button) {
  if (busy.has(key)) return;
  busy.add(key);
  tell(key, "", alerts);
  button.ariaDisabled = "true"; // "disabled" would take the focus from it
  try {
    for (const { id } of alerts) {
      try {
        if ((await order("POST", `alerts/${encodeURIComponent(id)}/${verb}`, t(`alert.${verb}.what`), verb === "mute" ? { hours: 8 } : undefined)) === null) break;
      } catch (error) {
        if (!(error instanceof Problem && [404, 409].includes(error.status))) throw error;
      }
    }
  } catch (error) {
    tell(key, error.message, alerts);
  }
  busy.delete(key);
  for (const one of document.querySelectorAll(`[data-group="${CSS.escape(key)}"] > p > button`)) one.ariaDisabled = null;
  if (document.activeElement === document.body) focusOn(alerts[0].id);
}

// Where an alert is now: itself, or the group that it is folded in.
function focusOn(id) {
  const item = document.querySelector(`[data-alert="${CSS.escape(id)}"]`);
  (item?.closest("details")?.querySelector("summary") ?? item)?.focus();
}

function groupItem(box, key, alerts) {
  const [worst] = alerts;
  const { label, link, timeZone, now } = placeOf(worst);
  if (link !== label) link.dataset.key = `${key} worst`; // its own entry has such a link, too
  const isOfState = OF_STATE.includes(worst.kind);
  const failure = failures.get(key);
  const press = (verb) => h("button", { type: "button", "data-key": `${key} ${verb}`, "aria-disabled": busy.has(key) ? "true" : null, onclick: ({ target }) => orderAll(verb, key, alerts, target) }, t("alerts.each", { verb: t(`alert.${verb}`), n_: alerts.length }));
  return h("li", { class: `alert ${worst.severity}`, tabindex: "-1", "data-key": key, "data-group": key },
    h("details", { open: box.querySelector(`[data-group="${CSS.escape(key)}"] > details`)?.open },
      h("summary", { "data-key": `${key} summary` }, h("strong", {}, `${kindWords(worst)}: ${t("zones.count", { n: alerts.length })}`), " ", severityBadge(worst)),
      h("ul", {}, alerts.map((one) => alertItem(one)))),
    h("p", { class: "small soft" }, isOfState
      ? [alerts.slice(0, 3).map((one) => placeOf(one).label).join(", "), alerts.length > 3 ? " …" : ""]
      : [t("alerts.worst"), link, " · ", alertWords(worst, timeZone, now), whyWords(worst) ? ` · ${whyWords(worst)}` : ""]),
    h("p", { class: "row left" }, ORDERS[worst.state].map(press)),
    h("p", { class: "small", role: "status" }, failure && alerts.some((one) => failure.ids.includes(one.id)) ? failure.words : null));
}
