// A recorded run: what `statistics.jsonl` and `decisions.jsonl` of a checkpoint folder say, as points in time.
//
// A line of the statistics is a batch; one that was run again is there again, and the later line counts. A line of the
// decisions says which plan is in force from a batch on. Half a line, which a run that was killed may leave, is passed over
// and counted. Time is event time, from the run's first row on: batches may have come faster than that, in a back-fill.

const MOST_POINTS = 400; // beyond, neighbouring batches become one point

/** The lines of a file that are JSON objects, and how many are not. */
export function linesOf(text) {
  const found = [];
  let broken = 0;
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    try {
      const entry = JSON.parse(line);
      if (entry === null || typeof entry !== "object" || Array.isArray(entry)) throw new Error("no object");
      found.push(entry);
    } catch {
      broken += 1;
    }
  }
  return { lines: found, broken };
}

const isStatistics = (line) => Number.isInteger(line.batch) && Array.isArray(line.streams) && typeof line.cpu_seconds === "object";
const isDecision = (line) => Number.isInteger(line.batch) && typeof line.decision === "string" && Array.isArray(line.reasons);

/** `texts` are the files, in any order: {batches, decisions, plans, streams, broken}. Throws an Error that says what is missing. */
export function recordingOf(texts) {
  const read = texts.map(linesOf);
  const lines = read.flatMap((file) => file.lines);
  const batches = batchesOf(lines.filter(isStatistics));
  const decisions = lines.filter((line) => !isStatistics(line) && isDecision(line));
  if (!batches.length && !decisions.length)
    throw new Error("No line of a run was found. A checkpoint folder holds decisions.jsonl and statistics.jsonl: choose both.");
  if (!decisions.length) throw new Error("These are statistics without decisions: choose decisions.jsonl of the same checkpoint folder as well.");
  if (!batches.length) throw new Error("These are decisions without statistics: choose statistics.jsonl of the same checkpoint folder as well.");
  const names = [...new Set(batches.flatMap((batch) => Object.keys(batch.rates)))].sort();
  const plans = plansOf(decisions, batches);
  if (!plans.length) throw new Error("No decision holds its plan: these are not the decisions of a run of this version.");
  return {
    points: thinned(batches, plans),
    batches: batches.length,
    plans,
    looks: decisions.filter((decision) => decision.decision === "keep").map((decision) => ({ ...decision, at: startOf(batches, decision.batch) })),
    streams: names,
    broken: read.reduce((sum, file) => sum + file.broken, 0) + lines.filter((line) => !isStatistics(line) && !isDecision(line)).length,
  };
}

/** Batches in order, each with the seconds it reaches to and what it took per second of them. */
function batchesOf(lines) {
  const last = new Map();
  for (const line of lines) last.set(line.batch, line);
  const found = [];
  let reached = null;
  let begun = null;
  for (const line of [...last.values()].sort((a, b) => a.batch - b.batch)) {
    const ends = line.streams.map((stream) => stream.last).filter(Number.isFinite);
    const starts = line.streams.map((stream) => stream.first).filter(Number.isFinite);
    if (!ends.length) continue; // no row came: nothing went on in event time
    begun ??= Math.min(...starts);
    const from = reached ?? begun;
    reached = Math.max(from, ...ends);
    found.push({
      batch: line.batch,
      from: (from - begun) / 1e6,
      to: (reached - begun) / 1e6,
      cpu: Object.values(line.cpu_seconds).reduce((sum, seconds) => sum + seconds, 0),
      results: line.results,
      rates: Object.fromEntries(line.streams.map((stream) => [stream.stream, stream.rows])),
      building: Boolean(line.building),
      shed: (line.shed?.rows ?? 0) + (line.shed?.probes ?? 0),
    });
  }
  return found;
}

/** When a batch begins, by those that are known. */
function startOf(batches, number) {
  const at = batches.find((batch) => batch.batch >= number);
  return at ? at.from : batches.at(-1).to;
}

/** The plans that were in force, one after the other: from when, why, and what was predicted of them. */
function plansOf(decisions, batches) {
  return decisions
    .filter((decision) => decision.plan?.format === "watersmeet.plan/1" && Array.isArray(decision.plan.operators))
    .map((decision) => {
      const { plan } = decision;
      return {
        ...decision,
        at: startOf(batches, decision.batch),
        cpu: plan.allocation?.cpu ?? plan.cost.cpu,
        output: plan.allocation?.throughput ?? plan.cost.output_rate,
      };
    });
}

/** At most MOST_POINTS points: neighbours are added up, but not across a change of the plan. */
function thinned(batches, plans) {
  const size = Math.ceil(batches.length / MOST_POINTS);
  const points = [];
  let open = null;
  for (const batch of batches) {
    const plan = plans.findLastIndex((each) => each.batch <= batch.batch);
    if (open === null || open.count >= size || open.plan !== Math.max(0, plan)) {
      open = { ...batch, rates: { ...batch.rates }, first: batch.batch, count: 1, plan: Math.max(0, plan) };
      points.push(open);
    } else {
      open.count += 1;
      for (const part of ["cpu", "results", "shed"]) open[part] += batch[part];
      for (const [name, rows] of Object.entries(batch.rates)) open.rates[name] = (open.rates[name] ?? 0) + rows;
      Object.assign(open, { batch: batch.batch, to: batch.to, building: open.building || batch.building });
    }
  }
  return points.filter((point) => point.to > point.from).map(perSecond);
}

function perSecond(point) {
  const seconds = point.to - point.from;
  return {
    ...point,
    cpu: point.cpu / seconds,
    results: point.results / seconds,
    rates: Object.fromEntries(Object.entries(point.rates).map(([name, rows]) => [name, rows / seconds])),
  };
}
