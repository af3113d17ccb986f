// System: what comes in and how fast, how far behind, what was kept out and what to do, stores and gateways.
import { get } from "../api.js";
import { h, put, renew } from "../dom.js";
import { reason } from "../reasons.js";
import { count, duration } from "../units.js";
import { capital, has, t } from "../words.js";
import { figures, loading, table, timeWords } from "./parts.js";

const EVERY_MS = 5000;
const SILENT_S = 30;
const REFUSED = ["rejected", "values_refused", "plans_refused", "plan_metrics_refused"]; // by reason; all of it is in the table of what was kept out
const TELLING = ["shard", "gateway", "runtime"]; // these tell their figures each second

export default function systemView(box) {
  let [status, letters, closed, timer, round] = [null, null, false, 0, 0];
  const [state, intake, kept, parts] = Array.from({ length: 4 }, () => h("section", {}));
  const raw = h("section", {}, h("details", { id: "raw" }, h("summary", {}, t("system.all")), h("p", { class: "row left" }, ["status", "metrics", "docs"].map((one) => h("a", { href: one }, `/${one}`)))));
  const sum = (parts, field) => parts.reduce((total, one) => total + (one[field] ?? 0), 0);
  const named = (prefix) => Object.entries(status.components).filter(([name]) => name === prefix || name.startsWith(`${prefix}-`));

  // Since when a part has told nothing, where that is too long: what is known of it is of before. Else nothing.
  function silence(name) {
    const age_s = status.component_age_s?.[name] ?? 0;
    return age_s > SILENT_S && TELLING.includes(name.split("-")[0]) ? t("part.silent", { time: duration(age_s / 60) }) : "";
  }

  async function load() {
    status = await get("status");
    if (round % 3 === 0) letters = await get("deadletters?newest=10").catch((error) => ({ problem: error.message }));
    round += 1;
    if (!closed) show();
  }

  function show() {
    const shards = named("shard").map(([, found]) => found);
    const rejected = shards.flatMap((one) => REFUSED.flatMap((field) => Object.values(one[field] ?? {}))).reduce((a, b) => a + b, 0);
    const [site, newest] = shards.flatMap((one) => Object.entries(one.watermark_ms ?? {})).reduce((best, one) => (one[1] > best[1] ? one : best), ["", 0]);
    const stream = Math.max(0, ...shards.flatMap((one) => Object.values(one.stream_ms ?? {})));
    const { health } = status;
    const silent = Object.keys(status.components).filter(silence);
    const rate = sum(named("shard").filter(([name]) => !silence(name)).map(([, found]) => found), "samples_per_s"); // over a few seconds: sensors of a small house mostly report in none of them
    const fails = status.errors.length + silent.length > 0;
    renew(state, h("h2", {}, t("view.system")), h("p", { class: `note ${health.ready && !fails ? "good" : "warn"}`, id: "ready" }, health.ready ? t(fails ? "system.weak" : "system.well") : `${t("system.waiting")} ${reason(health.reasons.at(-1) ?? "")}`),
      fails ? h("ul", { class: "note bad" }, silent.map((name) => h("li", {}, `${name}: ${silence(name)}`)), status.errors.map((one) => h("li", { lang: "en" }, one))) : null);
    renew(intake, h("h3", {}, t("system.intake")), figures([
      { title: t("system.rate"), figure: rate < 0.05 ? t("system.none") : t("system.persecond", { value: count(rate, 1) }), words: t("system.taken", { n: count(sum(shards, "accepted")) }) },
      { title: t("system.lag"), figure: count(sum(shards, "backlog")), words: t(sum(shards, "backlog") > 1000 ? "system.lag.behind" : "system.lag.none") },
      { title: t("system.row"), figure: newest ? timeWords(newest, site) : "–", words: stream > newest && newest ? t("system.row.words", { time: duration((stream - newest) / 60e3) }) : "" },
      { title: t("system.twice"), figure: count(sum(shards, "duplicates")), words: t("system.twice.words") }, { title: t("system.late"), figure: count(sum(shards, "late")), words: t("system.late.words") },
      { title: t("system.refused"), figure: count(rejected), words: t("system.refused.words") },
    ]));
    renew(kept, lettersShown());
    renew(parts, h("h3", {}, t("system.parts")), table("parts", t("system.parts"), "parts", [["system.part", "text"], ["system.state", "text"], ["system.does", "text"]], partRows()));
    if (!state.isConnected) put(box, state, intake, kept, parts, raw);
  }

  function partRows() {
    const row = (name, error, does, silent = "") => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "text" }, error || silent ? h("span", { class: "badge bad" }, t("part.fails")) : h("span", { class: "badge good" }, t("part.works"))), h("td", { class: "text" }, does, silent ? h("div", { class: "small" }, silent) : null, error ? h("div", { class: "small", lang: "en" }, error) : null));
    const rows = [];
    for (const [name, found] of named("gateway")) {
      const waits = found.buffered_records ? ` ${t("gateway.waits", { n: count(found.buffered_records) })}` : "";
      rows.push(row(t("part.gateway"), found.error || found.last_error || (found.connected === false ? t("gateway.away") : ""), t("gateway.words", { messages: count(found.messages ?? 0), queued: count(found.queued ?? 0), refused: count(found.refused ?? 0) }) + waits, silence(name)));
    }
    for (const [name, found] of named("shard")) {
      rows.push(row(t("part.shard", { name }), found.last_error, t("shard.words", { zones: t("zones.count", { n: found.zones?.length ?? 0 }), rows: count(found.zone_rows ?? 0), forecasts: count(found.forecasts ?? 0) }) + (found.repaired ? ` ${found.repaired}` : ""), silence(name)));
      const series = found.series;
      if (series && (series.sent || series.queued || series.last_error)) rows.push(row(t("part.series"), series.last_error, t("series.words", { sent: count(series.sent), queued: count(series.queued), dropped: count(series.dropped) }), silence(name)));
    }
    rows.push(row(t("part.history"), "", t("history.words")));
    for (const [id, report] of Object.entries(status.slot.replicas ?? {})) rows.push(row(t("part.replica", { id }), report.error, t("replica.words", { version: report.version === "online" ? t("against.online") : report.version })));
    for (const [name, found] of named("retrainer")) rows.push(row(t(name.replace("-", ".").replace("retrainer", "part.retrainer")), found.last_error || found.registry_error, found.running ? t("retrainer.runs") : t("models.next", { when: reason(found.next_training ?? "–") })));
    for (const [name, found] of named("runtime")) rows.push(row("HTTP", found.error, found.kind === "haproxy" ? "HAProxy" : `Ray Serve${found.reason ? ` (${found.reason})` : ""}`, silence(name)));
    return rows;
  }

  const siteIn = (topic) => topic.split("/")[2]; // hothouse/v1/SITE/...

  // What was kept out, and what a person can do about each reason.
  function lettersShown() {
    const title = h("h3", {}, t("letters"));
    if (letters.problem) return [title, h("p", { class: "note warn" }, reason(letters.problem))];
    if (!letters.kept_out.length) return [title, h("p", {}, t("letters.none"))];
    return [title, table("letters", t("letters"), "letters", [["letters.why", "text"], ["letters.topic", "text"], ["letters.count"], ["letters.newest", "text"], ["letters.do", "text"]],
      letters.kept_out.slice(0, 50).map((one) => h("tr", {}, h("th", { scope: "row" }, has(`letter.${one.reason}`) ? t(`letter.${one.reason}`) : capital(one.reason.replaceAll("_", " "))),
        h("td", { class: "text" }, h("code", {}, one.topic)), h("td", {}, count(one.count)), h("td", { class: "text" }, timeWords(one.newest_ms, siteIn(one.topic)), h("div", { class: "small soft", lang: "en" }, one.detail)),
        h("td", { class: "text" }, t(has(`letter.do.${one.reason}`) ? `letter.do.${one.reason}` : "letter.do")))))];
  }

  function again() {
    timer = setTimeout(() => load().catch(() => {}).finally(() => !closed && again()), EVERY_MS);
  }

  put(box, loading());
  load().catch((error) => !closed && put(box, h("p", { class: "note warn" }, reason(error.message)))).finally(() => !closed && again());
  return {
    update: (kind) => kind === "state" && store.live && load().catch(() => {}),
    close: () => {
      closed = true;
      clearTimeout(timer);
    },
  };
}
