// A chart over time: lines, bands, nights, now, a readout under the pointer. uPlot draws; the clock is the greenhouse's.
import { axisLabel, dayAndTime } from "./clock.js";
import { h } from "./dom.js";
import { count, placesOf } from "./units.js";
import { t } from "./words.js";

const { uPlot } = globalThis;
const HOUR_S = 3600;

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const faint = (name, share) => `color-mix(in srgb, ${colour(name)} ${share}%, transparent)`;

// Tables of [times in s, values ...] become one with all times; what another series has between is no gap.
function joined(lines) {
  const tables = lines.map((line) => [line.time, ...line.values]);
  return tables.length ? uPlot.join(tables, tables.map((table) => table.slice(1).map(() => 2))) : [[]];
}

// A line: {id, name, colour, time: [ms], values, dash, width, step, scale, fill} or {…, low, high} for one with a band.
export class TimeChart {
  constructor(box, { label, timeZone, height, onRange, sync, places = 1, unit = "", minSpan = 2, second = null, floor = null, hidden = [], onDraw }) {
    this.options = { label, timeZone, height, onRange, sync, places, unit, minSpan, second, floor, onDraw };
    this.plot = h("div", { class: "plot", tabindex: "0", role: "application", "aria-roledescription": t("chart"), "aria-label": label });
    this.readout = h("ul", { class: "legend" });
    this.at = h("p", { class: "at", "aria-hidden": "true" });
    this.words = h("p", { class: "sr", "aria-live": "polite" });
    box.replaceChildren(this.at, this.plot, this.readout, this.words);
    this.hidden = new Set(hidden);
    this.lines = [];
    this.nights = [];
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.plot);
    this.plot.addEventListener("keydown", (event) => this.key(event));
    for (const kind of ["down", "move", "up", "cancel"]) this.plot.addEventListener(`pointer${kind}`, (event) => event.pointerType === "touch" && this.touch(kind, event));
    this.plot.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  fit() {
    const width = this.plot.clientWidth;
    if (this.u && width && width !== this.u.width) this.u.setSize({ width, height: this.options.height });
  }

  close() {
    this.watch.disconnect();
    this.u?.destroy();
  }

  describe(label) {
    this.plot.setAttribute("aria-label", label);
  }

  // Draws these lines over [from, to] in ms; `nights` are [[from, to]], `now` is a moment.
  show(lines, { from, to, nights = [], now = null, marks = [] }) {
    Object.assign(this, { nights, now, marks, wanted: null });
    this.range = [from / 1000, to / 1000];
    const shape = JSON.stringify([lines.map((line) => [line.id, line.name, line.colour, line.dash, Boolean(line.low), line.scale]), this.options.unit, document.documentElement.dataset.shade]);
    this.lines = lines;
    const data = joined(lines.map((line) => ({
      time: line.time.map((ms) => ms / 1000),
      values: line.low ? [line.values, line.low, line.high] : [line.values],
    })));
    if (shape === this.shape) {
      this.u.batch(() => {
        this.u.setData(data, false);
        this.u.setScale("x", { min: this.range[0], max: this.range[1] });
      });
    } else {
      this.shape = shape;
      this.make(data);
    }
    this.legend(this.u.cursor.idx);
  }

