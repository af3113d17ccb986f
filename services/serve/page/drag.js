// A change of a plan that is drawn with the pointer: a level between two times, above a chart. Fields beside it do the same.
import { h } from "./dom.js";

const QUARTER_MS = 15 * 60_000;

// `taken({from, to, value})` is called while it is drawn; missing members stay as they are.
export class DragLayer {
  constructor(chart, taken) {
    this.chart = chart;
    this.taken = taken;
    this.level = h("div", { class: "handle level" });
    this.edges = ["from", "to"].map(() => h("div", { class: "handle edge" }));
    this.layer = h("div", { class: "drag", "aria-hidden": "true" }, this.level, this.edges);
    chart.plot.prepend(this.layer);
    this.drag(this.level, (x, y) => this.taken({ value: this.chart.u.posToVal(y, "y") }));
    ["from", "to"].forEach((name, n) => this.drag(this.edges[n], (x) => this.taken({ [name]: Math.round((this.chart.u.posToVal(x, "x") * 1000) / QUARTER_MS) * QUARTER_MS })));
  }

  drag(handle, move) {
    const isLevel = handle === this.level;
    let held = { x: 0, y: 0 }; // where it was taken, beside what it stands for
    handle.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      event.stopPropagation();
      handle.setPointerCapture(event.pointerId);
      const box = handle.getBoundingClientRect();
      held = { x: event.clientX - (isLevel ? event.clientX : box.left + box.width / 2), y: event.clientY - box.top - 2 };
    });
    handle.addEventListener("mousedown", (event) => {
      event.preventDefault(); // no selection, and no drag of the browser's own
      event.stopPropagation();
    });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const over = this.chart.u.over.getBoundingClientRect();
      move(event.clientX - held.x - over.left, event.clientY - held.y - over.top);
    });
  }

  place({ from, to, value }) {
    const { u } = this.chart;
    const [over, own] = [u.over.getBoundingClientRect(), this.layer.getBoundingClientRect()];
    const [dx, dy] = [over.left - own.left, over.top - own.top];
    const inside = (x) => Math.min(Math.max(u.valToPos(x / 1000, "x"), 0), over.width);
    const [left, right] = [inside(from), inside(to)];
    const y = Math.min(Math.max(u.valToPos(value, "y"), 0), over.height);
    const put = (handle, css) => Object.assign(handle.style, css);
    put(this.level, { left: `${dx + left}px`, width: `${Math.max(right - left, 4)}px`, top: `${dy + y}px`, zIndex: 102 });
    this.edges.forEach((edge, n) => put(edge, { left: `${dx + (n ? right : left)}px`, top: `${dy}px`, height: `${over.height}px`, zIndex: 101 }));
  }
}
