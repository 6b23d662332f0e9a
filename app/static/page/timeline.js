// The charts of a recorded run, one below the other over the same time: rates, CPU and output, with a line where the plan changed.

import { h, svg } from "./dom.js";
import { chart, pathOf, scaleOf } from "./plot.js";
import * as words from "./words.js";

const HEIGHT = 150;
const MOST_NAMED = 6; // streams with a line of their own style; the others are thin
const STYLES = 6;

/** The streams whose rates move most, the furthest first: these are told apart. */
export function namedStreams(recording) {
  const spread = (name) => {
    const rates = recording.points.map((point) => point.rates[name] ?? 0);
    return Math.max(...rates) / Math.max(Math.min(...rates.filter((rate) => rate > 0)), Number.MIN_VALUE);
  };
  const ranked = [...recording.streams].sort((a, b) => spread(b) - spread(a) || a.localeCompare(b));
  return ranked.slice(0, MOST_NAMED).sort();
}

/** Draws into `host`; returns `mark(i)`, which moves the cursor to point i, and `select(k)`, which marks plan k. */
export function drawTimeline(host, recording, { selected, onPoint, onPlan }) {
  const width = Math.max(300, host.clientWidth);
  const named = namedStreams(recording);
  const { points, plans } = recording;
  const x = scaleOf([0, ...points.map((point) => point.to)], { log: false, pad: 0 });
  const style = (name) => (named.includes(name) ? `s${named.indexOf(name) % STYLES}` : "other");
  const figures = [
    {
      name: "rows/s in",
      says: words.amount,
      lines: recording.streams.map((stream) => ({ kind: style(stream), value: (point) => point.rates[stream] ?? 0 })),
      legend: [
        ...named.map((name) => key(style(name), name)),
        ...(named.length < recording.streams.length ? [key("other", `${recording.streams.length - named.length} others`)] : []),
      ],
    },
    measuredAgainst("CPU", words.cpu, (point) => point.cpu, (plan) => plan.cpu),
    measuredAgainst("results/s", words.amount, (point) => point.results, (plan) => plan.output),
  ];
  const cursors = [];
  const flags = [];
  const parts = figures.map((figure) => {
    const heights = [
      0,
      ...figure.lines.flatMap((line) => points.map(line.value)),
      ...(figure.steps ? plans.filter((_, k) => spanOf(recording, k)).map(figure.steps) : []),
    ];
    const plot = chart({
      width,
      height: HEIGHT,
      x,
      y: scaleOf(heights, { log: false, pad: 0.08 }),
      xName: "seconds of event time",
      yName: figure.name,
      xWords: words.amount,
      yWords: figure.says,
      label: `${figure.name} over the run`,
    });
    for (const line of figure.lines) plot.add(svg("path", { class: `line ${line.kind}`, d: stepsOf(points, plot, line.value) }));
    if (figure.steps) plot.add(svg("path", { class: "line predicted", d: predictedOf(recording, plot, figure.steps) }));
    plans.forEach((plan, k) => {
      if (k > 0) flags.push(flagOf(plot, plan, k, flags.length < plans.length - 1, onPlan));
    });
    plot.add(...flags.slice(-(plans.length - 1)).filter(() => plans.length > 1));
    const cursor = svg("line", { class: "cursor", y1: plot.area.top, y2: plot.area.bottom, x1: 0, x2: 0, visibility: "hidden" });
    cursors.push((point) => {
      cursor.setAttribute("visibility", "visible");
      for (const end of ["x1", "x2"]) cursor.setAttribute(end, plot.x(middleOf(point)));
    });
    plot.add(cursor);
    plot.svg.addEventListener("pointermove", (event) => {
      const box = plot.svg.getBoundingClientRect();
      const share = (event.clientX - box.left - plot.area.left) / (plot.area.right - plot.area.left);
      const value = x.value(Math.min(1, Math.max(0, share)));
      const found = points.findIndex((point) => point.to >= value);
      onPoint(found < 0 ? points.length - 1 : found);
    });
    return h("figure", {}, h("figcaption", { class: "legend" }, figure.legend), plot.svg);
  });
  host.replaceChildren(...parts);
  const select = (k) => flags.forEach((flag) => flag.classList.toggle("chosen", Number(flag.dataset.plan) === k));
  select(selected);
  return { mark: (i) => cursors.forEach((place) => place(points[i])), select };
}

const middleOf = (point) => (point.from + point.to) / 2;

const key = (kind, text) => h("span", {}, h("span", { class: `key ${kind}`, "aria-hidden": "true" }), ` ${text}`);

const measuredAgainst = (name, says, measured, predicted) => ({
  name,
  says,
  lines: [{ kind: "measured", value: measured }],
  steps: predicted,
  legend: [key("measured", `${name} measured`), key("predicted", "predicted by the plan in force")],
});

/** A value per point, level from where the point begins to where it ends. */
function stepsOf(points, plot, value) {
  return pathOf(points.flatMap((point) => [point.from, point.to].map((at) => [plot.x(at), plot.y(value(point))])));
}

/** From when to when a plan was in force; null where no batch was under it. */
function spanOf(recording, k) {
  const { plans, points } = recording;
  const to = k + 1 < plans.length ? plans[k + 1].at : points.at(-1).to;
  return to > plans[k].at ? [plans[k].at, to] : null;
}

function predictedOf(recording, plot, figure) {
  return recording.plans
    .map((plan, k) => ({ plan, span: spanOf(recording, k) }))
    .filter(({ span }) => span)
    .map(({ plan, span }) => pathOf(span.map((at) => [plot.x(at), plot.y(figure(plan))])))
    .join("");
}

/** A line where the plan changed; its number, on the topmost chart, can be pressed. */
function flagOf(plot, plan, k, numbered, onPlan) {
  const at = plot.x(plan.at);
  const flag = svg("g", { class: "flag", "data-plan": k }, svg("line", { x1: at, x2: at, y1: plot.area.top, y2: plot.area.bottom }));
  if (numbered) {
    flag.append(svg("circle", { cx: at, cy: plot.area.top, r: 8.5 }), svg("text", { x: at, y: plot.area.top + 3.5, "text-anchor": "middle" }, String(k)));
    flag.addEventListener("click", () => onPlan(k)); // by keyboard: the list below
  }
  return flag;
}