  make(data) {
    this.u?.destroy();
    const { timeZone, height, sync, places, minSpan, second, floor } = this.options;
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const series = [{}];
    const bands = [];
    this.places = []; // of each line, where its series is
    for (const line of this.lines) {
      const at = series.length;
      this.places.push(at);
      const shared = { scale: line.scale ?? "y", points: { show: false }, show: !this.hidden.has(line.id) };
      series.push({
        ...shared, stroke: colour(line.colour), width: line.width ?? 1.8, dash: line.dash ? [5, 4] : undefined, spanGaps: false,
        paths: line.step ? uPlot.paths.stepped({ align: 1 }) : undefined, fill: line.fill ? faint(line.colour, 14) : undefined,
        points: { show: Boolean(line.points), size: 6, fill: colour(line.colour) },
      });
      if (line.low) {
        series.push({ ...shared, stroke: "transparent", width: 0 }, { ...shared, stroke: "transparent", width: 0 });
        bands.push({ series: [at + 2, at + 1], fill: faint(line.colour, line.faint ?? 24) });
      }
    }
    const bounds = (u, low, high) => {
      if (low === null || high === null || !Number.isFinite(low)) return [floor ?? 0, (floor ?? 0) + minSpan];
      const pad = Math.max((high - low) * 0.07, (minSpan - (high - low)) / 2, 0.01);
      return [floor === null ? low - pad : Math.max(floor, low - pad), high + pad];
    };
    const y = (scale, side, grid) => ({
      ...axis, scale, side, size: 46, space: 34, grid: grid ? axis.grid : { show: false },
      values: (u, splits) => splits.map((value) => count(value, splits.length > 1 ? placesOf(splits[1] - splits[0]) : 0)),
    });
    const options = {
      width: this.plot.clientWidth || 600, height, series, bands, padding: [8, second ? 0 : 46, 0, 0],
      tzDate: (s) => uPlot.tzDate(new Date(s * 1000), timeZone), // splits of the axis fall on the greenhouse's hours
      legend: { show: false },
      scales: {
        x: { time: true, range: (u, low, high) => (this.dragged ? [low, high] : this.range) },
        y: { range: bounds }, ...(second && { [second]: { range: second === "light" ? (u, low, high) => [0, Math.max(100, (high ?? 0) * 1.08)] : bounds } }),
      },
      axes: [
        { ...axis, space: 64, size: 34, values: (u, splits) => splits.map((s) => axisLabel(s * 1000, timeZone, splits.length > 1 ? splits[1] - splits[0] : HOUR_S)) },
        y("y", 3, true), ...(second ? [y(second, 1, false)] : []),
      ],
      cursor: { sync: sync && { key: sync, setSeries: false, scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, points: { size: 6 }, focus: { prox: -1 } },
      hooks: {
        drawClear: [(u) => this.under(u)],
        draw: [(u) => this.over(u), () => this.options.onDraw?.()],
        setCursor: [(u) => this.legend(u.cursor.idx)],
        setSelect: [(u) => {
          if (u.select.width < 8) return;
          const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          this.want(from, to);
        }],
      },
    };
    this.u = new uPlot(options, data, this.plot);
  }

  // Nights, behind everything.
  under(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.fillStyle = faint("night", 9);
    if (this.range[1] - this.range[0] < 20 * 86400) {
      for (const [set, rise] of this.nights) {
        const left = Math.max(bbox.left, u.valToPos(set / 1000, "x", true));
        const right = Math.min(bbox.left + bbox.width, u.valToPos(rise / 1000, "x", true));
        if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
      }
    }
    ctx.restore();
  }

  over(u) {
    const { ctx, bbox } = u;
    const marks = [...(this.now ? [[this.now, "accent", t("now")]] : []), ...this.marks];
    ctx.save();
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    for (const [ms, tone, words] of marks) {
      const x = Math.round(u.valToPos(ms / 1000, "x", true));
      ctx.strokeStyle = ctx.fillStyle = colour(tone);
      ctx.lineWidth = devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (words) ctx.fillText(words, x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
    }
    ctx.restore();
  }

  // Names, colours and the values under the pointer.
  legend(index) {
    const { places, unit } = this.options;
    const at = index === null || index === undefined ? null : this.u.data[0][index];
    const value = (line, n) => {
      if (at === null) return "";
      const column = this.u.data[this.places[n]];
      const known = nearest(column, this.u.data[0], index, line.step ? Infinity : 1900);
      if (known === null) return "";
      const said = `${count(column[known], line.places ?? places)} ${line.unit ?? unit}`;
      return line.low ? `${said} (${count(this.u.data[this.places[n] + 1][known], places)} – ${count(this.u.data[this.places[n] + 2][known], places)})` : said;
    };
    const shown = JSON.stringify([this.shape, [...this.hidden]]);
    if (this.legendShape !== shown) {
      this.legendShape = shown;
      this.readout.replaceChildren(...this.lines.map((line) => h("li", {}, h("button", {
        type: "button", "aria-pressed": String(!this.hidden.has(line.id)), "data-key": line.id, onclick: () => this.toggle(line.id),
      }, swatch(line), h("span", {}, line.name), h("b", {})))));
    }
    this.lines.forEach((line, n) => {
      this.readout.children[n].querySelector("b").textContent = value(line, n);
    });
    this.at.textContent = at === null ? "\u00a0" : dayAndTime(at * 1000, this.options.timeZone);
    return at === null ? "" : `${this.at.textContent}: ${this.lines.map((line, n) => `${line.name} ${value(line, n)}`).filter((one) => /\d/.test(one)).join(", ")}`;
  }

  toggle(id) {
    if (!this.hidden.delete(id)) this.hidden.add(id);
    const n = this.lines.findIndex((line) => line.id === id);
    const count_ = this.lines[n].low ? 3 : 1;
    for (let k = 0; k < count_; k += 1) this.u.setSeries(this.places[n] + k, { show: !this.hidden.has(id) });
    this.legend(this.u.cursor.idx);
    this.readout.children[n].querySelector("button").focus();
  }

  // A finger draws as a mouse does: the browser tells the chart of a tap only. Where the page scrolls instead, nothing is drawn.
  touch(kind, event) {
    if (event.target !== this.u.over || !event.isPrimary) return;
    const movementX = 1; // uPlot takes a mouse that has not moved for none
    const say = (what, { clientX, clientY }) => this.u.over.dispatchEvent(new MouseEvent(`mouse${what}`, { clientX, clientY, movementX, bubbles: true }));
    if (kind === "down") this.down = event;
    if (kind !== "cancel") say(kind, event);
    else for (const what of ["move", "up"]) say(what, this.down); // back to where it began, in all charts of the zone
  }

  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    const at = this.u.posToVal(event.offsetX - this.u.bbox.left / devicePixelRatio, "x");
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
  }

  // `onRange` says what will be shown; until it is, who asks again goes on from there.
  want(from, to) {
    const taken = this.options.onRange?.(from * 1000, to * 1000);
    this.wanted = taken && [taken.from / 1000, taken.to / 1000];
  }

  zoom(factor, at) {
    const [from, to] = this.wanted ?? this.range;
    const middle = at ?? (from + to) / 2;
    this.want(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }

  // Arrows move the readout, with shift the span; plus and minus zoom.
  key(event) {
    const [from, to] = this.wanted ?? this.range;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && event.shiftKey) this.want(from + (step * (to - from)) / 4, to + (step * (to - from)) / 4);
    else if (step) this.point(step);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else return;
    event.preventDefault();
  }

  point(step) {
    const times = this.u.data[0];
    const [from, to] = this.range;
    const inside = times.map((time, index) => [time, index]).filter(([time]) => time >= from && time <= to);
    if (!inside.length) return;
    const size = Math.max(1, Math.round(inside.length / 60));
    const before = this.pointed === undefined ? inside.findIndex(([time]) => time * 1000 >= (this.now ?? 0)) : inside.findIndex(([, index]) => index === this.pointed);
    const next = inside[Math.min(inside.length - 1, Math.max(0, (before < 0 ? inside.length - 1 : before) + step * size))];
    this.pointed = next[1];
    this.u.setCursor({ left: this.u.valToPos(next[0], "x"), top: 10 });
    this.words.textContent = this.legend(this.pointed);
  }
}

function nearest(column, times, index, limit_s) {
  for (let away = 0; away < times.length; away += 1) {
    for (const at of limit_s === Infinity ? [index - away] : [index - away, index + away]) {
      if (at >= 0 && at < times.length && column[at] !== null && column[at] !== undefined && Math.abs(times[at] - times[index]) <= limit_s) return at;
    }
    if (index - away < 0 && index + away >= times.length) break;
    if (limit_s !== Infinity && away > 80) break;
  }
  return null;
}

function swatch(line) {
  const made = h("i", { class: `swatch ${line.dash ? "dash" : ""} ${line.low ? "banded" : ""}` });
  made.style.setProperty("--tone", `var(--${line.colour})`);
  return made;
}
