// A request in the fragment of an address: it never leaves the browser, and the link is all that somebody needs.

const NAME = "request=";

async function through(stream, bytes) {
  const source = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(source).arrayBuffer());
}

const toText = (bytes) =>
  btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
const toBytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

export async function fragmentOf(request) {
  const bytes = new TextEncoder().encode(JSON.stringify(request));
  return `#${NAME}${toText(await through(new CompressionStream("deflate-raw"), bytes))}`;
}

/** The request that a fragment carries, or null where it carries none. Raises where it carries a broken one. */
export async function requestIn(fragment) {
  const text = fragment.replace(/^#/, "");
  if (!text.startsWith(NAME)) return null;
  try {
    const bytes = await through(new DecompressionStream("deflate-raw"), toBytes(text.slice(NAME.length)));
    const request = JSON.parse(new TextDecoder().decode(bytes));
    if (request === null || typeof request !== "object" || Array.isArray(request)) throw new Error("not an object");
    return request;
  } catch {
    throw new Error("The link carries no whole request; it may have been cut off.");
  }
}
