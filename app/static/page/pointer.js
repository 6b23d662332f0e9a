// JSON pointers (RFC 6901): how the service names the field that a fault is about.

export const parse = (pointer) =>
  pointer === ""
    ? []
    : pointer
        .slice(1)
        .split("/")
        .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));

export function get(document, pointer) {
  let value = document;
  for (const part of parse(pointer)) {
    if (value === null || typeof value !== "object") return undefined;
    value = value[part];
  }
  return value;
}

/** Sets a field, making the objects on its way; undefined removes it. */
export function set(document, pointer, value) {
  const parts = parse(pointer);
  const last = parts.pop();
  let holder = document;
  for (const part of parts) {
    if (holder[part] === null || typeof holder[part] !== "object") holder[part] = {};
    holder = holder[part];
  }
  if (value === undefined) delete holder[last];
  else holder[last] = value;
}
