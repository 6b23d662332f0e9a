// How CPU and memory of the plan on screen grow with one statistic, where it leaves its caps, and which plan is best
// from there on.
//
// The plan is re-priced at values around the present one, and the service is asked for the best plan at each of them.
// Where this plan stops being as good as the best between two values, the place is found by halving the span between them.
// A search that was cut off may have missed a better plan, so it says nothing where it found none: the span is then not made smaller, and what
// is shown is the span.
// Plans are told apart by what they cost, not by their structure: many probe orders cost the same, and which of those the
// search returns may differ from one value to the next.

import { post } from "./api.js";
import { byId, h, say, svg } from "./dom.js";
import { get, set } from "./pointer.js";
import { chart, pathOf, scaleOf } from "./plot.js";
import { on, shown, state, view } from "./state.js";
import * as words from "./words.js";

const MOST_PREDICATES = 500; // to choose from: a clique of 200 streams has 19,900
const VALUES = 25; // from the least to the most; small graphs answer all of them within half a second
const REACH = 10; // times less and more than the present value
const FAR_REACH = 1000; // and up to this, where the plan leaves its caps only there
const EXACT = 1.0001; // a span as small as this is shown as one place; halving a step to a fifth more takes eleven times to get there
const SAME = 1e-9; // share by which two sums of the same terms may differ
const BUDGET = 8000; // ms for a scan; large graphs get fewer values, and places less exact
const SHOW = 250; // ms between drawings of a scan that takes longer
const HEIGHT = 210;

let statistic = ""; // name of what is varied, as the plan's `validity` names it
let scan = null; // the statistic, the plan it is varied in, what was found at each value, and where other plans are better

/** The statistics of a request: name, pointer, most. */
function statisticsOf(request) {
  return [
    ...request.query.streams.map((stream, i) => ({
      name: `${stream.name}.rate`,
      label: `${stream.name} rate`,
      pointer: `/query/streams/${i}/rate`,
      most: Infinity,
    })),
    ...(request.query.tables ?? []).flatMap((table, i) => [
      { name: `${table.name}.rows`, label: `${table.name} rows`, pointer: `/query/tables/${i}/rows`, most: Infinity },
      ...(table.access ?? []).flatMap((access, j) =>
        access.kind === "index"
          ? [
              {
                name: `${table.name}.access[${j}].cpu`,
                label: `CPU of asking ${table.name} by ${access.bound.join(", ")}`,
                pointer: `/query/tables/${i}/access/${j}/cpu`,
                most: Infinity,
              },
            ]
          : [],
      ),
    ]),
    ...(request.query.predicates ?? []).slice(0, MOST_PREDICATES).map((predicate, i) => ({
      name: `predicates[${i}].selectivity`,
      label: `selectivity of ${predicate.left} ${predicate.op ?? "="} ${predicate.right}`,
      pointer: `/query/predicates/${i}/selectivity`,
      most: 1,
    })),
  ];
}

export function startSensitivity(background) {
  const select = h("select", {
    id: "statistic",
    "aria-label": "Statistic to vary",
    onchange: (event) => {
      statistic = event.target.value;
      refresh();
    },
  });
  const charts = h("div", { class: "charts", id: "sensitivity-charts" });
  const words_ = h("div", { class: "findings", id: "findings" });
  byId("sensitivity").append(h("label", { class: "pick" }, "Vary ", select), words_, charts);

  const refresh = () => {
    if (!state.plan) return;
    choices(select);
    background.drop("sensitivity");
    if (!statistic) return rest(words_, charts);
    background.add("sensitivity", (signal) => run(signal, words_, charts));
  };
  for (const event of ["planned", "resumed"]) on(event, refresh);
  on("viewed", () => scan && scan.of.fingerprint !== shown()?.fingerprint && !scan.looking && refresh());
  new ResizeObserver(() => scan && draw(charts)).observe(charts);
}

function choices(select) {
  const known = statisticsOf(state.asked);
  if (!known.some((each) => each.name === statistic)) statistic = "";
  const wanted = ["", ...known.map((each) => each.name)].join("\n");
  if (select.dataset.choices === wanted) return;
  select.dataset.choices = wanted;
  select.replaceChildren(
    h("option", { value: "" }, "choose a statistic"),
    ...known.map((each) => h("option", { value: each.name, selected: each.name === statistic }, each.label)),
  );
}

