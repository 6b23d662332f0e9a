// A plan as a drawing: streams flow in from the left, bands as wide as their rates, joins where they meet, a square for
// every state that is kept. Pointing at an input, or moving to it by keyboard, shows the order in which it probes.

import { h, svg } from "./dom.js";
import { labelOf, layout, sizeFor } from "./layout.js";
import * as words from "./words.js";

const ZOOM = { least: 0.2, most: 2.5, step: 1.25, legible: 0.5, roomy: 1.3 };
const MOST_NAMES = 6;
const FAR = 520; // px: a band longer than this says at its end whose it is

/** The light colours, spelled out, for a file that has no page around it. */
const FILE_STYLE = `
text{font:12px system-ui,sans-serif;fill:#17211f}.name{font-weight:600}.sub{fill:#5b6764;font-size:11px}
.band{fill:none;stroke:#1f7a8c;stroke-opacity:.34}.band.table{stroke-dasharray:2 4}.box{fill:#fff;stroke:#1f7a8c;stroke-width:1.25}.mjoin .box{stroke-width:2.5}
.kept{fill:#c9822f}.kept.scanned{fill:#fff;stroke:#c9822f;stroke-width:1.5}.spot{fill:none}.step{display:none}
.badge rect{fill:#6b4fa0}.badge.allowance rect{fill:#a14a00}.badge text{fill:#fff;font-size:10px;font-weight:600}
.moved .box{stroke:#b3261e;stroke-width:2;stroke-dasharray:5 3}.moved .name,.mark{fill:#b3261e;font-weight:700}`;

/** A pane that shows a plan, with its own zoom and scrolling. */
export class TreePane {
  #plan = null;
  #zoom = 0; // 0: as large as is readable and fits
  #drawing = null;
  #size = null;
  #again = null;
  #fresh = true; // nobody has scrolled this drawing yet
  #room = { width: 0, height: 0 };

