// Models: which one forecasts, which would, why, and what happened; operators promote, go back, and train.
import { get, order } from "../api.js";
import { whenOf } from "../clock.js";
import { h, put } from "../dom.js";
import { eventWords, evidenceIn, evidenceWords } from "../evidence.js";
import { reason } from "../reasons.js";
import { store } from "../store.js";
import { count } from "../units.js";
import { capital, t } from "../words.js";
import { loading, timeWords, sure } from "./parts.js";

const WAITING = ["shadow", "challenger"];
const AGAIN_MS = 5000; // that a training runs, and when the next one comes, are no events
const NOISE = ["serving", "retrain"]; // told with the swap or the verdict

export default function modelsView(box) {
  let [status, closed, showAll, asked, busy] = [null, false, false, 0, false];
  const [said, cards] = [h("p", { role: "status", id: "order-said", class: "small" }), h("div", { class: "fields" })]; // one element is read out

  // An event comes before the table that it changes: of two answers, the one that was asked for last holds.
  async function load() {
    const mine = (asked += 1);
    const found = await get("status");
    if (closed || mine !== asked) return;
    status = found;
    show();
  }

  async function give(path, question) {
    if (!(await sure(question))) return;
    busy = true;
    said.textContent = "…"; // it may take minutes
    show();
    said.textContent = await order("POST", path).then((done) => (done ? t("order.done") : ""), (error) => reason(error.message));
    busy = false;
    await load().catch(() => closed || show());
  }

  function show() {
    const experts = [...new Set(["network", "trees", ...(status.components["retrainer-tuned"] ? ["tuned"] : []), ...status.models.map((one) => one.expert)])];
    const errors = status.errors.filter((one) => one.startsWith("retrainer"));
    if (!said.isConnected) put(box, h("section", {}, h("h2", {}, t("view.models")), h("p", {}, t("models.words")), said), cards);
    put(cards, errors.length ? h("ul", { class: "note bad" }, errors.map((one) => h("li", {}, reason(one)))) : null, experts.map((expert) => expertSection(expert, status.models.filter((one) => one.expert === expert), status.components[expert === "network" ? "retrainer" : `retrainer-${expert}`])), timeline());
  }

  // The view is drawn anew with each event: a fold stays open, and what has the focus keeps it.
  const fold = (key, title, attributes, ...children) => h("details", { ...attributes, "data-fold": key, open: box.querySelector(`[data-fold="${CSS.escape(key)}"]`)?.open },
    h("summary", { "data-key": `${key} summary` }, title), children);

  // While a question is open nothing here has the focus that a view drawn anew could keep, and afterwards a closed dialog has it for a moment.
  const isLost = (focused) => focused === document.body || focused.closest("dialog:not([open])");

  const orderButton = (expert, what, words, isUnderWay, act) => h("button", { type: "button", "data-key": `${expert} ${what}`, "aria-disabled": (isUnderWay || busy) && "true", onclick: async () => {
    if (isUnderWay || busy) return;
    await act();
    const found = (key) => box.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (isLost(document.activeElement)) (found(`${expert} ${what}`) ?? found(`${expert} orders`)?.querySelector("button"))?.focus();
  } }, words);

  function expertSection(expert, models, figures) {
    const champion = models.find((one) => one.stage === "champion");
    const previous = models.find((one) => one.stage === "previous");
    const rest = models.filter((one) => one !== champion && !WAITING.includes(one.stage));
    const label = t(`expert.${expert}`);
    return h("section", { "data-expert": expert, "data-key": expert },
      h("h2", {}, capital(label)),
      champion ? modelCard(champion, expert) : h("p", { class: "note" }, t(`models.none.${expert}`)),
      models.filter((one) => WAITING.includes(one.stage)).map((one) => modelCard(one, expert)),
      h("p", { class: "small soft" }, figures?.running ? t("models.running", { why: reason(figures.running.reason ?? "") }) : figures?.next_training ? t("models.next", { when: reason(figures.next_training) }) : ""),
      h("p", { class: "buttons", "data-key": `${expert} orders` },
        previous ? orderButton(expert, "back", t("models.back", { version: previous.version }), false, () => give(`models/rollback?expert=${expert}${champion ? `&leave=${encodeURIComponent(champion.version)}` : ""}`, t("sure.back", { version: previous.version }))) : null,
        orderButton(expert, "train", t("models.train"), Boolean(figures?.running), () => give(`models/retrain?expert=${expert}`, t("sure.train")))),
      rest.length ? fold(`${expert} older`, t("models.older", { n: rest.length }), {}, rest.slice(0, 30).map((one) => modelCard(one, expert))) : null);
  }

  function modelCard(model, expert) {
    const evidence = evidenceIn(model.reason);
    const verdict = reason(model.reason);
    const tone = { champion: "good", refused: "warn", withdrawn: "bad" }[model.stage] ?? "";
    const span = model.trained_on?.from_ms ? t("models.trained", { days: count((model.trained_on.to_ms - model.trained_on.from_ms) / 86_400_000, 1), until: timeWords(model.trained_on.to_ms) }) : "";
    const comparison = model.shadow ?? model.watch;
    return h("div", { class: "card model", "data-version": model.version, "data-key": `${expert} ${model.version}` },
      h("div", { class: "row" }, h("h3", {}, `${t("model.name", { version: model.version })} `, h("span", { class: `badge ${tone}` }, t(`stage.${model.stage}`))),
        model.stage !== "champion" && !model.pruned ? orderButton(expert, `promote ${model.version}`, t("models.promote"), false, () => give(`models/${encodeURIComponent(model.version)}/promote?expert=${expert}`, t("sure.promote", { version: model.version }))) : null),
      evidence.length ? h("ul", {}, evidence.map((one) => h("li", {}, capital(evidenceWords(one))))) : null,
      verdict !== model.reason ? h("p", {}, t("models.verdict", { why: verdict })) : model.reason && !evidence.length ? h("p", { lang: "en" }, model.reason) : null,
      comparison ? h("p", { class: "note small" }, t(model.shadow ? "models.shadow" : comparison.from_ms < 0 ? "models.watch.due" : "models.watch", { against: comparison.against === "online" ? t("against.online") : comparison.against, until: timeWords(comparison.until_ms) })) : null,
      h("p", { class: "small soft" }, [t("models.made", { time: timeWords(model.created_ms) }), span, model.forced ? t("models.forced") : "", model.pruned ? t("models.pruned") : ""].filter(Boolean).join(" · ")),
      evidence.length && model.reason ? fold(`${expert} gate ${model.version}`, t("models.gate"), { class: "small" }, h("p", { lang: "en" }, model.reason)) : null);
  }

  function timeline() {
    const events = status.events.filter((one) => showAll || !NOISE.includes(one.kind)).toReversed();
    return h("section", {}, h("div", { class: "row" }, h("h2", {}, t("timeline")), h("label", { class: "small" }, h("input", { type: "checkbox", checked: showAll, "data-key": "timeline all", onchange: (event) => {
      showAll = event.target.checked;
      show();
    } }), ` ${t("timeline.all")}`)), events.length ? h("ol", { class: "timeline", id: "timeline" }, events.slice(0, 60).map((one) => h("li", { class: one.kind === "swap" ? "swap" : ["error", "rollback"].includes(one.kind) ? "bad" : "" },
      h("span", {}, eventWords(one, timeWords(one.time_ms, "", (ms, timeZone) => whenOf(ms, Date.now(), timeZone))))))) : h("p", {}, t("timeline.none")));
  }

  put(box, loading());
  load().catch((error) => !closed && put(box, h("p", { class: "note warn" }, reason(error.message))));
  const again = setInterval(() => store.live && !document.hidden && load().catch(() => {}), AGAIN_MS);
  return {
    update: (kind) => (kind === "models" || (kind === "state" && store.live)) && load().catch(() => {}),
    close: () => {
      closed = true;
      clearInterval(again);
    },
  };
}
