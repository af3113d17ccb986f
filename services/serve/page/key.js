// Keys, where reading or an order needs one: asked for when the API says so, and kept in these variables only. No storage,
// cookie or address ever has them; they are gone with the page.
import { byId } from "./dom.js";
import { t } from "./words.js";

const keys = { read: "", operate: "" };
const waiting = []; // who waits for a key to read with
const asking = []; // who waits for an operator's key: orders may be given faster than they are answered
const tell = (those, given) => those.splice(0).forEach((resolve) => resolve(given));

export const keyFor = (scope) => (scope === "operate" ? keys.operate || keys.read : keys.read || keys.operate);
let noticed = () => {};

// `call` is told when the question comes or goes.
export const onLock = (call) => {
  noticed = call;
};
export const isLocked = () => !byId("key-form").hidden;

// Shows the question for a reading key instead of everything else; resolves once one is given.
export function wantKey(refused) {
  keys.read = "";
  if (refused === keys.operate) keys.operate = "";
  const isNew = lock(true);
  if (refused) {
    byId("key").value = "";
    say("key-said", t("key.refused"));
  }
  if (refused || isNew) byId("key").focus();
  return new Promise((resolve) => waiting.push(resolve));
}

// The API took what was sent.
export function keyHolds() {
  if (!lock(false)) return;
  byId("key").value = "";
  say("key-said", "");
  byId("view").focus();
}

// Asks for an operator's key in a dialog; resolves to whether one was given.
export function wantOperatorKey(refused) {
  const dialog = byId("order-key");
  if (!dialog.open) {
    keys.operate = "";
    say("order-key-said", refused ? t("key.refused.order") : "");
    dialog.showModal();
    byId("operator-key").focus();
  }
  return new Promise((resolve) => asking.push(resolve));
}

export function listenForKeys() {
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("key").value.trim();
    if (!given) return;
    if (!/^[\x20-\x7e]+$/.test(given)) {
      wantKey(given); // no header can carry it
      return;
    }
    keys.read = given;
    tell(waiting);
  });
  byId("key").addEventListener("input", () => say("key-said", ""));
  const dialog = byId("order-key");
  byId("order-key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("operator-key").value.trim();
    if (!/^[\x20-\x7e]+$/.test(given)) {
      say("order-key-said", t("key.refused.order"));
      return;
    }
    keys.operate = given;
    answer(true);
  });
  byId("order-key-cancel").addEventListener("click", () => answer(false));
  dialog.addEventListener("cancel", () => answer(false));
}

function answer(given) {
  byId("order-key").close();
  byId("operator-key").value = "";
  tell(asking, given);
}

// False where that is so already.
function lock(wanted) {
  if (byId("key-form").hidden !== wanted) return false;
  byId("key-form").hidden = !wanted;
  for (const part of document.querySelectorAll("#view, .views, footer")) part.hidden = wanted;
  noticed();
  return true;
}

function say(id, text) {
  byId(id).textContent = text;
}