function rest(findings, charts) {
  scan = null;
  say(byId("sensitivity-note"), "");
  for (const host of [findings, charts]) host.classList.remove("active");
  findings.replaceChildren();
  charts.replaceChildren(h("p", { class: "note" }, "Pick a rate or a selectivity to see how far it can move."));
}

// The scan

function at(request, pointer, value) {
  const copy = structuredClone(request);
  set(copy, pointer, value);
  return copy;
}

/** This plan and the best plan, with the statistic at a value; null where the service refuses that value. */
async function sample(job, value, signal) {
  const request = at(job.request, job.pointer, value);
  try {
    const [mine, best] = [await post("v1/estimates", { ...request, operators: job.plan.operators }, signal), await post("v1/plans", request, signal)];
    const worse = beaten(mine, best);
    return { value, mine, best, beaten: worse, known: worse || best.termination === "complete" };
  } catch (failure) {
    if (signal.aborted) throw failure;
    return null;
  }
}

/** Whether the best plan is better than this one by what is to be made best. */
function beaten(mine, best) {
  if (!best.qualified) return false; // nothing fits, so nothing is better
  if (!mine.qualified) return true;
  if (mine.objective === "max_headroom") return (mine.headroom ?? Infinity) < (best.headroom ?? Infinity) * (1 - SAME);
  const figure = mine.objective === "min_memory" ? "memory_bytes" : "cpu";
  return mine.cost[figure] > best.cost[figure] * (1 + SAME);
}

function valuesOf(now, most, interval) {
  const ends = [interval?.low, interval?.high].filter((end) => end && end >= now / FAR_REACH && end <= now * FAR_REACH);
  const low = Math.min(now / REACH, ...ends.map((end) => end / 1.5));
  const high = Math.min(most, Math.max(now * REACH, ...ends.map((end) => end * 1.5)));
  const values = Array.from({ length: VALUES }, (_, i) => low * (high / low) ** (i / (VALUES - 1)));
  return [...values.filter((value) => Math.abs(value / now - 1) > 1e-6), now].sort((a, b) => a - b);
}

async function run(signal, findings, charts) {
  const chosen = statisticsOf(state.asked).find((each) => each.name === statistic);
  const cached = shown().caches.length > 0;
  // Estimates know no caches, so a plan that has some is looked at without them, and so are those it is compared with.
  const request = cached ? { ...state.asked, options: { ...state.asked.options, caches: "off" } } : state.asked;
  const plan = cached ? await post("v1/estimates", { ...request, operators: shown().operators }, signal) : shown();
  const now = get(plan, chosen.pointer);
  const interval = plan.validity.find((each) => each.statistic === statistic);
  const job = { ...chosen, plan, of: shown(), cached, request, now, interval, points: [], switches: [], complete: false };
  const values = valuesOf(now, chosen.most, interval);
  job.end = performance.now() + BUDGET;
  let shownAt = performance.now();
  // Nearest first, so that what is seen early is what matters most.
  const order = [...values].sort((a, b) => Math.abs(Math.log(a / now)) - Math.abs(Math.log(b / now)));
  say(byId("sensitivity-note"), "scanning…");
  for (const host of [findings, charts]) host.classList.add("active");
  for (const value of order) {
    const point = await sample(job, value, signal);
    if (signal.aborted) return;
    if (point) job.points.push(point);
    if (performance.now() > job.end) break;
    if (performance.now() > shownAt + SHOW) {
      sorted(job);
      scan = job;
      draw(charts);
      shownAt = performance.now();
    }
  }
  sorted(job);
  job.complete = job.points.length === values.length;
  await findSwitches(job, signal);
  if (signal.aborted) return;
  job.beyond = interval?.high ? await sample(job, Math.min(chosen.most, interval.high * (1 + 1e-9)), signal) : null;
  if (signal.aborted) return;
  scan = job;
  say(
    byId("sensitivity-note"),
    job.complete ? `${job.points.length} values` : `${job.points.length} of ${values.length} values; the rest would take too long`,
  );
  report(findings);
  draw(charts);
}

