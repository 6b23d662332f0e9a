// What a plan uses against its caps, what is proven of it, and why it is this one.

import { byId, h, say } from "./dom.js";
import * as words from "./words.js";

const PROOFS = { optimal: "optimal", bounded: "bounded", none: "none" };

function meter(id, label, used, cap, shown) {
  const host = byId(id);
  const over = cap !== undefined && cap !== null && used > cap;
  const share = cap ? Math.min(1, used / cap) : 0;
  const bar = h("progress", { max: 1, value: share, "aria-label": `${label} against its cap` });
  host.classList.toggle("over", over);
  const note = cap ? `${words.percent(used / cap)} of ${shown(cap)}` : "no cap";
  host.replaceChildren(h("span", { class: "label" }, label), h("strong", {}, shown(used)), h("span", { class: "note" }, note), bar);
}

export function showFigures(plan) {
  meter("cpu-meter", "CPU", plan.cost.cpu, plan.resources.cpu, words.cpu);
  meter("memory-meter", "Memory", plan.cost.memory_bytes, plan.resources.memory_bytes, words.bytes);
  byId("verdict").className = plan.qualified ? "good" : "bad";
  say(byId("verdict"), plan.qualified ? "Fits" : "Does not fit");
  const capped = plan.resources.cpu !== undefined || plan.resources.memory_bytes !== undefined;
  say(byId("verdict-note"), plan.qualified ? (capped ? "within the caps" : "no caps") : "the least bad plan");
  say(byId("headroom"), plan.headroom === null ? "–" : `×${words.amount(plan.headroom)}`);
  say(byId("proof"), PROOFS[plan.proof] ?? plan.proof);
  const alone = plan.proof !== "optimal" && plan.tree_proof === "optimal" ? ", the best without caches" : "";
  say(byId("gap"), plan.gap === null ? `nothing is proven${alone}` : `gap ${words.percent(plan.gap)}${alone}`);
  say(byId("results"), words.amount(plan.cost.output_rate));
  const short = plan.allocation && plan.allocation.throughput < plan.allocation.saturation_throughput;
  say(byId("results-note"), short ? `${words.amount(plan.allocation.throughput)}/s within the CPU` : "tuples/s");
}

export function showWhy(host, plan) {
  host.replaceChildren(
    ...[
      plan.shortfall ? shortfall(plan) : null,
      plan.warnings.length
        ? h(
            "ul",
            { class: "warnings" },
            plan.warnings.map((warning) => h("li", {}, warning)),
          )
        : null,
      h(
        "ul",
        { class: "reasons" },
        plan.explanation.map((sentence) => h("li", {}, sentence)),
      ),
      plan.allocation ? allocation(plan.allocation) : null,
      plan.caches.length ? caches(plan.caches) : null,
    ].filter(Boolean),
  );
}

function shortfall(plan) {
  const lack = plan.shortfall;
  const lines = [];
  const cap = plan.resources;
  if (lack.min_cpu !== null && cap.cpu !== undefined && lack.min_cpu > cap.cpu) lines.push(`Any plan takes at least ${words.cpu(lack.min_cpu)} CPU.`);
  if (lack.min_memory_bytes !== null && cap.memory_bytes !== undefined && lack.min_memory_bytes > cap.memory_bytes)
    lines.push(`Any plan takes at least ${words.bytes(lack.min_memory_bytes)} of memory.`);
  if (lack.cpu_at_memory_cap !== null && cap.memory_bytes !== undefined)
    lines.push(`Within the memory cap it takes ${words.cpu(lack.cpu_at_memory_cap)} CPU.`);
  if (lack.memory_bytes_at_cpu_cap !== null && cap.cpu !== undefined)
    lines.push(`Within the CPU cap it takes ${words.bytes(lack.memory_bytes_at_cpu_cap)}.`);
  if (lack.rate_scale !== null) lines.push(`With all rates at ${words.percent(lack.rate_scale)} of these, a plan fits.`);
  const windows = (lack.windows ?? []).map((window) => `${window.stream} ${words.windowOf(window)}`);
  if (windows.length)
    lines.push(`Memory would do with these windows: ${windows.join(", ")}; that keeps ${words.amount(lack.output_rate)} results/s.`);
  return h(
    "div",
    { class: "shortfall", id: "shortfall" },
    h("h3", {}, "Nothing fits the caps"),
    h(
      "ul",
      {},
      lines.map((line) => h("li", {}, line)),
    ),
  );
}

function allocation(given) {
  const rows = given.streams.map((stream) =>
    h("tr", {}, h("th", { scope: "row" }, stream.stream), h("td", {}, words.percent(stream.share)), h("td", {}, stream.fresh ? "" : "stale")),
  );
  return h(
    "div",
    { class: "allocation" },
    h("h3", {}, "Who may probe how much"),
    h(
      "p",
      {},
      `${words.amount(given.throughput)} of ${words.amount(given.saturation_throughput)} results/s within the CPU cap` +
        (given.freshness_met ? "." : "; freshness is not met."),
    ),
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h("tr", {}, h("th", { scope: "col" }, "stream"), h("th", { scope: "col" }, "may probe"), h("th", { scope: "col" }, "freshness")),
      ),
      h("tbody", {}, rows),
    ),
  );
}

function caches(list) {
  return h(
    "div",
    {},
    h("h3", {}, "Caches"),
    h(
      "ul",
      {},
      list.map((cache) => {
        const where = `${cache.id}: ${cache.streams.join("⋈")} for ${cache.input} in ${cache.operator} by ${cache.key.join(", ")}`;
        const what = `${words.percent(1 - cache.miss_probability)} hits, saves ${words.cpu(cache.saves)} CPU, holds ${words.bytes(cache.memory_bytes)}`;
        return h("li", {}, `${where}; ${what}.`);
      }),
    ),
  );
}
