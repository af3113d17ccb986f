// Elements by plain calls. Text goes in as text, never as markup.
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

// Replaces what a box holds, and gives the focus back to the element with the same id or data-key.
export function put(box, ...children) {
  const active = document.activeElement;
  const inside = active && active !== box && box.contains(active);
  const [key, id] = inside ? [active.dataset.key, active.id] : [];
  box.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  if (key) box.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  else if (id) box.querySelector(`#${CSS.escape(id)}`)?.focus();
  return box;
}

// Runs once after a pause without calls.
export function debounced(run, pause_ms) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...given), pause_ms);
  };
}