const sorted = (job) => job.points.sort((a, b) => a.value - b.value);

/** The nearest places, above and below the present value, from which on another plan is better: `value` is one of them, up to `inside` none is. */
async function findSwitches(job, signal) {
  for (const side of [job.points.filter((point) => point.value >= job.now), job.points.filter((point) => point.value <= job.now).reverse()]) {
    const index = side.findIndex((point) => point.beaten);
    if (index < 1) continue;
    const unknown = side.findIndex((point) => !point.known);
    let [inside, outside] = [side[unknown >= 0 && unknown < index ? Math.max(0, unknown - 1) : index - 1].value, side[index]];
    while (!near(inside, outside.value) && performance.now() < job.end) {
      const middle = await sample(job, Math.sqrt(inside * outside.value), signal);
      if (!middle?.known) break;
      if (middle.beaten) outside = middle;
      else inside = middle.value;
    }
    job.switches.push({ value: outside.value, inside, point: outside, up: outside.value > job.now });
  }
}

const near = (a, b) => Math.max(a / b, b / a) <= EXACT;

// The findings

/** A plan in one line: what is joined in which order. */
function expressionOf(plan) {
  const names = new Map();
  for (const operator of plan.operators) names.set(operator.id, `(${operator.inputs.map((input) => names.get(input) ?? input).join(" ⋈ ")})`);
  return plan.operators.length ? names.get(plan.operators.at(-1).id).slice(1, -1) : plan.query.streams[0].name;
}

const whichCap = (plan) =>
  [
    plan.resources.cpu !== undefined && plan.cost.cpu > plan.resources.cpu ? "CPU" : "",
    plan.resources.memory_bytes !== undefined && plan.cost.memory_bytes > plan.resources.memory_bytes ? "memory" : "",
  ]
    .filter(Boolean)
    .join(" and ");

function report(findings) {
  const { now, switches, points, cached } = scan;
  const here = points.find((point) => point.value === now);
  const lines = [...limits(), ...switches.map(switched)];
  if (here?.beaten) lines.push(h("p", {}, "At the present value another plan is best: ", h("code", {}, expressionOf(here.best)), "."));
  else if (!switches.length) {
    const proven = points.every((point) => point.known && point.best.proof === "optimal");
    lines.push(h("p", { class: "note" }, `Over this span, where this plan fits, ${proven ? "none is better" : "none that was found is better"}.`));
  }
  if (cached) lines.push(h("p", { class: "note" }, "All this is without caches."));
  findings.replaceChildren(...lines);
}

/** Where the plan leaves its caps, and what is best from there on. */
function limits() {
  const { plan, now, interval, beyond, label } = scan;
  if (plan.resources.cpu === undefined && plan.resources.memory_bytes === undefined) return [h("p", {}, "There are no caps to leave.")];
  if (!interval) return [h("p", { class: "bad" }, `No value of ${label} alone would bring this plan within its caps.`)];
  if (interval.high === null) return [h("p", {}, `However much ${label} grows, this plan stays within its caps.`)];
  const short = beyond ? whichCap(beyond.mine) : "";
  const limit = h(
    "p",
    { id: "limit", "data-value": interval.high },
    `This plan is within its caps up to ${label} = `,
    h("strong", {}, words.amount(interval.high)),
    ` (×${words.amount(interval.high / now)})${short ? `; then the ${short} is short` : ""}.`,
    interval.low > 0 ? ` It needs at least ${words.amount(interval.low)}.` : "",
  );
  if (!beyond) return [limit];
  const sure = beyond.best.proof === "optimal";
  if (!beyond.best.qualified) return [limit, h("p", { id: "beyond" }, `From there on no plan ${sure ? "fits" : "that was found fits"}.`)];
  const { cost } = beyond.best;
  const uses = `, ${words.cpu(cost.cpu)} CPU, ${words.bytes(cost.memory_bytes)}. `;
  return [limit, h("p", { id: "beyond" }, `From there on the best plan ${found(beyond.best)}is `, h("code", {}, expressionOf(beyond.best)), uses, looker(beyond))];
}

