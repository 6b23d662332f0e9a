// Fields of the request. What is typed goes into it as it is, numbers as numbers and anything else as text: the service
// alone says what is wrong with it, and its pointers say where.

import { h } from "./dom.js";
import { get, set } from "./pointer.js";
import { emit, state } from "./state.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

export const text = (value) => (value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** What somebody typed: nothing, a number, or text that the service will refuse with a reason. */
export function typed(value) {
  const trimmed = value.trim();
  if (trimmed === "") return undefined;
  return NUMBER.test(trimmed) && Number.isFinite(Number(trimmed)) ? Number(trimmed) : value;
}

export const list = (name) => (Array.isArray(state.request?.query?.[name]) ? state.request.query[name] : []);

export function changed(pointer, value) {
  set(state.request, pointer, value);
  emit("edited");
}

/** A field of the request; `words`: what is typed is text, even where it looks like a number. */
export function field(pointer, label, { words: asText = false, size = 8, placeholder, oninput } = {}) {
  const read = (event) => (asText ? event.target.value : typed(event.target.value));
  return h("input", {
    type: "text",
    inputmode: asText ? undefined : "decimal",
    size,
    value: text(get(state.request, pointer)),
    "data-pointer": pointer,
    "aria-label": label,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    placeholder,
    oninput: oninput ?? ((event) => changed(pointer, read(event))),
  });
}

/** One of `values`, each with a sentence about it or none. */
export function choice(pointer, label, values, fallback) {
  const present = text(get(state.request, pointer)) || fallback;
  const all = Object.hasOwn(values, present) ? values : { [present]: "", ...values };
  const options = Object.entries(all).map(([value, title]) => h("option", { value, title: title || undefined, selected: value === present }, value));
  return h("select", { "data-pointer": pointer, "aria-label": label, onchange: (event) => changed(pointer, event.target.value) }, options);
}

export function removal(label, remove) {
  return h("button", { type: "button", class: "remove", "aria-label": label, title: label, onclick: remove }, "×");
}
