// The frame around the views: which one the address names, the state of the connection, what the person has chosen.
import { byId, h, put, renew } from "./dom.js";
import { isLocked, listenForKeys, onLock } from "./key.js";
import { choose, fahrenheit, language, languages, theme } from "./prefs.js";
import { reason } from "./reasons.js";
import { addressOf, begin, listen, store, zoneOf } from "./store.js";
import { whenOf } from "./clock.js";
import { learn, speak, t } from "./words.js";
import { sure } from "./views/parts.js";

// Address -> file of the view and of the words that it alone says; those of one zone keep the zone when the person goes
// from one to the other. Each is loaded when it is first opened.
const VIEWS = { now: "now", zone: "zone", whatif: "what_if", quality: "quality", rules: "rules", models: "models", system: "system" };
const wordsOf = (name) => [VIEWS[name], ...(name === "system" ? ["models"] : [])]; // it says when the next training is
const load = (name) => Promise.all([import(`./views/${VIEWS[name]}.js`), ...wordsOf(name).map((part) => learn(`.${part}`))]).then(([found]) => found.default);
const OF_ZONE = ["zone", "whatif", "quality"];
const LISTED = Object.keys(VIEWS).filter((name) => name !== "rules"); // it is reached from alerts
const UPGRADE_MS = 600_000; // so long servers of two versions may answer in turn
let open = { name: "", key: "", view: null, isThere: false }; // whether its zone is
let lastKey = "";
let kept = ""; // the address of what is open
let place = 0; // where it is in the browser's history, which counts up: its own entries have no number

// The zone that was looked at last, unless it has left.
const usualKey = () => (store.loaded && !zoneOf(lastKey) ? "" : lastKey);

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody typed a % that stands for itself
  }
}

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (name === "rules") return { name, key: rest.join("/") || Object.keys(store.sites)[0] || "" };
  if (Object.hasOwn(VIEWS, name)) return { name, key: rest.length >= 2 ? `${rest[0]}/${rest.slice(1).join("/")}` : "" };
  return name.includes("/") ? { name: "zone", key: name } : { name: "now", key: "" }; // an address of before: #site/zone
}


function showFrame() {
  byId("skip").textContent = t("skip");
  const names = LISTED.map((name) => h("li", {}, h("a", {
    href: addressOf(name, OF_ZONE.includes(name) ? usualKey() : ""), "aria-current": open.name === name ? "page" : null, "data-key": name,
  }, t(`view.${name}`))));
  byId("views").setAttribute("aria-label", t("views"));
  renew(byId("views"), h("ul", {}, names)); // else it would be gone between press and release
  const labels = Object.values(store.sites).map((site) => site.label);
  byId("place").textContent = labels.length > 3 ? t("sites", { n: labels.length }) : labels.join(" · ");
  const said = isLocked() ? ["", t("key.needed")] : store.live === null ? ["", t("state.connecting")] : store.live ? ["live", t("state.live")] : ["lost", t("state.lost")];
  byId("state").dataset.is = said[0];
  if (byId("state").textContent !== said[1]) byId("state").textContent = said[1];
  document.body.toggleAttribute("data-lost", store.live === false);
  const banner = [];
  if (store.live === false) banner.push(h("p", { class: "bad" }, t(store.loaded ? "lost.since" : "lost.never", { time: whenOf(store.lostAt, Date.now(), Intl.DateTimeFormat().resolvedOptions().timeZone) })));
  else if (store.problem) banner.push(h("p", { class: "warn" }, reason(store.problem)));
  else if (store.otherSince && Date.now() - store.otherSince >= UPGRADE_MS) banner.push(h("p", { class: "soft small" }, t("page.old"))); // not by itself: it would forget its key
  if (byId("banner").innerText !== banner.map((one) => one.innerText).join()) put(byId("banner"), banner);
  const where = zoneOf(open.key);
  document.title = `${t(`view.${open.name || "now"}`)}${where ? ` – ${where.label}` : ""} – Hothouse`;
}

function showChoices() {
  byId("menu-title").textContent = t("menu");
  const radio = (id, title, options, now, take) => h("label", { class: "field", for: id }, title,
    h("select", { id, onchange: (event) => take(event.target.value) }, options.map(([value, text]) => h("option", { value, selected: value === now }, text))));
  put(byId("choices"),
    radio("language", t("menu.language"), languages.map((one) => [one, t(`language.${one}`)]), language(), (value) => changed({ language: value })),
    radio("warmth", t("menu.units"), [["c", "°C"], ["f", "°F"]], fahrenheit() ? "f" : "c", (value) => changed({ fahrenheit: value === "f" })),
    radio("theme", t("menu.theme"), ["auto", "light", "dark"].map((one) => [one, t(`theme.${one}`)]), theme(), (value) => changed({ theme: value })),
    h("a", { href: "docs" }, t("menu.docs")),
  );
}