/** What is said of a plan that is not proven to be the best. */
const found = (plan) => (plan.proof === "optimal" ? "" : "that was found ");

function switched({ value, inside, point, up }) {
  const other = expressionOf(point.best);
  const from = near(inside, value) ? `${up ? "From" : "Down from"} ${scan.label} = ` : `Between ${scan.label} = ${words.amount(inside)} and `;
  const on_ = near(inside, value) ? (up ? " on" : "") : ` another plan becomes the best one: ${up ? "from" : "down from"} there`;
  return h(
    "p",
    { class: "switch", "data-value": value, "data-inside": inside },
    from,
    h("strong", {}, words.amount(value)),
    on_,
    ` the best plan ${found(point.best)}is `,
    h("code", {}, other),
    `${other === expressionOf(scan.plan) ? " with other probes" : ""}. `,
    looker(point),
  );
}

function looker(point) {
  return h(
    "button",
    {
      type: "button",
      class: "link",
      onclick: () => {
        scan.looking = true;
        view(point.best, `best at ${scan.label} = ${words.amount(point.value)}`);
        scan.looking = false;
      },
    },
    "show it",
  );
}

// The charts

function draw(host) {
  if (!scan || !scan.points.length) return;
  const width = Math.max(280, host.clientWidth >= 640 ? (host.clientWidth - 16) / 2 : host.clientWidth);
  host.replaceChildren(
    one(width, "CPU", words.cpu, (plan) => plan.cost.cpu, scan.plan.resources.cpu),
    one(width, "memory", words.bytes, (plan) => plan.cost.memory_bytes, scan.plan.resources.memory_bytes),
    legend(),
  );
}

function one(width, name, shownAs, figure, cap) {
  const { points, now, interval, switches, label } = scan;
  const values = points.flatMap((point) => [figure(point.mine), figure(point.best)]);
  const near = cap !== undefined && cap <= Math.max(...values) * 3 && cap >= Math.min(...values) / 3 ? [cap] : [];
  const x = scaleOf(
    points.map((point) => point.value),
    { log: true, pad: 0.02 },
  );
  const y = scaleOf([...values, ...near], { pad: 0.08 });
  const plot = chart({
    width,
    height: HEIGHT,
    x,
    y,
    xName: label,
    yName: name,
    xWords: words.amount,
    yWords: shownAs,
    label: `${name} against ${label}`,
  });
  const upright = (value, kind) =>
    value >= x.low &&
    value <= x.high &&
    plot.add(svg("line", { class: kind, x1: plot.x(value), x2: plot.x(value), y1: plot.area.top, y2: plot.area.bottom }));
  const line = (of) => pathOf(points.map((point) => [plot.x(point.value), plot.y(figure(point[of]))]));
  if (interval?.high && interval.high < x.high)
    plot.add(
      svg("rect", {
        class: "out",
        x: plot.x(interval.high),
        y: plot.area.top,
        width: plot.area.right - plot.x(interval.high),
        height: plot.area.bottom - plot.area.top,
      }),
    );
  if (near.length)
    plot.add(
      svg("line", { class: "cap", x1: plot.area.left, x2: plot.area.right, y1: plot.y(cap), y2: plot.y(cap) }),
      svg("text", { class: "capname", x: plot.area.left + 6, y: plot.y(cap) - 4 }, `${name} cap`),
    );
  upright(now, "now");
  for (const { value } of switches) upright(value, "switched");
  plot.add(svg("path", { class: "line best", d: line("best") }), svg("path", { class: "line mine", d: line("mine") }));
  for (const point of points) plot.add(svg("circle", { class: "bestdot", cx: plot.x(point.value), cy: plot.y(figure(point.best)), r: 2.2 }));
  return h("figure", {}, plot.svg);
}

function legend() {
  const entry = (kind, text) => h("span", {}, h("span", { class: `key ${kind}` }), ` ${text}`);
  return h(
    "p",
    { class: "note legend" },
    entry("mine", "this plan"),
    entry("best", "the best plan there"),
    entry("switched", "another plan is best"),
  );
}
