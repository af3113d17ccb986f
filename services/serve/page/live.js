// Follows /events by fetch: an EventSource carries no key. A stream that ends is asked for again with the id of
// its last event; one that breaks, or is silent for too long, is told as a lost connection. A page that nobody has looked at for a
// minute holds none: of all its tabs together a browser has six connections to a server.
import { headers } from "./api.js";
import { keyFor, wantKey } from "./key.js";

const SILENT_MS = 40_000; // the server says something every 15 s
const LONGEST_WAIT_MS = 10_000;
const UNSEEN_MS = 60_000;

let cut = null; // of the open stream
let heard = 0; // when it said something: by the device's clock, which goes on while it sleeps; timers do not
const cutSilent = () => cut && Math.abs(Date.now() - heard) > SILENT_MS && cut.abort();

const pause = (ms, woken) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  woken.now = () => {
    clearTimeout(timer);
    resolve();
  };
});

// Calls `tell(kind, data)` for each event and `state(isLive)` when the connection comes or goes.
export async function follow(tell, state) {
  const woken = { now: () => {} };
  const wake = () => [cutSilent(), woken.now()];
  for (const name of ["online", "pageshow"]) addEventListener(name, wake);
  let [isUnseen, unseen] = [false, 0];
  const look = () => {
    clearTimeout(unseen);
    if (document.visibilityState === "visible") {
      isUnseen = false;
      wake();
    } else unseen = setTimeout(() => { isUnseen = true; cut?.abort(); }, UNSEEN_MS);
  };
  document.addEventListener("visibilitychange", look);
  if (document.visibilityState !== "visible") look();
  addEventListener("pagehide", () => cut?.abort()); // pages that are kept hold none
  setInterval(cutSilent, 5000);
  let last = "";
  let before = "";
  let failed = 0;
  for (;;) {
    while (isUnseen) await pause(UNSEEN_MS, woken);
    const sent = keyFor("read");
    if (sent !== before) last = ""; // another key may read other sites: all is asked for anew
    before = sent;
    try {
      const answer = await open(last);
      if (answer.status === 401 || answer.status === 403) {
        if (sent === keyFor("read")) await wantKey(sent);
        continue;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      await read(answer, (kind, data, id) => {
        if (id) last = id;
        if (failed || kind === "hello") state(true);
        failed = 0;
        tell(kind, data);
      });
      await pause(200 + Math.random() * 800, woken); // streams end after a while by themselves
    } catch {
      if (isUnseen) continue;
      failed += 1;
      if (failed > 1 || !last) state(false); // once may be a server that begins again
      await pause(Math.min(LONGEST_WAIT_MS, 500 * 2 ** Math.min(failed, 5)) * (0.7 + 0.6 * Math.random()), woken);
    }
  }
}

async function open(last) {
  cut = new AbortController();
  heard = Date.now();
  const asked = { ...headers("read"), Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
  return fetch("events", { headers: asked, cache: "no-store", signal: cut.signal });
}

async function read(answer, take) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    heard = Date.now();
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      try {
        one(message, take);
      } catch (error) {
        console.error(error); // a stream that is asked for again would bring the same message, for ever
      }
    }
  }
}

function one(message, take) {
  const fields = { event: "", data: [], id: "" };
  for (const line of message.split("\n")) {
    const [, name, value] = /^([a-z]+): ?(.*)$/s.exec(line) ?? [];
    if (name === "data") fields.data.push(value);
    else if (name in fields) fields[name] = value;
  }
  if (fields.event) take(fields.event, JSON.parse(fields.data.join("\n")), fields.id);
}
