// What makes elements for all pages (console/scripts/build.mjs): each text between tags, and each attribute that is read,
// is shown with its hidden, turning and look-alike signs as codes. So no page can forget it.

import { Fragment, jsx as make, jsxs as makeSeveral } from "react/jsx-runtime";
import { reveal } from "../logic/signs.ts";

type Props = Record<string, unknown>;
const READ = ["title", "aria-label", "aria-description", "alt", "placeholder"];
const TYPED = new Set(["textarea", "script", "style"]); // what stands in them is edited, or no text

export { Fragment };

export function jsx(type: unknown, props: Props, key?: string): unknown {
  return make(type as never, shown(type, props) as never, key);
}

export function jsxs(type: unknown, props: Props, key?: string): unknown {
  return makeSeveral(type as never, shown(type, props) as never, key);
}

function shown(type: unknown, props: Props): Props {
  if (typeof type === "string" ? TYPED.has(type) : type !== Fragment) return props;
  let changed = props;
  const children = props["children"];
  const read = Array.isArray(children) ? children.map(text) : text(children);
  if (Array.isArray(read) ? read.some((each, i) => each !== (children as unknown[])[i]) : read !== children) {
    changed = { ...changed, children: read };
    if (type === "option" && props["value"] === undefined) changed["value"] = children; // what is sent stays as it is
  }
  for (const name of READ) {
    const value = props[name];
    if (typeof value === "string" && reveal(value) !== value) changed = { ...changed, [name]: reveal(value) };
  }
  return changed;
}

function text(child: unknown): unknown {
  return typeof child === "string" ? reveal(child) : child;
}
