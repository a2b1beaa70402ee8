/**
 * JSON Patch (RFC 6902) that shares what it does not change and never touches the document it is given.
 *
 * Of our own, because the usual library is CommonJS, four times as large, and changes its document in place; a state that
 * subscribers hold must not change under them.
 */

import { PatchError } from "./errors.js";
import type { PatchOperation } from "./events.js";

/** `document` after all of `operations`. Throws `PatchError` if one of them does not apply. */
export function applyPatch(document: unknown, operations: readonly PatchOperation[]): unknown {
  return operations.reduce(applyOperation, document);
}

function applyOperation(document: unknown, operation: PatchOperation): unknown {
  const path = tokens(operation.path);
  switch (operation.op) {
    case "add":
      return add(document, path, operation.value);
    case "remove":
      return remove(document, path);
    case "replace":
      return replace(document, path, operation.value);
    case "copy":
      return add(document, path, find(document, tokens(operation.from ?? "")));
    case "move": {
      const from = tokens(operation.from ?? "");
      if (from.length < path.length && from.every((token, index) => token === path[index])) {
        throw new PatchError(`cannot move ${operation.from} into itself, to ${operation.path}`);
      }
      return add(remove(document, from), path, find(document, from));
    }
    case "test":
      if (!same(find(document, path), operation.value)) {
        throw new PatchError(`the test of ${operation.path || "the document"} failed`);
      }
      return document;
    default:
      throw new PatchError(`expected a patch operation, found ${JSON.stringify((operation as { op?: unknown }).op)}`);
  }
}

type Pointer = readonly string[];
type Container = readonly unknown[] | Readonly<Record<string, unknown>>;

function tokens(pointer: unknown): Pointer {
  if (typeof pointer !== "string" || (pointer !== "" && !pointer.startsWith("/"))) {
    throw new PatchError(`expected a JSON Pointer, found ${JSON.stringify(pointer)}`);
  }
  return pointer.split("/").slice(1).map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function add(document: unknown, path: Pointer, value: unknown): unknown {
  return change(document, path, value, (parent, token) => {
    if (!isArray(parent)) return { ...parent, [token]: value };
    const index = token === "-" ? parent.length : indexOf(parent, token, parent.length);
    return [...parent.slice(0, index), value, ...parent.slice(index)];
  });
}

function replace(document: unknown, path: Pointer, value: unknown): unknown {
  return change(document, path, value, (parent, token) => set(parent, token, value));
}

function remove(document: unknown, path: Pointer): unknown {
  if (path.length === 0) return null;
  return change(document, path, null, (parent, token) => {
    get(parent, token);
    if (isArray(parent)) return parent.filter((_, index) => String(index) !== token);
    return Object.fromEntries(Object.entries(parent).filter(([name]) => name !== token));
  });
}

function find(document: unknown, path: Pointer): unknown {
  return path.reduce((place, token) => get(container(place, token), token), document);
}

/** `document` with `alter` applied to the container of the place that `path` names; the root becomes `whole`. */
function change(
  document: unknown,
  path: Pointer,
  whole: unknown,
  alter: (parent: Container, token: string) => unknown,
): unknown {
  const [token, ...rest] = path;
  if (token === undefined) return whole;
  const parent = container(document, token);
  return rest.length === 0 ? alter(parent, token) : set(parent, token, change(get(parent, token), rest, whole, alter));
}

function container(place: unknown, token: string): Container {
  if (typeof place === "object" && place !== null) return place as Container;
  throw new PatchError(
    `expected an object or a list that may hold ${JSON.stringify(token)}, found ${JSON.stringify(place)}`,
  );
}

/** What stands there; what is inherited does not. */
function get(parent: Container, token: string): unknown {
  if (isArray(parent)) return parent[indexOf(parent, token, parent.length - 1)];
  if (!Object.hasOwn(parent, token)) throw new PatchError(`there is no ${JSON.stringify(token)}`);
  return parent[token];
}

function set(parent: Container, token: string, value: unknown): Container {
  get(parent, token);
  if (isArray(parent)) return parent.map((item, index) => (String(index) === token ? value : item));
  return { ...parent, [token]: value }; // a computed key is an own property, also one called __proto__
}

function indexOf(list: readonly unknown[], token: string, most: number): number {
  const index = /^(0|[1-9][0-9]*)$/.test(token) ? Number(token) : -1;
  if (index < 0 || index > most) {
    throw new PatchError(`expected a place in a list of ${list.length}, found ${JSON.stringify(token)}`);
  }
  return index;
}

function isArray(parent: Container): parent is readonly unknown[] {
  return Array.isArray(parent);
}

function same(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every(
      (name) =>
        Object.hasOwn(other, name) &&
        same((one as Record<string, unknown>)[name], (other as Record<string, unknown>)[name]),
    )
  );
}
