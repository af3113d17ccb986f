// What you are warned of: the rules of a site or of one of its zones, as files and the API have them, to be seen and changed.
import { get, order } from "../api.js";
import { dayAndTime } from "../clock.js";
import { h, put } from "../dom.js";
import { reason } from "../reasons.js";
import { addressOf, store, zoneOf } from "../store.js";
import { count, meant, percent, shown, unitOf } from "../units.js";
import { capital, has, spoken, t } from "../words.js";
import { limitWords, noZone, zonePicker } from "./parts.js";
import { timeList } from "./time_list.js";

const WARMTH = "air_temp_c";
const AGAIN_MS = 60_000; // that somebody else changed a rule is no event
const ABSOLUTE = ["frost", "heat"]; // others of °C are differences
const SEVERITIES = ["info", "warning", "critical"];
const OF_COURSE = ["limit", "night_limit", "hysteresis", "lead_h", "chance"];
const ONLY = { fruit_mm: ["condensation", "botrytis"], wet_rh_pct: ["botrytis"], base_c: ["mean_low", "mean_high"], per_100_j_cm2: ["mean_low", "mean_high"] };
// By site, or site/zone: what is typed and not saved, in the API's units, or {text} where it is no number; it outlives a change of
// language. "__proto__" may be a name.
const drafts = Object.create(null);

// Of an option: how the API's number is shown, and back; and what it is counted in.
function measureOf(rule, option) {
  if (option === "chance") return { unit: "%", show: (value) => 100 * value, mean: (value) => value / 100 };
  const units = { for_min: "min", keep_min: "min", lead_h: "h", fruit_mm: "mm", wet_rh_pct: "%", base_c: "°C", per_100_j_cm2: "°C" };
  const unit = units[option] ?? rule.unit;
  if (unit !== "°C") return { unit: unit === "h" ? t("unit.h") : unit, show: (value) => value, mean: (value) => value };
  const isDifference = option === "base_c" ? false : option === "hysteresis" || option === "per_100_j_cm2" || !ABSOLUTE.includes(rule.kind);
  const sign = rule.kind === "mean_low" && option.endsWith("limit") ? -1 : 1; // its words say how far below
  return { unit: unitOf(WARMTH), show: (value) => sign * shown(value, WARMTH, isDifference), mean: (value) => meant(sign * value, WARMTH, isDifference) };
}

const decimalSign = () => (1.5).toLocaleString(spoken())[1];

// What is typed as a number: null for nothing, NaN for what is none. A browser's own field drops the comma that its maker's language
// does not have: 12,5 was 125. Comma and point both stand before decimals, but not where they may stand for thousands.
export function numberIn(text) {
  const [, sign, whole, mark, places] = /^([-+−]?)(\d*)(?:([.,])(\d*))?$/.exec(text.trim()) ?? [];
  if (!whole && !places) return text.trim() ? NaN : null;
  if (mark && places.length === 3 && /^[1-9]\d{0,2}$/.test(whole)) return NaN; // Mexico writes 1,500, Spain 1.500
  return (sign === "-" || sign === "−" ? -1 : 1) * Number(`${whole || 0}.${places || 0}`);
}

function whyNone(text) {
  const [, whole, places] = /^(\d+)[.,](\d{3})$/.exec(text.trim()) ?? [];
  return whole ? t("rules.which", { whole: whole + places, part: String(Number(`${whole}.${places}`)).replace(".", decimalSign()) }) : t("rules.number");
}