  /** `point(plan, node)` hears which part is pointed at, or null. */
  constructor(host, label, point) {
    this.point = point;
    this.label = label;
    this.box = h("div", { class: "treebox" });
    this.title = h("span", { class: "panetitle" });
    const zoom = (text, name, act) => h("button", { type: "button", class: "zoom", "aria-label": name, title: name, onclick: act }, text);
    this.tools = h(
      "div",
      { class: "zooms" },
      zoom("−", `Zoom out ${label}`, () => this.zoomBy(1 / ZOOM.step)),
      zoom("+", `Zoom in ${label}`, () => this.zoomBy(ZOOM.step)),
      zoom("⤢", `Fit ${label} into its box`, () => this.fit()),
    );
    host.append(this.title, this.box, this.tools);
    new ResizeObserver(() => this.#resized()).observe(this.box);
  }

  /** Its size is read here only: to read it after a drawing has changed would lay out the whole page once more. */
  #resized() {
    this.#room = { width: this.box.clientWidth, height: this.box.clientHeight };
    if (this.#again && this.#room.width && this.#size !== sizeFor(this.#plan, this.#room.width)) this.#again();
    else this.#place();
  }

  /** `moved` are ids of parts to mark, with `mark` beside each. */
  show(plan, title = "", moved = new Set(), mark = "") {
    const focused = this.box.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
    const [left, top] = [this.box.scrollLeft, this.box.scrollTop];
    this.#plan = plan;
    this.title.textContent = title;
    if (!this.#room.width) this.#resized();
    this.#size = sizeFor(plan, this.#room.width);
    this.#drawing = draw(plan, this.label, moved, mark, (node) => this.#pointed(node), this.#size);
    this.#again = () => this.show(plan, title, moved, mark);
    this.#place();
    this.box.replaceChildren(this.#drawing.svg);
    if (left || top) this.box.scrollTo(left, top);
    else if (this.#fresh) this.#toRoot();
    this.#fresh = false;
    if (focused !== null) {
      const again = this.#drawing.parts.find((part) => part.getAttribute("data-key") === focused);
      (again ?? this.#drawing.parts[0])?.focus({ preventScroll: true });
    }
  }

  #pointed(node) {
    if (node === null) delete this.box.dataset.pointed;
    else this.box.dataset.pointed = node.id;
    this.point(this.#plan, node);
  }

  /** A tree that is too large to be seen whole is seen from its root. */
  #toRoot() {
    const { width, root } = this.#drawing;
    const scale = this.#scale();
    if (width * scale > this.#room.width) this.box.scrollTo(width * scale, root.y * scale - this.#room.height / 2);
  }

  /** Back to the size that suits the drawing. */
  unzoom() {
    this.#zoom = 0;
    this.#fresh = true;
    this.box.scrollTo(0, 0);
  }

  zoomBy(factor) {
    this.#zoom = Math.min(ZOOM.most, Math.max(ZOOM.least, this.#scale() * factor));
    this.#place();
  }

  fit() {
    if (!this.#drawing) return;
    const { width, height } = this.#drawing;
    this.#zoom = Math.max(0.05, Math.min(ZOOM.roomy, (this.#room.width - 2) / width, (this.#room.height - 2) / height));
    this.#place();
  }

  #scale() {
    if (this.#zoom) return this.#zoom;
    const { width, height } = this.#drawing;
    const fits = Math.min((this.#room.width - 2) / width, Math.max(1, (this.#room.height - 2) / height));
    return Math.min(ZOOM.roomy, Math.max(ZOOM.legible, fits));
  }

  #place() {
    if (!this.#drawing || !this.#room.width) return;
    const scale = this.#scale();
    this.#drawing.svg.setAttribute("width", this.#drawing.width * scale);
    this.#drawing.svg.setAttribute("height", this.#drawing.height * scale);
  }

  /** The drawing as a file. */
  get file() {
    return this.#drawing ? svgFile(this.#drawing) : "";
  }
}

function svgFile({ svg: drawing, width, height }) {
  const copy = drawing.cloneNode(true);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  for (const part of copy.querySelectorAll("[tabindex]")) part.removeAttribute("tabindex");
  const text = new XMLSerializer().serializeToString(copy);
  const end = text.indexOf(">") + 1;
  return `${text.slice(0, end)}<style>${FILE_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>${text.slice(end)}\n`;
}

// Drawing

function draw(plan, label, moved, mark, pointed, size) {
  const place = layout(plan, words.streamBytes, size);
  const bands = [];
  const parts = [];
  for (const node of place.nodes) {
    if (node.dock) bands.push(svg("path", { class: node.table ? "band table" : "band", d: bandPath(node), "stroke-width": node.band, "data-of": node.id }));
  }
  const root = place.nodes[0];
  bands.push(svg("path", { class: "band", d: `M${root.out} ${root.y}h${place.size.outlet - 38}`, "stroke-width": root.band, "data-of": root.key }));
  for (const node of place.nodes) parts.push((node.operator ? joinPart : node.table ? tablePart : streamPart)(plan, node, place));
  place.nodes.forEach((node, i) => {
    const part = parts[i];
    if (moved.has(node.id)) {
      part.classList.add("moved");
      part.append(
        svg("text", { class: "mark", x: node.operator ? node.x + 6 : 2, y: node.operator ? node.y - node.height / 2 - 4 : node.y + 4 }, mark),
      );
    }
    part.setAttribute("data-key", node.id);
    part.setAttribute("role", "treeitem");
    part.setAttribute("aria-level", node.level);
    part.setAttribute("aria-description", described(plan, node) + (moved.has(node.id) ? "; moved" : ""));
    part.setAttribute("tabindex", i === 0 ? 0 : -1);
    part.addEventListener("pointerenter", () => reach(i));
    part.addEventListener("pointerleave", () => reach(null));
    part.addEventListener("click", () => part.focus({ preventScroll: true }));
    part.addEventListener("focus", () => {
      for (const other of parts) other.setAttribute("tabindex", other === part ? 0 : -1);
      reach(i);
    });
    part.addEventListener("blur", () => reach(null));
  });
  const steps = svg("g", { class: "step" });
  const results = svg(
    "g",
    { "aria-hidden": "true" },
    svg("text", { class: "name", x: root.out + 10, y: root.y - root.band / 2 - 6 }, `${words.amount(plan.cost.output_rate)}/s`),
    svg("text", { class: "sub", x: root.out + 10, y: root.y + root.band / 2 + 14 }, "results"),
  );
  const drawing = svg(
    "svg",
    { class: "tree", viewBox: `0 0 ${place.width} ${place.height}`, role: "tree", "aria-label": label },
    svg("g", { "aria-hidden": "true" }, bands),
    parts,
    results,
    steps,
  );
  drawing.addEventListener("keydown", (event) => move(event, place.nodes, parts));

  function reach(i) {
    const node = i === null ? null : place.nodes[i];
    drawing.classList.toggle("pointing", Boolean(node?.user));
    for (const band of bands) band.classList.toggle("lit", node !== null && band.getAttribute("data-of") === node.id);
    steps.replaceChildren(...(node ? stepMarks(node, place.nodes) : []));
    pointed(node);
  }
  return { svg: drawing, parts, root, width: place.width, height: place.height };
}

const TURN = 62; // px

/** Level with its source until close to its join, then in a curve to where it docks. */
function bandPath(node) {
  const turn = Math.max(node.out, node.dock.x - TURN);
  const half = (node.dock.x - turn) / 2;
  return `M${node.out} ${node.y}H${turn}C${turn + half} ${node.y} ${turn + half} ${node.dock.y} ${node.dock.x} ${node.dock.y}`;
}

function streamPart(plan, node, place) {
  const right = place.size.margin + place.labelWidth;
  const most = Math.floor(place.labelWidth / 7.2);
  const { form } = place.size;
  const window = form === "roomy" ? ` × ${words.windowOf(node.stream.window)}` : "";
  const sub = `${words.amount(node.rate)}/s${form === "tight" ? "" : `${window} · ${words.bytes(node.bytes)}`}`;
  return svg(
    "g",
    { class: "part stream" },
    svg("rect", { class: "spot", x: 2, y: node.y - node.height / 2 + 2, width: node.out - 2, height: node.height - 4, rx: 6 }),
    svg("text", { class: "name", x: right - 6, y: node.y - 2, "text-anchor": "end" }, words.shortened(node.id, most), svg("title", {}, node.id)),
    svg("text", { class: "sub", x: right - 6, y: node.y + 12, "text-anchor": "end" }, sub),
    stateSquare(node, right + place.size.state / 2),
    node.dock && node.dock.x - node.out > FAR
      ? svg("text", { class: "sub", x: node.dock.x - TURN - 12, y: node.y - node.band / 2 - 3, "text-anchor": "end" }, node.id)
      : null,
    badges(plan, node, place.size),
  );
}

/** A table: a cylinder in place of a state's square, full where the plan keeps it, hollow where it asks. */
function tablePart(plan, node, place) {
  const right = place.size.margin + place.labelWidth;
  const { table } = node;
  const asked = table.access === "index";
  const rows = `${words.amount(table.rows)} rows`;
  const sub = place.size.form === "tight" ? rows : `${rows} · ${asked ? "asked" : words.bytes(node.bytes)}`;
  const [wide, high] = [Math.max(12, node.side), Math.max(14, node.side)];
  const [left, top] = [right + place.size.state / 2 - wide / 2, node.y - high / 2];
  const lid = high / 6;
  const arc = (sweep) => `a${wide / 2} ${lid} 0 0 ${sweep}`;
  const body = `M${left} ${top + lid}${arc(1)} ${wide} 0v${high - 2 * lid}${arc(1)} ${-wide} 0zM${left} ${top + lid}${arc(0)} ${wide} 0`;
  return svg(
    "g",
    { class: "part stream table" },
    svg("rect", { class: "spot", x: 2, y: node.y - node.height / 2 + 2, width: node.out - 2, height: node.height - 4, rx: 6 }),
    svg(
      "text",
      { class: "name", x: right - 6, y: node.y - 2, "text-anchor": "end" },
      words.shortened(node.id, Math.floor(place.labelWidth / 7.2)),
      svg("title", {}, node.id),
    ),
    svg("text", { class: "sub", x: right - 6, y: node.y + 12, "text-anchor": "end" }, sub),
    svg("path", { class: asked ? "kept scanned" : "kept", d: body }, svg("title", {}, tableWords(table))),
  );
}

function joinPart(plan, node, place) {
  const { operator } = node;
  const { box, state, form } = place.size;
  const labelled = form !== "tight"; // there is room beside the box
  const top = node.y - node.height / 2;
  const kind = operator.kind === "mjoin" ? `⋈${subscript(operator.inputs.length)}` : "⋈";
  return svg(
    "g",
    { class: `part join ${operator.kind}` },
    svg("rect", { class: "box", x: node.x, y: top, width: box, height: node.height, rx: 9 }),
    svg("text", { class: "name", x: node.x + box / 2, y: node.y - 3, "text-anchor": "middle" }, `${kind} ${operator.id}`),
    svg("text", { class: "sub", x: node.x + box / 2, y: node.y + 12, "text-anchor": "middle" }, `${words.cpu(operator.cpu)} CPU`),
    node.side ? stateSquare(node, node.x + box + state / 2 + 4) : null,
    labelled && node.user ? svg("text", { class: "sub", x: node.out + 16, y: node.y - node.band / 2 - 5 }, `${words.amount(node.rate)}/s`) : null,
    labelled && node.side ? svg("text", { class: "sub", x: node.x + box + 4, y: node.y + node.side / 2 + 13 }, words.bytes(node.bytes)) : null,
    badges(plan, node, place.size),
  );
}

/** What is kept: as large as its bytes, hollow where it has no index and is scanned. */
function stateSquare(node, x) {
  const state = node.user?.states.find((kept) => kept.input === node.id);
  const scanned = state && !state.indexed;
  return svg(
    "rect",
    {
      class: scanned ? "kept scanned" : "kept",
      x: x - node.side / 2,
      y: node.y - node.side / 2,
      width: node.side,
      height: node.side,
      rx: Math.min(3, node.side / 4),
    },
    svg("title", {}, `${words.bytes(node.bytes)}${scanned ? ", scanned" : ""}`),
  );
}

/** Caches and allowances of an input: on a stream's band, above a join's box; where bands are short, above a stream's name. */
function badges(plan, node, { form, margin }) {
  const short = form === "tight" && node.stream;
  let x = node.operator ? node.x + 4 : short ? margin : (node.spot?.x ?? 0) + 11; // beside where the number of a step may stand
  const y = node.operator ? node.y - node.height / 2 - 19 : short ? node.y - node.height / 2 : node.y - 8;
  return marksOf(plan, node, form !== "roomy").map(({ kind, text }) => {
    const width = text.length * 5.8 + 10;
    const badge = svg(
      "g",
      { class: `badge ${kind}` },
      svg("rect", { x, y, width, height: 16, rx: 8 }),
      svg("text", { x: x + width / 2, y: y + 11.5, "text-anchor": "middle" }, text),
    );
    x += width + 4;
    return badge;
  });
}

function marksOf(plan, node, compact) {
  if (!node.user) return [];
  const here = (entry) => entry.operator === node.user.id && entry.input === node.id;
  const shares = (plan.allocation?.allowances ?? []).filter(here).map((allowance) => allowance.share);
  const least = Math.min(1, ...shares);
  const marks = plan.caches.filter(here).map((cache) => ({ kind: "cache", text: compact ? cache.id.replace("cache-", "c") : cache.id }));
  if (least < 1) marks.push({ kind: "allowance", text: compact ? `${Math.round(least * 100)} %` : words.percent(least) });
  return marks;
}

/** The numbers of the steps, each on the band of the input that is probed. */
function stepMarks(node, nodes) {
  const pipeline = node.user?.pipelines.find((each) => each.input === node.id);
  if (!pipeline) return [];
  const byId = new Map(nodes.map((each) => [each.id, each]));
  return pipeline.probes.map((probe, i) => {
    const { spot } = byId.get(probe.target);
    return svg(
      "g",
      {},
      svg("circle", { cx: spot.x, cy: spot.y, r: 8.5 }),
      svg("text", { x: spot.x, y: spot.y + 3.5, "text-anchor": "middle" }, String(i + 1)),
    );
  });
}

const subscript = (number) => [...String(number)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");

// Words

function described(plan, node) {
  const { operator, stream } = node;
  if (node.table) return `table ${node.id}, ${words.amount(node.table.rows)} rows, ${tableWords(node.table)}`;
  const kind = operator?.kind === "mjoin" ? "multi-way join" : "binary join";
  const rate = `${words.amount(node.rate)} tuples/s`;
  const what = stream
    ? `stream ${node.id}, ${rate}, window ${words.windowOf(stream.window)}, ${words.bytes(node.bytes)}`
    : `${kind} ${node.id} of ${operator.inputs.length} inputs, ${words.cpu(operator.cpu)} CPU, ${rate}${node.side ? `, kept ${words.bytes(node.bytes)}` : ""}`;
  const steps = probesOf(plan, node).map((step) => step.text);
  return steps.length ? `${what}; probes ${steps.join(", then ")}` : what;
}

/** How the plan reaches a table. */
export function tableWords(table) {
  if (table.access !== "index") return `kept, ${words.bytes(table.state_bytes)}`;
  const calls = `${words.amount(table.probes_per_second)} keys/s in ${words.amount(table.calls_per_second)} calls/s`;
  return `asked by ${table.bound.join(", ")}, ${calls}, waiting ${words.percent(table.waiting)} of the time at one call at a time`;
}

/** The steps of an input's pipeline, each with its words and what applies to it. */
export function probesOf(plan, node) {
  const pipeline = node.user?.pipelines.find((each) => each.input === node.id);
  const here = (entry) => entry.operator === node.user.id && entry.input === node.id;
  return (pipeline?.probes ?? []).map((probe, i) => {
    const cache = plan.caches.find((each) => here(each) && each.first <= i && i <= each.last);
    const allowance = plan.allocation?.allowances.find((each) => here(each) && each.step === i);
    const target = nameOf(plan, probe.target);
    const notes = [{ hash: "hash", lookup: "asked" }[probe.algorithm] ?? "scan"];
    if (cache) notes.push(`${cache.id}, ${words.percent(1 - cache.miss_probability)} hits`);
    if (allowance && allowance.share < 1) notes.push(`only ${words.percent(allowance.share)} may`);
    return { target, rate: probe.rate_out, notes, text: `${target} (${notes.join(", ")}), ${words.amount(probe.rate_out)}/s` };
  });
}

/** A join by the streams below it, as long as they are few. */
function nameOf(plan, id) {
  const operator = plan.operators.find((each) => each.id === id);
  return operator && operator.streams.length <= MOST_NAMES ? labelOf(operator) : id;
}

/** The strip below the tree: the probe order of what is pointed at, or how to read the drawing. */
export function describeProbes(host, plan, node) {
  if (node === null || !plan) {
    host.replaceChildren(
      h(
        "span",
        { class: "note" },
        "Point at an input, or move with the arrow keys, to see its probe order. Bands: √rate. Squares: bytes kept; hollow: scanned, no index.",
      ),
    );
    return;
  }
  const lead = h("strong", {}, !node.operator || node.operator.streams.length > MOST_NAMES ? node.id : `${node.id} = ${labelOf(node.operator)}`);
  if (node.table) {
    host.replaceChildren(lead, h("span", { class: "note" }, `, a table: ${tableWords(node.table)}`));
    return;
  }
  const rate = h("span", { class: "note" }, ` ${words.amount(node.rate)}/s`);
  const steps = probesOf(plan, node).map((step, i) =>
    h(
      "span",
      { class: "probe" },
      h("b", {}, String(i + 1)),
      ` ${step.target} `,
      h("span", { class: "note" }, `${step.notes.join(", ")} → ${words.amount(step.rate)}/s`),
    ),
  );
  host.replaceChildren(
    lead,
    rate,
    ...(steps.length ? [h("span", { class: "note" }, " probes "), ...steps] : [h("span", { class: "note" }, ", the root: its results go out")]),
  );
}

// Keyboard: down and up along the walk, left into what is joined, right to the user.

function move(event, nodes, parts) {
  const at = parts.indexOf(document.activeElement);
  if (at < 0) return;
  const parent = nodes.findIndex((node) => node.id === nodes[at].user?.id);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, ArrowRight: parent, ArrowLeft: nodes[at].operator ? at + 1 : -1, Home: 0, End: parts.length - 1 }[
    event.key
  ];
  if (to === undefined) return;
  event.preventDefault();
  parts[to]?.focus();
  parts[to]?.scrollIntoView({ block: "nearest", inline: "nearest" });
}