function showWords() {
  for (const [id, key] of Object.entries({
    "key-label": "key.label", "key-show": "key.show", "key-hint": "key.hint", "order-key-title": "order.key.title", "order-key-why": "order.key.why", "operator-key-label": "order.key.label",
    "order-key-go": "order.go", "order-key-cancel": "cancel", "sure-yes": "sure.yes", "sure-no": "cancel",
  })) byId(id).textContent = t(key);
  byId("foot").textContent = t("foot");
}

function shade() {
  const root = document.documentElement;
  root.dataset.theme = theme() !== "auto" ? theme() : matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.shade = getComputedStyle(root).getPropertyValue("--ground").trim(); // charts are drawn again when it changes
}

async function changed(choice) {
  choose(choice);
  if (choice.language) await speak(language());
  shade();
  showWords();
  showChoices();
  show(true);
}

// Another view was asked for while something is not saved: that stays, unless the person says otherwise. The browser goes back to
// its entry, so that no other one is lost.
async function leave() {
  const view = open.view;
  if (byId("sure").open) {
    history.replaceState(history.state, "", kept);
    return;
  }
  const steps = (history.state?.place ?? place + 1) - place; // a link makes a new entry
  history.go(-steps);
  const goes = await sure(t("rules.leave"));
  if (open.view !== view) return;
  if (!goes) {
    view.stay();
    return;
  }
  view.discard();
  history.go(steps);
}

// The focus that the view before had goes to the same control of the next one once that is there, until then to the view
// itself; from where a person has moved it meanwhile it is not taken.
let looking = null;
function refocus(box, id) {
  box.focus({ preventScroll: true });
  if (!id) return;
  looking = new MutationObserver((_, observer) => {
    if (document.activeElement !== box) observer.disconnect();
    else box.querySelector(`#${CSS.escape(id)}`)?.focus({ preventScroll: true });
  });
  looking.observe(box, { childList: true, subtree: true });
}

function show(anew) {
  let { name, key } = route();
  if (!anew && open.view?.unsaved?.() && (open.name !== name || open.key !== key)) {
    leave();
    return;
  }
  if (history.state?.place === undefined) history.replaceState({ place: place + 1 }, "");
  ({ place } = history.state);
  if (OF_ZONE.includes(name)) {
    if (!key) key = usualKey() || store.zones[0]?.key || "";
    if (key) lastKey = key;
  }
  if (!anew && open.name === name && open.key === key) return;
  const isOther = open.name !== name;
  const isFirst = !open.name;
  open.view?.close?.();
  looking?.disconnect();
  const box = byId("view");
  const had = box.contains(document.activeElement) ? document.activeElement : null;
  box.replaceChildren();
  if (isOther || anew) scrollTo(0, 0);
  const opened = (open = { name, key, view: null, isThere: Boolean(zoneOf(key)) });
  kept = location.hash || "#/now";
  showFrame();
  if ((had || (isOther && !isFirst)) && document.activeElement === document.body) refocus(box, had?.id);
  load(name).then((view) => {
    if (opened === open) opened.view = view(box, key);
  }, () => {
    if (opened !== open) return;
    put(box, h("p", { class: "note bad" }, t("lost.never")));
    opened.view = { update: () => store.live && show(true) }; // once somebody answers
  });
}

listen((kind, what) => {
  const { name, key } = route();
  if (kind === "zones" && (name === "rules" ? open.key !== key : OF_ZONE.includes(name) && !key)) show(); // what to show is known by now
  const isThere = Boolean(zoneOf(open.key));
  if (open.isThere && !isThere) show(true); // its zone has left: the view begins again, and says so
  open.isThere = isThere;
  showFrame();
  open.view?.update?.(kind, what);
});

async function start() {
  load(route().name).catch(() => {}); // it comes while words do
  shade();
  while (!(await speak(language()).then(() => true, () => false))) await new Promise((again) => setTimeout(again, 2000)); // over a poor network
  listenForKeys();
  onLock(showFrame);
  showWords();
  showChoices();
  show();
  addEventListener("hashchange", () => show());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    shade();
    if (theme() === "auto") show(true);
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // its address would be another view
    byId("view").focus();
  });
  document.addEventListener("click", (event) => {
    if (!byId("menu").contains(event.target)) byId("menu").open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && byId("menu").open) {
      byId("menu").open = false;
      byId("menu-title").focus();
    }
  });
  setInterval(showFrame, 30_000);
  begin();
  setTimeout(() => Object.keys(VIEWS).forEach((name) => load(name).catch(() => {})), 3000); // all are there if the server goes
}

start();
