// Axes, ticks and a place to draw, for the two kinds of charts on this page.

import { svg } from "./dom.js";

const PAD = { left: 58, right: 16, top: 14, bottom: 36 };
const MOST_DIGITS = 7; // more do not fit beside an axis
const WIDE = 8; // largest over least, from which an axis is logarithmic

/** A scale of values; `low` and `high` are its ends. */
export function scaleOf(values, { log, pad = 0.06 } = {}) {
  const finite = values.filter((value) => Number.isFinite(value));
  let [low, high] = [Math.min(...finite), Math.max(...finite)];
  const logarithmic = low > 0 && (log ?? high / low > WIDE);
  const into = logarithmic ? Math.log10 : (value) => value;
  const back = logarithmic ? (value) => 10 ** value : (value) => value;
  let [a, b] = [into(low), into(high)];
  const room = b - a || (logarithmic ? 0.2 : Math.abs(a) * 0.2) || 1;
  a -= room * pad;
  b += room * pad;
  if (!logarithmic && low >= 0) a = Math.max(0, a);
  return { low: back(a), high: back(b), logarithmic, share: (value) => (into(value) - a) / (b - a), value: (share) => back(a + share * (b - a)) };
}

export function ticksOf(scale, most = 5) {
  if (scale.logarithmic) {
    const [a, b] = [Math.log10(scale.low), Math.log10(scale.high)];
    const marks = b - a > 2.2 ? [1] : b - a > 0.9 ? [1, 3] : b - a > 0.35 ? [1, 1.5, 2, 3, 5, 7] : null;
    if (marks) {
      const found = [];
      for (let power = Math.floor(a); power <= b; power += 1) for (const mark of marks) found.push(mark * 10 ** power);
      const inside = found.filter((value) => value >= scale.low && value <= scale.high);
      const every = Math.ceil(inside.length / (most + 1));
      return inside.filter((_, i) => i % every === 0);
    }
  }
  const rough = (scale.high - scale.low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(scale.low / step) * step; value <= scale.high + step * 1e-9; value += step)
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

/** Words for ticks, with as many digits as it takes to tell them apart. */
function labelsOf(ticks, asWords) {
  for (let digits = 3; ; digits += 1) {
    const labels = ticks.map((tick) => asWords(tick, digits));
    if (new Set(labels).size === labels.length || digits === MOST_DIGITS) return labels;
  }
}

/** An empty chart: {svg, x, y, area, add}; x and y give places in px. */
export function chart({ width, height, x, y, xName, yName, xWords, yWords, label }) {
  const area = { left: PAD.left, top: PAD.top, right: width - PAD.right, bottom: height - PAD.bottom };
  const placeX = (value) => area.left + x.share(value) * (area.right - area.left);
  const placeY = (value) => area.bottom - y.share(value) * (area.bottom - area.top);
  const axes = svg("g", { class: "axes", "aria-hidden": "true" });
  const [xTicks, yTicks] = [ticksOf(x, width < 420 ? 4 : 6), ticksOf(y, 5)];
  const [xLabels, yLabels] = [labelsOf(xTicks, xWords), labelsOf(yTicks, yWords)];
  xTicks.forEach((tick, i) => {
    axes.append(svg("line", { x1: placeX(tick), x2: placeX(tick), y1: area.top, y2: area.bottom }));
    axes.append(svg("text", { x: placeX(tick), y: area.bottom + 15, "text-anchor": "middle" }, xLabels[i]));
  });
  yTicks.forEach((tick, i) => {
    axes.append(svg("line", { x1: area.left, x2: area.right, y1: placeY(tick), y2: placeY(tick) }));
    axes.append(svg("text", { x: area.left - 6, y: placeY(tick) + 4, "text-anchor": "end" }, yLabels[i]));
  });
  axes.append(svg("text", { class: "axis", x: area.right, y: height - 5, "text-anchor": "end" }, xName));
  axes.append(svg("text", { class: "axis", x: 4, y: 10 }, yName));
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label }, axes);
  return { svg: drawing, x: placeX, y: placeY, area, add: (...parts) => drawing.append(...parts) };
}

/** A line through points that are given as [x, y] in px. */
export const pathOf = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
