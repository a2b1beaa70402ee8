/** `<hai-approval>` and `<hai-inbox>`: their types, and how a page gets them from its server. */

export type * from "./elements_types.js";

export interface LoadOptions {
  /** The hash of the script, as the server's `/console/elements.json` says it: another script is not run. */
  integrity?: string;
  /** Of a policy that lets scripts in by it. */
  nonce?: string;
}

const loading = new Map<string, Promise<void>>();

/**
 * Loads the elements from the server at this address, once. They are of the server's own release, so they fit it, and
 * are for that server: an element without `server` asks it.
 *
 * Throws an Error if the script can't be had: the origin of the page has to be one of the server's
 * `HAI_FLOW_ALLOWED_ORIGINS`, and its policy has to let the script in.
 */
export function loadElements(server: string | URL, options: LoadOptions = {}): Promise<void> {
  const address = new URL("console/elements.js", `${String(server).replace(/\/+$/, "")}/`).href;
  const known = loading.get(address) ?? load(address, options);
  loading.set(address, known);
  known.catch(() => loading.delete(address));
  return known;
}

function load(address: string, { integrity, nonce }: LoadOptions): Promise<void> {
  // Where a page demands Trusted Types, the address of a script element is refused, and an import is not.
  if (integrity === undefined && nonce === undefined) return import(/* webpackIgnore: true */ /* @vite-ignore */ address);
  const script = document.createElement("script");
  Object.assign(script, { type: "module", crossOrigin: "anonymous", src: address });
  if (integrity !== undefined) script.integrity = integrity;
  if (nonce !== undefined) script.nonce = nonce;
  return new Promise((resolve, reject) => {
    script.addEventListener("load", () => resolve());
    script.addEventListener("error", () => reject(new Error(`${address} can't be loaded: see HAI_FLOW_ALLOWED_ORIGINS and this page's policy.`)));
    document.head.append(script);
  });
}
