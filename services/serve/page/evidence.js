// What the gate or the watch said of a model, as figures: "0.990 (0.985 to 0.994) of v2" is a share of another's error.
import { reason } from "./reasons.js";
import { count } from "./units.js";
import { has, t } from "./words.js";

const RATIO = /([\d.]+) \(([\d.]+) to ([\d.]+)\) of (?:the )?([\w-]+(?: naive)?)/g;

export const evidenceIn = (text) => [...(text ?? "").matchAll(RATIO)].map(([, ratio, low, high, against]) => ({ against, ratio: Number(ratio), low: Number(low), high: Number(high) }));

const share = (ratio) => {
  const value = Math.abs(100 * (1 - ratio));
  return `${count(value, value < 10 ? 1 : 0)}\u00a0%`;
};
const rival = (against) => (has(`against.${against}`) ? t(`against.${against}`) : against);

const isEither = ({ low, high }) => low < 1 && high > 1; // nobody knows whose error is smaller

// "1.0 % less error than v2 (0.6 % to 1.5 %)"
export function evidenceWords(found) {
  const { against, ratio, low, high } = found;
  const than = rival(against);
  if (isEither(found)) return t("errs.about", { than, less: share(low), more: share(high) });
  const [least, most] = ratio <= 1 ? [high, low] : [low, high];
  return t(ratio <= 1 ? "errs.less" : "errs.more", { share: share(ratio), than, low: share(least), high: share(most) });
}

// Of a swap: how much less than what it replaced the new one errs; null where it is not said.
export function gain(text, before) {
  const found = evidenceIn(text);
  return found.find((one) => one.against === before) ?? (before === "online" ? found.find((one) => ["climatology", "untuned"].includes(one.against)) : null) ?? null;
}

// An event of the learning loop as people would say it; `time` is when it was.
export function eventWords(event, time) {
  const version = event.version ?? "";
  const what = t(`expert.${/trees|tuned/.exec(`${version} ${event.before}`)?.[0] ?? "network"}`); // "online" is of any
  const values = { time, version, before: event.before === "online" ? t("against.online") : event.before ?? "", what };
  if (version === "online" && event.before) return t("event.out", values);
  if (event.kind === "swap") {
    const better = gain(event.reason, event.before);
    if (!better || isEither(better)) return t(event.before === "online" ? "event.first" : "event.swap", values);
    return t(event.before === "online" ? (better.ratio <= 1 ? "event.first.gain" : "event.first") : better.ratio <= 1 ? "event.swap.less" : "event.swap.more", { ...values, share: share(better.ratio), than: rival(better.against) });
  }
  const isError = event.kind === "error"; // that of a training names what began it, too
  const why = reason((!isError && event.trigger) || event.message || event.reason || "");
  const key = isError && event.trigger ? "event.failed" : `event.${event.kind}`;
  if (!has(key)) return `${time}: ${event.kind} ${version} ${reason(event.message ?? event.reason ?? "")}`.trim();
  return t(key, { ...values, seconds: count(Math.round(event.seconds ?? 0)), why, trigger: reason(event.trigger ?? "") });
}
