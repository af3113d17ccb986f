// Asks the API. What it refuses is a Problem with the API's own sentence; no answer at all is Offline.
import { keyFor, keyHolds, wantKey, wantOperatorKey } from "./key.js";
import { learnCodes } from "./reasons.js";
import { t } from "./words.js";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? String(status));
    this.status = status;
    this.body = body;
  }
}

export class Offline extends Error {}

export const headers = (scope) => {
  const key = keyFor(scope);
  return { Accept: "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
};

const PATIENCE_MS = 150_000; // orders may take two minutes; of a connection that hangs nothing more comes

function lost(error) {
  throw error.name === "AbortError" ? error : new Offline(t("offline"));
}

const reach = (path, options) => fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS), ...options }).catch(lost);

async function contentOf(answer) {
  const body = await answer.json().catch((error) => (answer.ok ? lost(error) : {})); // it may break off in the middle
  learnCodes(body.codes);
  if (!answer.ok) throw new Problem(answer.status, body);
  return body;
}

// Whether it is the key that is refused. One that is limited to sites is taken, and what is about all of them refused: that
// names the sites.
async function refusesKey(answer) {
  if (answer.status !== 401 && answer.status !== 403) return false;
  const { sites } = await answer.clone().json().catch(() => ({}));
  return !sites;
}

// Reads; where that needs another key, waits for the person who has it.
export async function get(path, options = {}) {
  for (;;) {
    const sent = keyFor("read");
    const answer = await reach(path, { ...options, headers: { ...headers("read"), ...options.headers } });
    if (!(await refusesKey(answer))) {
      if (sent === keyFor("read")) keyHolds();
      return contentOf(answer);
    }
    if (sent === keyFor("read")) await wantKey(sent); // else the answer to a key of before: it says nothing of this one
  }
}

// Asks something with a body that readers may ask.
export const ask = (path, body) => get(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// Gives an order; asks for the operator's key where it is needed. Null where the person thought better of it. Why a key that is
// limited to sites may not give it, is told as any other refusal.
export async function order(method, path, body) {
  let refused = false;
  for (;;) {
    const sent = keyFor("operate");
    const answer = await reach(path, {
      method, headers: { ...headers("operate"), ...(body && { "Content-Type": "application/json" }) }, body: body && JSON.stringify(body),
    });
    if (!(await refusesKey(answer))) return contentOf(answer);
    if (sent !== keyFor("operate")) continue; // another was given meanwhile
    refused = Boolean(sent) && refused;
    if (!(await wantOperatorKey(refused))) return null;
    refused = true;
  }
}
