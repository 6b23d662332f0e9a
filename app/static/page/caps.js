// The two caps, each a slider over orders of magnitude with the figure beside it.

import { byId, h, say } from "./dom.js";
import { changed, field, text, typed } from "./fields.js";
import { get } from "./pointer.js";
import { on, state } from "./state.js";
import * as words from "./words.js";

const SLIDER_STEPS = 1000;
const CAPS = {
  cpu: { pointer: "/resources/cpu", label: "CPU", unit: "cores", shown: words.cpu, cost: "cpu", fallback: 1 },
  memory: { pointer: "/resources/memory_bytes", label: "Memory", unit: "bytes", shown: words.bytes, cost: "memory_bytes", fallback: 268435456 },
};

let ranges = null; // ends of the sliders, as logarithms; they stay put while somebody edits
let rangesFollow = true; // until the first plan of a request that was loaded says what it needs

export const capRows = () => Object.keys(CAPS).map(capRow);

function capRow(kind) {
  const cap = CAPS[kind];
  const value = get(state.request, cap.pointer);
  const capped = value !== undefined && value !== null;
  const input = field(cap.pointer, `${cap.label} cap, ${cap.unit}`, {
    size: 10,
    oninput: (event) => {
      changed(cap.pointer, typed(event.target.value));
      placeSlider(kind);
    },
  });
  input.id = `${kind}-cap`;
  input.disabled = !capped;
  const slider = h("input", {
    type: "range",
    id: `${kind}-slider`,
    min: 0,
    max: SLIDER_STEPS,
    "aria-label": `${cap.label} cap`,
    disabled: !capped,
    oninput: (event) => {
      const [low, high] = ranges[kind];
      const chosen = Number((10 ** (low + ((high - low) * event.target.value) / SLIDER_STEPS)).toPrecision(3));
      input.value = String(chosen);
      tellCap(kind, chosen);
      changed(cap.pointer, chosen);
    },
  });
  const box = h("input", {
    type: "checkbox",
    id: `${kind}-capped`,
    checked: capped,
    onchange: (event) => {
      const usual = state.plan ? Number((state.plan.cost[cap.cost] * 2).toPrecision(2)) : cap.fallback;
      changed(cap.pointer, event.target.checked ? usual || cap.fallback : undefined);
      slider.disabled = input.disabled = !event.target.checked;
      input.value = text(get(state.request, cap.pointer));
      placeSlider(kind);
    },
  });
  return h(
    "div",
    { class: "cap", "data-row": cap.pointer },
    h("label", { for: `${kind}-capped` }, box, ` ${cap.label}`),
    slider,
    input,
    h("span", { class: "unit", id: `${kind}-words` }, cap.unit),
  );
}

/** Sliders reach a tenth to ten times of what is capped and of what the plan needs. */
function placeRanges() {
  ranges = {};
  for (const [kind, cap] of Object.entries(CAPS)) {
    const values = [get(state.request, cap.pointer), state.plan?.cost[cap.cost]].filter((value) => typeof value === "number" && value > 0);
    const logs = (values.length ? values : [cap.fallback]).map(Math.log10);
    ranges[kind] = [Math.floor(Math.min(...logs)) - 1, Math.ceil(Math.max(...logs)) + 1];
    placeSlider(kind);
  }
}

function placeSlider(kind) {
  const slider = byId(`${kind}-slider`);
  const value = get(state.request, CAPS[kind].pointer);
  if (!slider || !ranges || typeof value !== "number" || value <= 0) return;
  const [low, high] = ranges[kind];
  slider.value = String(Math.round(((Math.log10(value) - low) / (high - low)) * SLIDER_STEPS));
  tellCap(kind, value);
}

function tellCap(kind, value) {
  byId(`${kind}-slider`).setAttribute("aria-valuetext", CAPS[kind].shown(value));
  if (kind === "memory") say(byId("memory-words"), words.bytes(value));
}

/** Puts the sliders of a form that was made anew where they belong. */
export function placeSliders() {
  if (ranges === null) placeRanges();
  for (const kind of Object.keys(CAPS)) placeSlider(kind);
}

on("loaded", () => {
  ranges = null;
  rangesFollow = true;
});

on("planned", () => {
  if (rangesFollow) placeRanges();
  rangesFollow = false;
});
