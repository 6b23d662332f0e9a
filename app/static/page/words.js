// Figures as a person reads them: three digits, the same words as `watersmeet explain`.

const SCALES = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

function digits(value, count = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e15 ? value.toExponential(count - 1).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(count)));
}

export function amount(value, count = 3) {
  if (value === null || value === undefined) return "–";
  const scale = SCALES.find(([least]) => Math.abs(value) >= least * 0.9995);
  return scale && Math.abs(value) < 1e15 ? digits(value / scale[0], count) + scale[1] : digits(value, count);
}

export function bytes(value, count = 3) {
  if (value === null || value === undefined) return "–";
  const scale = SCALES.find(([least]) => value >= least * 0.9995);
  return scale && value < 1e15 ? `${digits(value / scale[0], count)} ${scale[1]}B` : `${digits(value, count)} B`;
}

export const cpu = (value, count = 3) => (value === null || value === undefined ? "–" : digits(value, count));

export const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${digits(share * 100)} %`);

export const windowOf = (window) =>
  window?.rows !== undefined && window?.rows !== null ? `${amount(window.rows)} rows` : `${amount(window?.seconds)} s`;

/** Bytes of what a stream's window holds. */
export function streamBytes(stream) {
  const tuples = stream.window.rows ?? stream.rate * stream.window.seconds;
  return tuples * stream.tuple_bytes;
}

export const seconds = (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${digits(value)} s`);

/** The middle of a long name gives way: names of one family differ at their ends. */
export function shortened(name, most) {
  if (name.length <= most) return name;
  const tail = Math.floor((most - 1) / 3);
  return `${name.slice(0, most - 1 - tail)}…${name.slice(name.length - tail)}`;
}
