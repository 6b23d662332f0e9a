// Each fault beside the field that it is about, by the service's JSON pointers.

import { byId, h } from "./dom.js";
import { on } from "./state.js";

let errors = [];

/** The field that a pointer is about, or the nearest one around it. */
function fieldOf(pointer) {
  for (let at = pointer; at !== ""; at = at.slice(0, at.lastIndexOf("/"))) {
    const exact = document.querySelector(`#form [data-pointer="${CSS.escape(at)}"]`);
    if (exact) return exact;
    const inside = document.querySelector(`#form [data-pointer^="${CSS.escape(at)}/"]`);
    if (inside && at.split("/").length > 3) return inside;
  }
  return null;
}

/** Each fault beside its field; those about no field of the form, above it. */
export function showFaults(found) {
  errors = found;
  for (const old of document.querySelectorAll("#form .fault-row, #form .row-fault")) old.remove();
  for (const input of document.querySelectorAll("#form [aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
  const homeless = [];
  found.forEach((error, i) => {
    const input = fieldOf(error.pointer);
    if (!input) {
      homeless.push(error);
      return;
    }
    const id = `fault-${i}`;
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", [input.getAttribute("aria-describedby"), id].filter(Boolean).join(" "));
    place(input, id, error.detail);
  });
  const box = byId("faults");
  box.hidden = found.length === 0;
  box.replaceChildren();
  if (found.length === 0) return;
  const count = found.length - homeless.length;
  if (count) box.append(h("p", {}, `${count} field${count > 1 ? "s need" : " needs"} another value; the plan shown is the last one that was right.`));
  for (const error of homeless) box.append(h("p", {}, error.pointer ? h("code", {}, error.pointer) : null, error.pointer ? " " : null, error.detail));
}

function place(input, id, detail) {
  const message = h("span", { class: "fault", id }, detail);
  const row = input.closest("tr");
  if (row) {
    let after = row;
    while (after.nextElementSibling?.classList.contains("fault-row")) after = after.nextElementSibling;
    after.after(h("tr", { class: "fault-row" }, h("td", { colspan: row.children.length }, message)));
    return;
  }
  const home = input.closest("[data-row]") ?? input.closest("section, details")?.querySelector("[data-row]");
  home?.after(h("div", { class: "row-fault" }, message));
  const details = input.closest("details");
  if (details) details.open = true;
}

/** Puts them into a form that was made anew. */
export const showFaultsAgain = () => showFaults(errors);

on("loaded", () => {
  errors = [];
});
