// Where the parts of a plan stand: streams in a column on the left, each join to the right of what it joins.
//
// A plan is a tree, so its leaves in the order of a walk from the root never make bands cross. The deepest input of a join
// comes first: the walk begins where the plan begins, top left. A join stands half-way between its first and its last
// input; its bands come in side by side, as wide as they are. Tables stand among the streams; nothing flows from them.

// In px. `gap` is between a join and the next, where bands turn; `outlet` is to the right of the root, for the results; `longest` is how long a
// stream's label may be. The tight form leaves out whatever would stand over a band.
const SIZES = [
  { form: "roomy", label: 158, longest: 240, box: 104, state: 26, gap: 84, outlet: 96, margin: 14 },
  { form: "compact", label: 104, longest: 240, box: 86, state: 20, gap: 66, outlet: 74, margin: 8 },
  { form: "tight", label: 62, longest: 96, box: 60, state: 12, gap: 26, outlet: 52, margin: 6 },
];
const READABLE = 0.8; // a form is used where the whole tree fits the width at this scale
const LETTER = 7.2; // width of one, on average
const ROW = [
  [14, 48],
  [40, 40],
  [Infinity, 32],
]; // up to so many streams: px a row
const BOX_HEIGHT = 42;
const LEAST_STATE = 4;
const BAND = { least: 1.5, most: 18 };

export const labelOf = (operator) => operator.streams.join("⋈");

/** The form in which a plan is drawn where there is so much width: the roomiest in which all of it, root included, can be seen and read. */
export function sizeFor(plan, room) {
  const depth = Math.max(...columnsOf(plan).values());
  const wide = (size) => beginning(plan, size) + Math.max(1, depth) * (size.gap + size.box + size.state) + size.outlet;
  return SIZES.find((size) => wide(size) * READABLE <= room) ?? SIZES.at(-1);
}

const labelWidthOf = (plan, size) => {
  const longest = Math.max(...[...plan.query.streams, ...(plan.query.tables ?? [])].map((leaf) => Math.min(leaf.name.length, 30)));
  return Math.min(size.longest, Math.max(size.label, longest * LETTER + 14));
};

/** Where the bands of streams begin. */
const beginning = (plan, size) => size.margin + labelWidthOf(plan, size) + size.state + 6;

/** {nodes, size, width, height, labelWidth}; nodes in the order of the walk, each with its place, its band and its state. */
export function layout(plan, bytesOf, size = SIZES[0]) {
  const columns = columnsOf(plan);
  const streams = new Map(plan.query.streams.map((stream) => [stream.name, stream]));
  const tables = tablesOf(plan);
  const operators = new Map(plan.operators.map((operator) => [operator.id, operator]));
  const users = new Map(plan.operators.flatMap((operator) => operator.inputs.map((input) => [input, operator])));
  const root = plan.operators.at(-1)?.id ?? plan.query.streams[0].name;
  const walk = [];
  const waiting = [[root, 1]];
  while (waiting.length) {
    const [id, level] = waiting.pop();
    const operator = operators.get(id);
    const [stream, table, user] = [streams.get(id), tables.get(id), users.get(id)];
    const probed = !user || user.states.some((state) => state.input === id);
    const held = operator ? operator.state_bytes : !probed ? 0 : table ? table.state_bytes : bytesOf(stream);
    walk.push({ id, level, operator, stream, table, user, rate: (operator ?? stream)?.rate ?? 0, bytes: held });
    if (operator) for (const input of deepestFirst(operator, columns).reverse()) waiting.push([input, level + 1]);
  }
  const nodes = new Map(walk.map((node) => [node.id, node]));
  const leaves = walk.filter((node) => !node.operator);
  const row = ROW.find(([most]) => leaves.length <= most)[1];
  const fastest = Math.max(...walk.map((node) => node.rate), Number.MIN_VALUE);
  const largest = Math.max(...walk.map((node) => node.bytes), Number.MIN_VALUE);
  for (const node of walk) {
    node.band = Math.max(BAND.least, BAND.most * Math.sqrt(node.rate / fastest));
    node.side = node.bytes > 0 ? Math.max(LEAST_STATE, size.state * Math.sqrt(node.bytes / largest)) : 0;
  }
  const first = beginning(plan, size);
  leaves.forEach((leaf, i) => Object.assign(leaf, { y: size.margin + row * (i + 0.5), height: row, out: first }));
  for (const operator of plan.operators) {
    const node = nodes.get(operator.id);
    const inputs = deepestFirst(operator, columns).map((id) => nodes.get(id));
    const total = inputs.reduce((sum, input) => sum + Math.max(input.band, 3) + 3, -3);
    node.height = Math.max(BOX_HEIGHT, total + 12);
    node.y = (inputs[0].y + inputs.at(-1).y) / 2;
    node.x = first + size.gap + (columns.get(node.id) - 1) * (size.box + size.state + size.gap);
    node.out = node.x + size.box + (node.side ? size.state + 6 : 0);
    let dock = node.y - total / 2;
    for (const input of inputs) {
      const wide = Math.max(input.band, 3);
      input.dock = { x: node.x, y: dock + wide / 2 };
      input.spot = { x: input.operator ? input.out + 7 : Math.max(input.out + 12, node.x - size.gap + 12), y: input.y };
      dock += wide + 3;
    }
  }
  const heights = walk.map((node) => node.y + node.height / 2);
  const rootNode = nodes.get(root);
  return {
    nodes: walk,
    labelWidth: labelWidthOf(plan, size),
    size,
    width: rootNode.out + size.outlet,
    height: Math.max(...heights, size.margin + row * leaves.length) + size.margin,
  };
}

/** What the query says of each table, and how the plan reaches it. */
export function tablesOf(plan) {
  const reached = new Map((plan.tables ?? []).map((table) => [table.name, table]));
  return new Map((plan.query.tables ?? []).map((table) => [table.name, { ...table, ...reached.get(table.name) }]));
}

/** How many joins lie between each part and its farthest stream. */
function columnsOf(plan) {
  const columns = new Map([...plan.query.streams, ...(plan.query.tables ?? [])].map((leaf) => [leaf.name, 0]));
  for (const operator of plan.operators) columns.set(operator.id, 1 + Math.max(...operator.inputs.map((input) => columns.get(input))));
  return columns;
}

const deepestFirst = (operator, columns) => [...operator.inputs].sort((a, b) => columns.get(b) - columns.get(a));
