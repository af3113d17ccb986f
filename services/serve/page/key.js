// The key, where reading needs one: asked for when the API says so, and kept in this variable only. No storage, cookie
// or address ever has it; it is gone with the page.
let key = "";
let onKey = () => {};
const byId = (id) => document.getElementById(id);

// Fetches with the key that is there. Throws where the API wants another one, and shows the question for it.
export async function fetchWithKey(path) {
  const sent = key;
  const headers = { Accept: "application/json", ...(sent && { Authorization: `Bearer ${sent}` }) };
  const answer = await fetch(path, { headers });
  const isWanted = answer.status === 401 || answer.status === 403;
  if (sent === key) isWanted ? want(sent) : accept(); // else an answer to a key of before: it says nothing of this one
  if (isWanted) throw new Error("a key is needed");
  return answer;
}

// `then` is called each time a key was given.
export function useKeys(then) {
  onKey = then;
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("key").value.trim();
    if (!given) return;
    key = given;
    if (/^[\x20-\x7e]+$/.test(given)) onKey();
    else want(given); // no header can carry it
  });
  byId("key").addEventListener("input", () => say(""));
}

function want(refused) {
  key = "";
  const isNew = lock(true);
  if (refused) {
    byId("key").value = "";
    say("This key is not accepted.");
  }
  if (refused || isNew) byId("key").focus();
}

function accept() {
  if (!lock(false)) return;
  byId("key").value = "";
  say("");
  document.querySelector("main").focus();
}

// Shows the question instead of everything else, or the other way round; false where that is so already.
function lock(isLocked) {
  if (byId("key-form").hidden !== isLocked) return false;
  byId("key-form").hidden = !isLocked;
  for (const part of document.querySelectorAll("main, footer")) part.hidden = isLocked;
  return true;
}

function say(text) {
  byId("key-said").textContent = text;
}
