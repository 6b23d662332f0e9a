// A recorded run on the page: a time line, the decisions with their reasons, and the trees before and after a change side by side.
// Everything stays in the browser, but for the two plans of a change, of which the service says what differs.

import { post } from "./api.js";
import { movedIn } from "./compare.js";
import { byId, h, say } from "./dom.js";
import { recordingOf } from "./recording.js";
import { drawTimeline, namedStreams } from "./timeline.js";
import { TreePane, describeProbes } from "./tree.js";
import * as words from "./words.js";

const MOST_LISTED = 200; // looks that kept the plan: the last ones
const KINDS = { none: "plan", orders: "probe orders", caches: "caches", allocation: "allowances", tree: "join tree" };

let view = null; // what is on screen: {recording, chosen, point, charts}
let panes = null;
let comparing = null; // the question on its way

/** Reads the files of a run and shows it; says so where they are none. */
export async function openRun(files) {
  const host = byId("run");
  host.hidden = false;
  try {
    const recording = recordingOf(await Promise.all([...files].map((file) => file.text())));
    if (!recording.points.length) throw new Error("No batch of this run has any rows.");
    show(recording);
  } catch (failure) {
    view = null;
    byId("run-body").hidden = true;
    byId("run-fault").hidden = false;
    say(byId("run-note"), "");
    say(byId("run-fault"), failure.message);
  }
  host.scrollIntoView({ block: "start" });
  byId("run-title").focus({ preventScroll: true });
}

export function closeRun() {
  comparing?.abort();
  view = null;
  byId("run").hidden = true;
  byId("open-run").focus();
}

function show(recording) {
  byId("run-fault").hidden = true;
  byId("run-body").hidden = false;
  panes ??= ["before", "after"].map((name) => new TreePane(byId(`run-${name}`), `the plan ${name}`, pointed));
  const changes = recording.plans.length - 1;
  const length = words.seconds(recording.points.at(-1).to);
  const broken = recording.broken ? `; ${counted(recording.broken, "line")} could not be read` : "";
  say(byId("run-note"), `${recording.batches} batches, ${length} of event time, ${counted(changes, "change")}, ${recording.looks.length} looks that kept the plan${broken}`);
  view = { recording, chosen: changes, point: recording.points.length - 1, charts: null };
  const slider = byId("run-point");
  slider.max = recording.points.length - 1;
  slider.value = view.point;
  list();
  draw();
  choose(view.chosen);
}

const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
const pointed = (plan, node) => describeProbes(byId("run-probes"), plan, node);

// The time line

function draw() {
  if (!view) return;
  view.charts = drawTimeline(byId("run-charts"), view.recording, { selected: view.chosen, onPoint: read, onPlan: choose });
  read(view.point);
}

let drawnFor = 0;
new ResizeObserver(() => {
  const width = byId("run-charts").clientWidth;
  if (!width || width === drawnFor) return;
  drawnFor = width;
  draw();
}).observe(byId("run-charts"));

/** Point i in figures, under the charts. */
function read(i) {
  const { recording, charts } = view;
  view.point = i;
  byId("run-point").value = i;
  const point = recording.points[i];
  const plan = recording.plans[point.plan];
  const named = namedStreams(recording);
  const batches = point.first === point.batch ? `Batch ${point.batch}` : `Batches ${point.first} to ${point.batch}`;
  byId("run-point").setAttribute("aria-valuetext", `${batches}, ${words.seconds(point.to)}`);
  const against = (name, measured, predicted, says) => [h("b", {}, `${name} `), `${says(measured)} `, h("span", { class: "note" }, `of ${says(predicted)} predicted`)];
  byId("run-reading").replaceChildren(
    h("span", {}, h("b", {}, batches), ` at ${words.seconds(point.to)}, plan ${point.plan}${point.building ? ", building the next" : ""}`),
    h("span", {}, against("CPU", point.cpu, plan.cpu, words.cpu)),
    h("span", {}, against("results/s", point.results, plan.output, words.amount)),
    ...named.map((name) => h("span", {}, h("b", {}, `${name} `), `${words.amount(point.rates[name] ?? 0)}/s`)),
    ...(point.shed ? [h("span", { class: "bad" }, `${words.amount(point.shed)} rows and probes shed`)] : []),
  );
  charts.mark(i);
}

byId("run-point").addEventListener("input", (event) => view && read(Number(event.target.value)));

// The decisions

function list() {
  const { recording } = view;
  byId("run-decisions").replaceChildren(
    ...recording.plans.map((plan, k) =>
      h(
        "li",
        {},
        h(
          "button",
          { type: "button", class: "decision", "data-plan": k, "aria-pressed": "false", onclick: () => choose(k) },
          h("b", {}, String(k)),
          h("span", {}, headline(plan), h("span", { class: "note" }, ` batch ${plan.batch}, ${words.seconds(plan.at)}`)),
        ),
      ),
    ),
  );
  const looks = recording.looks.slice(-MOST_LISTED);
  const more = recording.looks.length - looks.length;
  byId("run-looks").hidden = !looks.length;
  byId("run-looks-list").replaceChildren(
    ...(more ? [h("li", { class: "note" }, `${more} earlier looks`)] : []),
    ...looks.map((look) => h("li", {}, h("b", {}, `batch ${look.batch} `), look.reasons.join(" "))),
  );
}

function headline(plan) {
  if (plan.decision === "start") return "Started";
  const gain = Number.isFinite(plan.gain) ? `, gain ${words.percent(plan.gain)}` : "";
  return `Changed ${KINDS[plan.kind] ?? plan.kind}${gain}`;
}

/** Shows plan k beside the one before it. */
function choose(k) {
  const { recording } = view;
  view.chosen = k;
  view.charts?.select(k);
  for (const button of byId("run-decisions").querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.plan) === k));
  const plan = recording.plans[k];
  const before = k > 0 ? recording.plans[k - 1] : null;
  say(byId("run-change-title"), k > 0 ? `Change ${k}: ${headline(plan).replace(/^Changed /, "")}` : headline(plan));
  byId("run-reasons").replaceChildren(...plan.reasons.map((reason) => h("li", {}, reason)));
  byId("run-panes").classList.toggle("two", before !== null);
  byId("run-before").hidden = before === null;
  try {
    const [left, right] = panes;
    right.unzoom();
    right.show(plan.plan, before ? `after: plan ${k}` : `plan ${k}`, before ? movedIn(plan.plan, before.plan) : new Set(), "+");
    if (before) {
      left.unzoom();
      left.show(before.plan, `before: plan ${k - 1}`, movedIn(before.plan, plan.plan), "−");
    }
    describeProbes(byId("run-probes"), null, null);
  } catch (failure) {
    say(byId("run-difference"), `This plan cannot be drawn: ${failure.message}`);
    return;
  }
  differ(before, plan);
}

/** What differs between the two, in the service's words. */
async function differ(before, after) {
  comparing?.abort();
  byId("run-difference").replaceChildren();
  if (before === null) return;
  comparing = new AbortController();
  const { signal } = comparing;
  try {
    const diff = await post("v1/diffs", { before: before.plan, after: after.plan }, signal);
    if (signal.aborted) return;
    byId("run-difference").replaceChildren(
      h("ul", { class: "moves" }, (diff.structure.length ? diff.structure : ["The same structure."]).map((line) => h("li", {}, line))),
    );
  } catch (failure) {
    if (!signal.aborted) say(byId("run-difference"), `What differs could not be asked: ${failure.message}`);
  }
}
