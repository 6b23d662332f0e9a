// Every trade-off between CPU and memory, whatever the caps, with the caps as lines: what lies beyond them is hollow.
// The plan that was chosen, the plain mjoin and the best binary tree are marked. Each point is a plan to look at.

import { post } from "./api.js";
import { byId, h, say, svg } from "./dom.js";
import { chart, pathOf, scaleOf } from "./plot.js";
import { on, state, view } from "./state.js";
import * as words from "./words.js";

const AUTOMATIC = 16; // streams up to which the frontier is found unasked; it takes milliseconds there
const HEIGHT = 292;
const FAR = 6; // a cap this many times beyond all plans is named at the edge, so that the plans are not squeezed
const USUAL = [
  ["mjoin", "plain mjoin"],
  ["bjtree", "best binary tree"],
];

const PROVEN = { all: ", proven complete", trees: ", proven complete without caches", none: ", as far as found" };
let found = null; // {key, points, proof, tree_proof} for the request without its caps, {usual, usualFor} for the request with them

const uncapped = (request) => ({ ...request, resources: {}, objective: "min_cpu", options: { ...request.options, method: "auto" } });
const keyOf = (request) => JSON.stringify(uncapped(request));

export function startFrontier(background) {
  for (const event of ["planned", "resumed"]) on(event, () => refresh(background, false));
  on("viewed", draw);
  new ResizeObserver(draw).observe(byId("frontier"));
}

function refresh(background, wanted) {
  const request = state.asked;
  const key = keyOf(request);
  byId("frontier").setAttribute("aria-busy", "true");
  if (found?.key === key && found.points) {
    usualPlans(background, request, key);
    return draw();
  }
  if (!wanted && request.query.streams.length > AUTOMATIC) {
    found = null;
    for (const piece of ["frontier", "usual"]) background.drop(piece);
    return offer(background);
  }
  background.add("frontier", async (signal) => {
    say(byId("frontier-note"), "searching…");
    try {
      const answer = await post("v1/frontiers", uncapped(request), signal);
      found = { ...(found?.key === key ? found : { usual: [] }), key, points: answer.points, proof: answer.proof, tree_proof: answer.tree_proof };
    } catch (failure) {
      if (signal.aborted) return;
      found = { key, points: [], proof: "none", usual: [], failure: failure.message };
    }
    draw();
  });
  usualPlans(background, request, key);
}

/** The two plans that engines make without a planner, within the same caps. */
function usualPlans(background, request, key) {
  background.add("usual", async (signal) => {
    const usual = [];
    for (const [method, label] of USUAL) {
      const plan = await post("v1/plans", { ...request, options: { ...request.options, method, caches: "off" } }, signal);
      usual.push({ plan, label, method });
    }
    if (key !== keyOf(state.asked)) return;
    found = { ...(found?.key === key ? found : { key, points: null, proof: "none" }), usual, usualFor: request };
    draw();
  });
}

function offer(background) {
  say(byId("frontier-note"), "");
  byId("frontier").setAttribute("aria-busy", "false");
  const ask = h("button", { type: "button", onclick: () => refresh(background, true) }, "Find the frontier");
  byId("frontier").replaceChildren(h("p", { class: "note" }, `With ${state.asked.query.streams.length} streams this takes a while.`), ask);
}

/** All that can be looked at: points of the frontier, the usual plans, the answer. */
function items() {
  const points = (found?.points ?? []).map((point, i) => ({
    cpu: point.cpu,
    memory: point.memory_bytes,
    plan: point.plan,
    kind: "point",
    label: `frontier point ${i + 1} of ${found.points.length}`,
  }));
  const usual = (found?.usual ?? []).map(({ plan, label, method }) => ({
    cpu: plan.cost.cpu,
    memory: plan.cost.memory_bytes,
    plan,
    kind: method,
    label,
  }));
  const { plan } = state;
  return [...points, ...usual, { cpu: plan.cost.cpu, memory: plan.cost.memory_bytes, plan, kind: "chosen", label: "the chosen plan" }];
}

function fits(item) {
  const { cpu, memory_bytes: memory } = state.plan.resources;
  return (cpu === undefined || item.cpu <= cpu) && (memory === undefined || item.memory <= memory);
}

/** Scales reach the caps, unless those are far off. */
function scales(all) {
  const { cpu, memory_bytes: memory } = state.plan.resources;
  const near = (values, cap) =>
    cap !== undefined && cap <= Math.max(...values) * FAR && cap >= Math.min(...values) / FAR ? [...values, cap] : values;
  const [cpus, memories] = [all.map((item) => item.cpu), all.map((item) => item.memory)];
  return [scaleOf(near(cpus, cpu), { pad: 0.1 }), scaleOf(near(memories, memory), { pad: 0.12 })];
}

