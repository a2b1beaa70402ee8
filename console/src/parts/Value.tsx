// A value as people read it, whole: each part of it has room on every screen, and what is not shown yet says how much it
// is. It is text whatever it says.

import { type ReactNode, useEffect, useRef, useState } from "react";
import type { Json } from "../api/types.gen.ts";
import { isObject } from "../logic/json.ts";
import { type Schema, schemaOfEntry, schemaOfProperty } from "../logic/schema.ts";
import { type Column, type Row, cellOf, columnsOf, sums } from "../logic/table.ts";
import { numberText } from "../logic/numbers.ts";
import { locale, useText } from "../text/index.ts";
import { humanised } from "../text/names.ts";
import { Markdown } from "./Markdown.tsx";
import { Media, mediaOf } from "./Media.tsx";

const ENTRIES = 50;
const ROWS = 10;
const CHARACTERS = 4000;
const INDENTED = 6; // deeper levels have no room of their own: what they hold would get none
const NESTED = 40;
/** Lines of a program or of a change to one: what they mean depends on where they begin. */
const CODE = /\n(?:@@ |\t| {2,}\S)/;
const FILE = /^file_[0-9a-f]{64}$/;

interface ValueProps {
  value: Json | undefined;
  /** What is known of the value: titles of its parts, and which of its numbers are money. */
  schema?: Schema | null | undefined;
  /** Whether its texts of several lines were written for people, as Markdown. */
  prose?: boolean;
}

export function Value({ value, schema = null, prose = false }: ValueProps) {
  return (
    <div className="value">
      <Part {...{ value, schema, prose }} depth={0} />
    </div>
  );
}

interface PartProps {
  value: Json | undefined;
  schema: Schema | null;
  depth: number;
  prose: boolean;
  /** Where the value stands, for how its number was written. */
  holder?: object;
  at?: string | number;
}

function Part({ value, schema, depth, prose, holder, at }: PartProps) {
  if (prose && typeof value === "string" && value.trim().includes("\n")) return <Markdown text={value} top={4} />;
  if (typeof value !== "object" || value === null) return <Plain {...{ value, schema, holder, at }} />;
  if (Object.keys(value).length === 0) return <Nothing />;
  if (depth >= NESTED) return <Text text={JSON.stringify(value)} />;
  if (Array.isArray(value)) {
    const columns = columnsOf(value);
    return columns === null ? <Entries value={value} {...{ schema, depth, prose }} /> : <Table rows={value as Row[]} {...{ columns, schema }} />;
  }
  const media = mediaOf(value);
  return (
    <>
      {media !== null && <Media type={media} part={value} />}
      <Entries value={value} {...{ schema, depth, prose }} />
    </>
  );
}

function Nothing() {
  const t = useText();
  return <span className="quiet">{t.app.none}</span>;
}

/** Text, a number, yes or no. */
function Plain({ value, schema, holder, at }: { value: Json | undefined; schema: Schema | null; holder: object | undefined; at: string | number | undefined }) {
  const t = useText();
  if (typeof value === "string" && FILE.test(value)) return <Media type="file" part={{ type: "file", value, name: value }} />;
  if (typeof value === "string") return value.trim() === "" ? <span className="text quiet">“{value}”</span> : <Text text={value} />;
  if (typeof value === "boolean") return <span>{value ? t.decision.yes : t.decision.no}</span>;
  if (typeof value !== "number") return <Nothing />;
  const text = numberText(holder, at ?? "", value);
  return <span className="number">{moneyText(text, schema, holder) ?? text}</span>;
}

/** A sum of money in the reader's way, with all of its digits, where its schema says `format: money` (`money:EUR`). */
function moneyText(text: string, schema: Schema | null, holder: object | undefined): string | null {
  const [format, own] = String(schema?.["format"] ?? "").split(":");
  if (format !== "money") return null;
  const beside = isObject(holder) ? holder["currency"] : undefined;
  const currency = own ?? (typeof beside === "string" ? beside : "");
  const digits = { maximumFractionDigits: 20 };
  try {
    const how: Intl.NumberFormatOptions = /^[A-Z]{3}$/.test(currency) ? { style: "currency", currency, ...digits } : { minimumFractionDigits: 2, ...digits };
    return new Intl.NumberFormat(locale(), how).format(text as Intl.StringNumericLiteral);
  } catch {
    return null;
  }
}