const tidy = (value, places) => Number(value.toFixed(places));
const optionsOf = (rule) => [
  ...(rule.sign ? OF_COURSE : rule.kind === "plan_not_followed" ? ["limit"] : []), "for_min", "keep_min", ...Object.keys(ONLY).filter((option) => ONLY[option].includes(rule.kind)),
];
// A field's id: rules with letters that no id may hold have different ones.
const idOf = (rule, option) => `${rule.name.replace(/[^\w-]/gu, (one) => `-${one.codePointAt(0).toString(16)}-`)}-${option}`;
// The message about a rule's limit: that of its kind where the number is no plain value, such as a distance to the dew point.
const limitLabel = (rule) => `rule.limit.${has(`rule.limit.${rule.kind}`) ? rule.kind : rule.sign}`;
const nameOf = (rule) => capital(rule.name === rule.kind ? t(`alert.kind.${rule.kind}`) : rule.name);

export default function rulesView(box, wanted) {
  const key = wanted || Object.keys(store.sites)[0] || "";
  const [site, ...rest] = key.split("/");
  const zone = rest.join("/"); // whose rules these are; "": those of the site
  const asked = `rules?${zone ? "zone" : "site"}=${encodeURIComponent(key)}`;
  let [said, closed, errors, message, waits, askedAt] = [null, false, {}, "", true, 0];
  const draft = () => (drafts[key] ??= { rules: Object.create(null) });
  const isTouched = () => Object.keys(draft()).length > 1 || Object.keys(draft().rules).length > 0;
  const bar = h("div", { class: "savebar", role: "region", "aria-label": t("rules.save") });

  async function load() {
    askedAt = Date.now();
    said = await get(asked);
    if (!closed) show();
  }

  // What another browser, a program or a file changed meanwhile; never under what somebody types.
  const isIdle = () => !closed && !isTouched() && !box.querySelector(":is(input, select):focus");
  async function renew() {
    askedAt = Date.now();
    const before = said;
    const found = await get(asked);
    if (!isIdle() || said !== before || JSON.stringify(found) === JSON.stringify(said)) return;
    said = found;
    show();
  }

  // Of a rule's option: what is typed, else what holds.
  const valueOf = (rule, option) => {
    const typed = draft().rules[rule.name];
    return typed && option in typed ? typed[option] : rule[option];
  };

  function type(rule, option, value, before) {
    const typed = (draft().rules[rule.name] ??= {});
    if (JSON.stringify(value) === JSON.stringify(before)) delete typed[option];
    else typed[option] = value;
    if (!Object.keys(typed).length) delete draft().rules[rule.name];
    showBar();
  }

  // Crop and stage; null where a zone has those of its site.
  const chosenOf = (member) => (zone ? said.zones[zone]?.[member] ?? null : said[member]);

  function pick(member, value) {
    if (value === chosenOf(member)) delete draft()[member];
    else draft()[member] = value;
    showBar();
  }

  function showBar() {
    const n = Object.keys(draft().rules).length + Object.keys(draft()).length - 1;
    if (bar.dataset.says === `${n} ${message}` && bar.isConnected) return; // what is said once is not said at each key
    bar.dataset.says = `${n} ${message}`;
    bar.hidden = !n && !message;
    put(bar, h("p", { role: "status", id: "rules-said" }, n ? [message, " ", t("rules.unsaved", { n })] : message),
      n ? [h("button", { type: "submit", class: "primary", "data-key": "save" }, t("rules.save")), h("button", { type: "button", "data-key": "discard", onclick: () => {
        delete drafts[key];
        [errors, message] = [{}, ""];
        show();
      } }, t("rules.discard"))] : null);
  }

  // What was sent is saved; what was typed meanwhile is not, and stays.
  function forget(sent) {
    const now = draft();
    for (const member of ["crop", "stage"]) if (now[member] === sent[member]) delete now[member];
    for (const [name, options] of Object.entries(sent.rules)) {
      const typed = now.rules[name];
      for (const option of typed ? Object.keys(options ?? {}) : []) if (JSON.stringify(typed[option]) === JSON.stringify(options[option])) delete typed[option];
      if (typed === options || (typed && !Object.keys(typed).length)) delete now.rules[name];
    }
  }

  async function save(event) {
    event.preventDefault();
    const wrong = box.querySelector("input:invalid");
    if (wrong) {
      wrong.closest("details").open = true;
      wrong.reportValidity();
      return;
    }
    const sent = JSON.parse(JSON.stringify(draft()));
    const { rules, ...members } = sent;
    [errors, message] = [{}, ""];
    try {
      const found = await order("PATCH", asked, { ...members, changes: rules });
      if (!found) return;
      said = { ...found, changed_by: "api", changed_ms: null }; // the log says in a moment when
      forget(sent);
      message = t("rules.saved");
    } catch (error) {
      message = takeErrors(error.body?.errors ?? []) || reason(error.message);
    }
    if (closed) return;
    show();
    box.querySelector("[aria-invalid]")?.focus();
  }

  // The API's own sentences, each to its field; what fits none is given back.
  function takeErrors(found) {
    const rest = [];
    const [at, whose] = zone ? [`zones.${zone}`, `zone ${zone}: `] : ["changes", ""];
    for (const { where, message: sentence } of found) {
      const rule = said.rules.find((one) => `${at}.${one.name}` === where);
      const words = rule ? sentence.replace(`${whose}${rule.name}: `, "") : sentence;
      const option = /^limits\b/.test(words) ? "limit" : /^\w+/.exec(words)?.[0];
      if (rule && [...optionsOf(rule), "hours"].includes(option)) errors[`${rule.name} ${option}`] = wordsOf(rule, option, words);
      else rest.push(sentence);
    }
    return rest.join(" ") || (found.length ? t("rules.wrong") : "");
  }

  // "chance is 2; it must be between 0.01 and 0.99" in the units of the field; other sentences as they are.
  function wordsOf(rule, option, words) {
    const { unit, show: asShown } = measureOf(rule, option);
    const of = (value) => `${value.toLocaleString(spoken()).replace("-", "−")} ${unit}`.trim();
    const [low, high] = (/it must be between (\S+) and ([-\d.]+)/.exec(words) ?? []).slice(1).map((one) => asShown(Number(one))).sort((a, b) => a - b);
    if (high !== undefined) return t("rules.between", { low: of(low), high: of(high) });
    const least = /it must be ([\d.]+) or more/.exec(words);
    return least ? t("rules.least", { low: of(asShown(Number(least[1]))) }) : option === "hours" ? t("rules.hours") : capital(words);
  }

  function field(rule, option, input, label) {
    const id = idOf(rule, option);
    const error = errors[`${rule.name} ${option}`];
    input.id = id;
    input.dataset.key = `${rule.name} ${option}`;
    if (error) {
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", `${id}-said`);
    }
    return h("div", {}, h("label", { class: "field", for: id }, label, input), error ? h("p", { class: "small wrong", id: `${id}-said`, role: "alert" }, error) : null);
  }

  function number(rule, option) {
    const { unit, show: asShown, mean } = measureOf(rule, option);
    const [value, before] = [valueOf(rule, option), rule[option]];
    const written = value?.text ?? (value === null || value === undefined ? "" : String(tidy(asShown(value), 3)).replace(".", decimalSign()));
    const mayBeBelow0 = ABSOLUTE.includes(rule.kind) && option.endsWith("limit"); // keys for decimals have no minus on some phones
    const wrong = h("p", { class: "small wrong", role: "alert" });
    const take = () => {
      const typed = numberIn(input.value);
      wrong.textContent = Number.isNaN(typed) ? whyNone(input.value) : "";
      input.setCustomValidity(wrong.textContent);
      type(rule, option, wrong.textContent ? { text: input.value } : typed === null ? null : tidy(mean(typed), 6), before);
    };
    const input = h("input", { type: "text", inputmode: mayBeBelow0 ? null : "decimal", autocomplete: "off", value: written, oninput: take });
    if (value?.text) take(); // it is shown again, and may be a number in the language of now
    const label = option === "limit" ? limitLabel(rule) : `rule.${option}`;
    const made = field(rule, option, input, `${t(label)}${unit ? ` (${unit})` : ""}`);
    made.append(wrong);
    return made;
  }

  function hours(rule) {
    const now = valueOf(rule, "hours") ?? ["", ""];
    const inputs = now.map((value, place) => timeList(value, () => {
      const both = inputs.map((one) => one.value);
      type(rule, "hours", both.some(Boolean) ? both : null, rule.hours);
    }, { more: [""], ...(place && { from: "00:15", to: "24:00" }) }));
    inputs[1].id = idOf(rule, "hours-to");
    return h("div", { class: "row left" }, field(rule, "hours", inputs[0], t("rule.hours.from")), h("label", { class: "field", for: inputs[1].id }, t("rule.hours.to"), inputs[1]));
  }

  const choice = (options, value, act) => h("select", { onchange: (event) => act(event.target.value) }, options.map(([id, words]) => h("option", { value: id, selected: id === value }, words)));

  function briefOf(rule) {
    return [
      rule.sign ? limitWords(rule.kind, rule.limit) : "",
      rule.sign ? t("rule.says.chance", { chance: percent(rule.chance), hours: count(rule.lead_h, Number.isInteger(rule.lead_h) ? 0 : 1) }) : "",
      rule.hours ? t("span", { low: rule.hours[0], high: rule.hours[1] }) : "", t(`severity.${rule.severity}`),
    ].filter(Boolean).join(" · ");
  }

  function ruleCard(rule, open) {
    const typed = draft().rules[rule.name];
    const isOff = typed === null ? false : valueOf(rule, "off");
    const isWrong = Object.keys(errors).some((one) => one.startsWith(`${rule.name} `));
    const isOfZone = zone && Object.hasOwn(said.changes, rule.name);
    const isChanged = rule.changed.length || rule.off || rule.is_own;
    const goes = isOfZone ? "rules.goes.zone" : rule.is_own ? "rules.goes" : "rules.goes.back";
    const back = isOfZone ? "rules.back.zone" : rule.is_own ? "rules.remove" : "rules.back";
    const badge = (words, tone = "") => [" ", h("span", { class: `badge ${tone}` }, words)];
    const severity = choice(SEVERITIES.map((one) => [one, t(`severity.${one}`)]), valueOf(rule, "severity"), (value) => type(rule, "severity", value, rule.severity));
    return h("details", { class: "card rule", "data-rule": rule.name, open: open || isWrong },
      h("summary", { "data-key": `${rule.name} card` }, h("strong", {}, nameOf(rule)), rule.off ? badge(t("rules.off")) : null, isOfZone ? badge(t("rules.of.zone"), "good") : isChanged ? badge(t(zone ? "rules.of.site" : "rules.changed"), zone ? "" : "good") : null,
        isWrong ? badge(t("rules.wrong.badge"), "bad") : null, h("span", { class: "small soft" }, ` ${rule.off ? "" : briefOf(rule)}`)),
      typed === null ? h("p", { class: "note" }, t(goes)) : h("div", { class: "rule-fields" },
        rule.is_own && !zone ? null : h("label", { class: "row left" }, h("input", { type: "checkbox", checked: !isOff, "data-key": `${rule.name} off`, onchange: (event) => type(rule, "off", event.target.checked ? (rule.off && !zone ? null : false) : true, rule.off) }), t("rules.on")),
        optionsOf(rule).map((option) => number(rule, option)), rule.sign ? hours(rule) : null, field(rule, "severity", severity, t("rule.severity"))),
      (zone ? isOfZone : isChanged) ? h("p", { class: "buttons" }, h("button", { type: "button", "data-key": `${rule.name} back`, disabled: typed === null, onclick: () => {
        draft().rules[rule.name] = null;
        show();
      } }, t(back))) : null);
  }

  // A zone that has left may have rules still.
  const linkTo = (one) => (zoneOf(one) ? h("a", { href: addressOf("rules", one) }, zoneOf(one).label) : one.slice(site.length + 1));

  function show() {
    const open = [...box.querySelectorAll("details.rule[open]")].map((one) => one.dataset.rule);
    const timeZone = store.sites[site]?.timezone ?? "UTC";
    const word = (member, one) => (has(`${member}.${one}`) ? t(`${member}.${one}`) : one);
    const chosen = (member, label, of) => {
      const now = member in draft() ? draft()[member] : chosenOf(member);
      const options = of.map((one) => [one, word(member, one)]);
      if (zone) options.unshift(["", chosenOf(member) ? t("rules.as.site") : `${t("rules.as.site")}: ${word(member, said[member])}`]);
      const made = choice(options, now ?? "", (value) => pick(member, value || null));
      made.id = `rules-${member}`;
      return h("label", { class: "field", for: made.id }, t(label), made);
    };
    const sites = Object.values(store.sites);
    const own = Object.keys(said.zones).map((name) => `${site}/${name}`);
    const { scrollX, scrollY } = window;
    put(box, h("form", { id: "rules", novalidate: true, onsubmit: save },
      h("section", {}, h("div", { class: "row" }, h("h2", {}, zone ? t("rules.title", { zone: zoneOf(key)?.label ?? zone }) : t("view.rules")), zone ? zonePicker("rules", key) : sites.length > 1 ? h("label", { class: "field", for: "rules-site" }, t("rules.site"),
        h("select", { id: "rules-site", onchange: (event) => { location.hash = `#/rules/${encodeURIComponent(event.target.value)}`; } }, sites.map((one) => h("option", { value: one.site, selected: one.site === site }, one.label)))) : null),
      zone ? h("p", {}, t("rules.zone"), " ", h("a", { href: addressOf("rules", site) }, t("rules.all", { site: store.sites[site]?.label ?? site })))
        : own.length ? h("p", { id: "zones-with-rules" }, t("rules.zones", { n: own.length }), " ", own.map((one, n) => [n ? ", " : "", linkTo(one)])) : null,
      h("p", { class: "small soft" }, t(zone ? "rules.words.zone" : "rules.words")), h("div", { class: "row left" }, chosen("crop", "rules.crop", said.crops), chosen("stage", "rules.stage", said.stages)),
      h("p", { class: "small soft" }, t(`rules.by.${said.changed_by}`, { time: said.changed_ms === null ? t("now") : dayAndTime(said.changed_ms, timeZone) }))),
      bar, said.rules.map((rule) => ruleCard(rule, open.includes(rule.name))),
      h("section", {}, h("details", { id: "rules-file", open: box.querySelector("#rules-file")?.open }, h("summary", { "data-key": "file" }, t("rules.toml")), h("pre", { tabindex: "0", lang: "en" }, said.toml)))));
    showBar();
    scrollTo(scrollX, scrollY);
  }

  const warn = (event) => isTouched() && event.preventDefault(); // the browser asks before it leaves
  addEventListener("beforeunload", warn);
  function start() {
    const instead = zone ? noZone(zoneOf(key)) : site ? null : noZone();
    waits = Boolean(instead);
    if (instead) put(box, instead);
    else load().catch((error) => {
      waits = true;
      if (!closed) put(box, h("section", {}, h("h2", {}, t("view.rules")), h("p", { class: "note warn" }, reason(error.message))));
    });
  }

  start();
  return {
    update: (kind) => {
      if (!["zones", "state"].includes(kind)) return;
      if (waits) start();
      else if (said && isIdle() && Math.abs(Date.now() - askedAt) >= AGAIN_MS) renew().catch(() => {});
    },
    unsaved: isTouched,
    discard: () => delete drafts[key],
    stay: () => show(), // a list has what was chosen and not gone to
    close: () => {
      closed = true;
      removeEventListener("beforeunload", warn);
    },
  };
}
