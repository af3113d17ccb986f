const those = (children) => children.flat(Infinity).filter((child) => (child ?? false) !== false);

// Elements by plain calls. Text goes in as text, never as markup.
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if ((value ?? false) === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...those(children));
  return made;
}

export const byId = (id) => document.getElementById(id);

// Where the focus is in a box, as selectors: the element by its data-key or id, then by their data-keys those that it stands in.
function places(active, box) {
  const of = ({ dataset }) => (dataset.key ? `[data-key="${CSS.escape(dataset.key)}"]` : "");
  const found = [of(active) || (active.id && `#${CSS.escape(active.id)}`)];
  for (let one = active.parentElement; one !== box; one = one.parentElement) found.push(of(one));
  return found;
}

// Replaces what a box holds, and gives the focus back to the same element. Where that has gone, as a button that was pressed,
// the first button of what it stood in has it, or that itself. A table with a data-key stays as far to the side as it was.
export function put(box, ...children) {
  const active = document.activeElement;
  const kept = active && active !== box && box.contains(active) ? places(active, box) : [];
  const sides = [...box.querySelectorAll(".scroll[data-key]")].map((one) => [one.dataset.key, one.scrollLeft]).filter(([, side]) => side);
  box.replaceChildren(...those(children));
  for (const [key, side] of sides) {
    const found = box.querySelector(`.scroll[data-key="${CSS.escape(key)}"]`);
    if (found) found.scrollLeft = side;
  }
  for (const [outwards, place] of kept.entries()) {
    const found = place && box.querySelector(place);
    if (found) ((outwards && found.querySelector("button")) || found).focus({ preventScroll: true });
    if (box.contains(document.activeElement)) break;
  }
  return box;
}

// As `put`, but where all would look the same it stays: what is selected in it, and a list that is open.
export function renew(box, ...children) {
  const made = put(box.cloneNode(false), ...children);
  if (!made.isEqualNode(box)) put(box, ...made.childNodes);
}

export function debounced(run, pause_ms) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...given), pause_ms);
  };
}

// One at a time, also where answers take long: asked for the `anew` while one is under way, it runs once more after that.
export function single(run) {
  let [now, next] = [null, null];
  const call = (anew = true) => {
    if (!now) return (now = run().finally(() => { now = null; }));
    return anew ? (next ??= now.catch(() => {}).then(() => {
      next = null;
      return call();
    })) : now;
  };
  return call;
}
