// A value as a tree that opens where one looks. It is text whatever it says; long lists come in pieces.

import { useState } from "react";
import type { Json } from "../api/types.gen.ts";
import { brief } from "../logic/json.ts";
import { useText } from "../text/index.ts";
import { Text } from "./Value.tsx";

const PIECE = 100;
const LINE = 80;

/** `open`: how many levels are open at first. */
export function Tree({ value, open = 2 }: { value: Json | undefined; open?: number }) {
  const t = useText();
  if (value === undefined || value === null) return <span className="quiet">{t.app.none}</span>;
  if (typeof value !== "object") return <Leaf value={value} />;
  if (Object.keys(value).length === 0) return <span className="quiet">{t.app.none}</span>;
  return (
    <ul className="tree">
      <Branches value={value} open={open} />
    </ul>
  );
}

function Branches({ value, open }: { value: Json[] | { [key: string]: Json }; open: number }) {
  const t = useText();
  const [shown, setShown] = useState(PIECE);
  const entries: [string, Json][] = Array.isArray(value)
    ? value.slice(0, shown).map((each, i) => [String(i), each])
    : Object.entries(value).slice(0, shown);
  const size = Array.isArray(value) ? value.length : Object.keys(value).length;
  return (
    <>
      {entries.map(([name, each]) => (
        <Branch key={name} name={name} value={each} open={open} />
      ))}
      {size > shown && (
        <li>
          <button className="plain slim" onClick={() => setShown(shown + 5 * PIECE)}>
            {t.decision.moreEntries(size - shown)}
          </button>
        </li>
      )}
    </>
  );
}

function Branch({ name, value, open }: { name: string; value: Json; open: number }) {
  const [isOpen, setOpen] = useState(open > 0);
  const label = name.slice(0, 200);
  if (typeof value !== "object" || value === null) {
    return (
      <li>
        <span className="key">{label}</span> <Leaf value={value} />
      </li>
    );
  }
  const size = Array.isArray(value) ? value.length : Object.keys(value).length;
  if (size === 0) {
    return (
      <li>
        <span className="key">{label}</span> <span className="quiet">{Array.isArray(value) ? "[]" : "{}"}</span>
      </li>
    );
  }
  return (
    <li>
      <button className="plain slim" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <span className="key">{label}</span>{" "}
        <span className="quiet small">{Array.isArray(value) ? `[${size}]` : `{${size}}`}</span>
      </button>
      {!isOpen && <span className="quiet small"> {brief(value, LINE)}</span>}
      {isOpen && (
        <ul>
          <Branches value={value} open={open - 1} />
        </ul>
      )}
    </li>
  );
}

function Leaf({ value }: { value: Json }) {
  if (typeof value === "string") return <Text text={value} className="string" />;
  return <span className="literal">{String(value)}</span>;
}
