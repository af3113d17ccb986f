// What needs you now: alerts, zones by risk, sensors.
import { dayAndTime, timeOf } from "../clock.js";
import { h, put } from "../dom.js";
import { nightBrief, outlookOf } from "../outlook.js";
import { reason } from "../reasons.js";
import { addressOf, alertsOf, siteOf, store } from "../store.js";
import { capital, t } from "../words.js";
import { groupedItems } from "./alert_groups.js";
import { alertItem, badges, byRisk, foldedAlerts, isPressing, loading, reading, shownAlerts, waiting, youngNote } from "./parts.js";

export default function nowView(box) {
  const title = h("h2", {});
  const lead = h("p", { class: "lead", role: "status" }); // one element: else what is new is not read out
  const headline = h("section", {}, title, lead);
  const alerts = h("section", {});
  const sensors = h("section", {});
  const zones = h("div", { class: "grid", id: "zones" });
  const seen = new IntersectionObserver((entries) => entries.filter((one) => one.isIntersecting).forEach(({ target }) => tellNight(target)));
  const cards = new Map();
  let shape = "";

  async function tellNight(card) {
    const zone = store.zones.find((one) => one.key === card.dataset.key);
    if (!zone || zone.stale) return;
    const { origin } = card.dataset;
    const said = await outlookOf(zone.key, zone.origin_ms).then((outlook) => nightBrief(outlook, zone.timezone), (error) => t("outlook.unknown", { why: reason(error.message) }));
    const night = card.querySelector(".night");
    if (night && card.dataset.origin === origin) night.textContent = said; // else there is a newer one
  }

  function card(zone) {
    const firing = alertsOf(zone.key).filter(isPressing);
    const tone = zone.stale || firing.some((one) => one.severity === "critical") ? "bad" : zone.degraded.length || firing.length ? "warn" : "";
    const made = cards.get(zone.key) ?? h("a", { class: "card zone", href: addressOf("zone", zone.key), "data-key": zone.key });
    const night = made.querySelector(".night") ?? h("p", { class: "night small" }, zone.stale ? "" : "…");
    made.className = `card zone ${tone}`;
    put(made,
      h("h3", {}, h("span", {}, zone.label), h("span", {}, firing.length ? h("span", { class: "badge bad" }, t("alerts.count", { n: firing.length })) : null, " ", badges(zone))),
      Object.keys(store.sites).length > 1 ? h("p", { class: "small soft" }, siteOf(zone).label) : null,
      zone.stale ? h("p", { class: "small" }, capital(reason(zone.degraded.at(-1) ?? ""))) : h("p", { class: "now" }, reading(zone, "air_temp_c", "b"), reading(zone, "rh_pct"), h("span", { class: "soft" }, reading(zone, "co2_ppm"))),
      zone.stale ? null : night,
      h("p", { class: "small soft" }, t(zone.stale ? "zone.last" : "zone.row", { time: zone.stale ? dayAndTime(zone.read_ms, zone.timezone) : timeOf(zone.origin_ms, zone.timezone) })),
    );
    const before = made.dataset.origin;
    made.dataset.origin = zone.origin_ms;
    if (!before) {
      cards.set(zone.key, made);
      seen.observe(made);
    } else if (before !== made.dataset.origin && visible(made)) tellNight(made);
    return made;
  }

  function showHeadline() {
    const firing = Object.values(store.alerts ?? {}).filter((one) => one.state === "firing");
    const pressing = firing.filter(isPressing).length;
    const toKnow = firing.length - pressing;
    const stale = store.zones.filter((zone) => zone.stale).length;
    const weak = store.zones.filter((zone) => !zone.stale && zone.degraded.length).length;
    const facts = [
      ...(pressing ? [`${t("alerts.count", { n: pressing })}.`] : []), ...(stale ? [t("now.stale", { n: stale })] : []), ...(weak ? [t("now.weak", { n: weak })] : []),
    ];
    const held = Object.values(store.alerts ?? {}).filter((one) => ["acknowledged", "muted"].includes(one.state)).length;
    if (!facts.length && store.alerts) facts.push(held ? t("now.held", { n: held }) : t("now.quiet", { n: store.zones.length }));
    if (toKnow) facts.push(t("alerts.know", { n: toKnow }));
    title.textContent = t("view.now.title");
    const said = facts.join(" ") || "…";
    if (lead.textContent !== said) lead.textContent = said;
  }

  function showAlerts() {
    const title = h("div", { class: "row" }, h("h2", {}, t("alerts")), h("a", { href: "#/rules", "data-key": "rules" }, t("view.rules")));
    if (store.alerts === null) {
      put(alerts, title, h("p", { class: "soft" }, t("loading")));
      return;
    }
    const [toKnow, shown] = [shownAlerts().filter((one) => one.severity === "info"), shownAlerts().filter((one) => one.severity !== "info")];
    const folded = (...of) => foldedAlerts(alerts, ...of);
    const pending = Object.values(store.alerts).filter((one) => one.state === "pending");
    const over = Object.values(store.alerts).filter((one) => one.state === "resolved").sort((a, b) => b.changed_ms - a.changed_ms).slice(0, 10);
    put(alerts, title, shown.length ? h("ul", {}, groupedItems(alerts, shown)) : h("p", {}, t("alerts.quiet")), youngNote(store.zones.map((zone) => zone.key)),
      folded("info", t("alerts.know", { n: toKnow.length }), groupedItems(alerts, toKnow)), folded("pending", t("alerts.pending", { n: pending.length }), groupedItems(alerts, pending)), folded("over", t("alerts.over"), over.map((one) => alertItem(one))));
  }

  function showSensors() {
    const found = new Map();
    for (const zone of store.zones) for (const one of zone.degraded) found.set(one, [...(found.get(one) ?? []), zone]);
    const rows = [...found].map(([sentence, where]) => h("li", {}, h("strong", {}, where.length > 3 ? t("zones.count", { n: where.length }) : where.map((zone) => zone.label).join(", ")), ` – ${reason(sentence)}`));
    put(sensors, h("h2", {}, t("sensors")), rows.length ? h("ul", { class: "note warn" }, rows) : h("p", {}, t("sensors.well")));
  }

  function showAll() {
    if (!store.loaded || !store.zones.length) {
      put(box, store.loaded ? waiting() : loading());
      shape = "";
      return;
    }
    showHeadline();
    showAlerts();
    showSensors();
    const sorted = byRisk(store.zones);
    const made = sorted.map(card);
    const wanted = sorted.map((zone) => zone.key).join();
    if (wanted !== shape) put(zones, made);
    if (!shape) put(box, headline, alerts, h("h2", { class: "sr" }, t("zones")), zones, sensors);
    shape = wanted;
  }

  showAll();
  return {
    update: (kind) => ["zones", "alerts", "state"].includes(kind) && showAll(),
    close: () => seen.disconnect(),
  };
}

function visible(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}