function draw() {
  const host = byId("frontier");
  if (!state.plan || found?.key !== keyOf(state.asked)) return;
  const focused = host.contains(document.activeElement);
  const all = items();
  const [x, y] = scales(all);
  const width = Math.max(280, host.clientWidth);
  const plot = chart({
    width,
    height: HEIGHT,
    x,
    y,
    xName: "CPU",
    yName: "memory",
    xWords: words.cpu,
    yWords: words.bytes,
    label: "CPU against memory",
  });
  capLines(plot, x, y);
  const points = all.filter((item) => item.kind === "point");
  const steps = points.flatMap((item, i) =>
    (i ? [[plot.x(item.cpu), plot.y(points[i - 1].memory)]] : []).concat([[plot.x(item.cpu), plot.y(item.memory)]]),
  );
  if (steps.length) plot.add(svg("path", { class: "staircase", d: pathOf(steps) }));
  const group = svg("g", { role: "radiogroup", "aria-label": "Plans of the frontier" });
  const at = Math.max(
    0,
    all.findIndex((item) => (state.viewed ? item.plan === state.viewed.source : item.kind === "chosen")),
  );
  const dots = all.map((item, i) => dot(plot, item, i === at));
  group.append(...dots);
  group.addEventListener("keydown", (event) => step(event, dots, all));
  plot.add(group);
  host.replaceChildren(plot.svg);
  host.setAttribute("aria-busy", String(!found.points || found.usualFor !== state.asked));
  if (focused) dots[at].focus({ preventScroll: true });
  if (found.points) {
    const count = found.points.length;
    say(
      byId("frontier-note"),
      found.failure ??
        (count
          ? `${count} trade-off${count > 1 ? "s" : ""}${PROVEN[found.proof === "optimal" ? "all" : found.tree_proof === "optimal" ? "trees" : "none"]}`
          : "no plans were found in time"),
    );
  }
}

function capLines(plot, x, y) {
  const { cpu, memory_bytes: memory } = state.plan.resources;
  const { area } = plot;
  if (cpu !== undefined) {
    const inside = cpu >= x.low && cpu <= x.high;
    if (inside) plot.add(svg("line", { class: "cap", x1: plot.x(cpu), x2: plot.x(cpu), y1: area.top, y2: area.bottom }));
    const right = !inside && cpu > x.high;
    const leftwards = inside && x.share(cpu) > 0.5;
    plot.add(
      svg(
        "text",
        {
          class: "capname",
          x: inside ? plot.x(cpu) + (leftwards ? -4 : 4) : area.left,
          y: inside ? area.bottom - 6 : HEIGHT - 5,
          "text-anchor": leftwards ? "end" : "start",
        },
        inside ? "CPU cap" : right ? `CPU cap ${words.cpu(cpu)} →` : `← CPU cap ${words.cpu(cpu)}`,
      ),
    );
  }
  if (memory !== undefined) {
    const inside = memory >= y.low && memory <= y.high;
    if (inside) plot.add(svg("line", { class: "cap", x1: area.left, x2: area.right, y1: plot.y(memory), y2: plot.y(memory) }));
    const above = !inside && memory > y.high;
    plot.add(
      svg(
        "text",
        { class: "capname", x: area.right, y: inside ? plot.y(memory) - 4 : 10, "text-anchor": "end" },
        inside ? "memory cap" : `${above ? "↑" : "↓"} memory cap ${words.bytes(memory)}`,
      ),
    );
  }
}

function dot(plot, item, current) {
  const [x, y] = [plot.x(item.cpu), plot.y(item.memory)];
  const shape = {
    point: () => svg("circle", { cx: x, cy: y, r: 5 }),
    mjoin: () => svg("path", { d: `M${x} ${y - 7}l7 12h-14z` }),
    bjtree: () => svg("path", { d: `M${x} ${y - 7}l7 7-7 7-7-7z` }),
    chosen: () => svg("circle", { class: "ring", cx: x, cy: y, r: 9.5 }),
  }[item.kind]();
  const words_ = `${item.label}: ${words.cpu(item.cpu)} CPU, ${words.bytes(item.memory)}${fits(item) ? "" : ", beyond the caps"}`;
  const right = x > (plot.area.left + plot.area.right) / 2;
  const name = { mjoin: "mjoin", bjtree: "binary", chosen: "chosen" }[item.kind];
  const below = { mjoin: 18, bjtree: 18, chosen: -13 }[item.kind];
  return svg(
    "g",
    {
      class: `dot ${item.kind}${fits(item) ? "" : " beyond"}${current ? " current" : ""}`,
      role: "radio",
      "aria-checked": current ? "true" : "false",
      "aria-label": words_,
      tabindex: current ? 0 : -1,
      onclick: () => look(item),
    },
    svg("title", {}, words_),
    svg("circle", { class: "reach", cx: x, cy: y, r: 11 }),
    shape,
    name ? svg("text", { x: x + (right ? -8 : 8), y: y + below, "text-anchor": right ? "end" : "start" }, name) : null,
  );
}

function step(event, dots, all) {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const at = dots.indexOf(document.activeElement);
  if (by && at >= 0) look(all[(at + by + all.length) % all.length]);
  else if ((event.key === "Enter" || event.key === " ") && at >= 0) look(all[at]);
  else return;
  event.preventDefault();
}

/** Shows a plan as it stands under the caps that are set; a point of the frontier was found without them. */
async function look(item) {
  if (item.kind === "chosen") {
    view(null);
    return;
  }
  view(item.plan, item.label);
  if (item.kind !== "point") return;
  const { asked } = state;
  const current = () => state.viewed?.source === item.plan && state.asked === asked;
  try {
    const plan = await post("v1/estimates", { ...asked, operators: item.plan.operators });
    if (current()) view(plan, item.label, item.plan);
  } catch (failure) {
    if (current()) say(byId("frontier-note"), failure.message); // the plan as it was found stays on screen
  }
}