function Entries({ value, schema, depth, prose }: { value: Json[] | Record<string, Json>; schema: Schema | null; depth: number; prose: boolean }) {
  const t = useText();
  const [shown, setShown] = useState(ENTRIES);
  const isList = Array.isArray(value);
  const all: [string, Json][] = isList ? value.map((each, i) => [String(i + 1), each]) : Object.entries(value);
  const numbers = isList ? value.slice(shown).filter((each) => typeof each === "number") : [];
  const left = all.length - shown;
  const hidden = left > 0 && numbers.length === left ? sums(numbers.map((each) => ({ sum: each })), [["sum"]]) : [];
  return (
    <>
      <dl className={depth > 0 && depth < INDENTED ? "facts inner" : "facts"}>
        {all.slice(0, shown).map(([name, each], i) => {
          const of = isList ? schemaOfEntry(schema) : schemaOfProperty(schema, name);
          const title = typeof of?.["title"] === "string" ? of["title"] : isList ? name : humanised(name);
          const wide = typeof each === "object" && each !== null && Object.keys(each).length > 0;
          return (
            <div key={name} className={wide ? "wide" : ""}>
              <dt dir="auto" title={title === name ? undefined : name}>
                <Text text={title} />
              </dt>
              <dd>
                <Part value={each} schema={of} depth={depth + 1} prose={prose} holder={value} at={isList ? i : name} />
              </dd>
            </div>
          );
        })}
      </dl>
      {left > 0 && (
        <More onClick={() => setShown(shown + 10 * ENTRIES)}>
          {t.decision.moreEntries(left)}
          {hidden.map(([, sum]) => ` (${t.decision.sumOf("", sum)})`)}
        </More>
      )}
    </>
  );
}

function More({ onClick, children }: { onClick(): void; children: ReactNode }) {
  return (
    <button type="button" className="more" onClick={onClick}>
      {children}
    </button>
  );
}

/** A list of like objects. It moves sideways by itself where it is wider than the page, and says so. */
function Table({ rows, columns, schema }: { rows: Row[]; columns: Column[]; schema: Schema | null }) {
  const t = useText();
  const [shown, setShown] = useState(ROWS);
  const [wider, setWider] = useState(false);
  const scroller = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    const look = (): void => setWider(box.scrollWidth > box.clientWidth + 1);
    const observer = new ResizeObserver(look);
    observer.observe(box);
    look();
    return () => observer.disconnect();
  }, [shown]);
  const of = schemaOfEntry(schema);
  const schemas = columns.map((column) => column.reduce<Schema | null>(schemaOfProperty, of));
  const titles = columns.map((column) =>
    column
      .map((name, i) => {
        const title = column.slice(0, i + 1).reduce<Schema | null>(schemaOfProperty, of)?.["title"];
        return typeof title === "string" ? title : humanised(name);
      })
      .join(" · "),
  );
  const left = rows.slice(shown);
  return (
    <>
      {wider && <p className="note warn small">{t.decision.sideways(columns.length)}</p>}
      <div className="sideways" ref={scroller} tabIndex={0} role="group" aria-label={t.decision.table(rows.length)}>
        <table>
          <thead>
            <tr>
              <th scope="col" className="nth">
                <span className="hidden">{t.decision.rowNumber}</span>
              </th>
              {titles.map((title, i) => (
                <th key={i} scope="col" dir="auto">
                  <Text text={title} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, shown).map((row, i) => (
              <tr key={i}>
                <th scope="row" className="quiet">
                  {i + 1}
                </th>
                {columns.map((column, j) => {
                  const cell = cellOf(row, column);
                  const value = cell?.holder[cell.at];
                  return (
                    <td key={j} className={typeof value === "number" ? "number" : ""}>
                      {cell && <Plain {...{ value }} {...cell} schema={schemas[j] ?? null} />}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {left.length > 0 && (
        <More onClick={() => setShown(shown + 20 * ROWS)}>
          {t.decision.moreEntries(left.length)}
          {sums(left, columns).map(([column, sum]) => ` · ${t.decision.sumOf(titles[columns.indexOf(column)] ?? "", sum)}`)}
        </More>
      )}
    </>
  );
}

/** Text of any length, cut until one asks for the rest. */
export function Text({ text, className = "" }: { text: string; className?: string }) {
  const t = useText();
  const [shown, setShown] = useState(CHARACTERS);
  return (
    <>
      <span className={`text ${CODE.test(text) ? "code " : ""}${className}`} dir="auto">
        {text.length > shown ? text.slice(0, shown) : text}
      </span>
      {text.length > shown && (
        <button type="button" className="more" onClick={() => setShown(shown + 50 * CHARACTERS)}>
          {t.decision.tooLong(text.length - shown)}
        </button>
      )}
    </>
  );
}

export function asObject(value: Json | undefined): Record<string, Json> {
  return isObject(value) ? value : {};
}
