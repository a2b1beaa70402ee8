// Markdown as nodes. A link says the host that it leads to; nothing is loaded from elsewhere.

import { type ReactNode, useMemo, useState } from "react";
import { type Block, type Span, blocksOf } from "../logic/markdown.ts";
import { useText } from "../text/index.ts";

const CHARACTERS = 8000;

/** A text that an author or a model wrote for people. `top`: the level of its first headings. */
export function Markdown({ text, top = 2 }: { text: string; top?: number }) {
  const t = useText();
  const [shown, setShown] = useState(CHARACTERS);
  const blocks = useMemo(() => blocksOf(text.slice(0, shown)), [text, shown]);
  const ranks = useMemo(() => [...new Set(blocks.flatMap((each) => (each.kind === "heading" ? [each.level] : [])))].sort(), [blocks]);
  return (
    <div className="markdown" dir="auto">
      {blocks.map((each, i) => (
        <Piece key={i} block={each} level={(of) => Math.min(4, top + ranks.indexOf(of))} />
      ))}
      {text.length > shown && (
        <button type="button" className="more" onClick={() => setShown(shown + 20 * CHARACTERS)}>
          {t.decision.tooLong(text.length - shown)}
        </button>
      )}
    </div>
  );
}

function Piece({ block, level }: { block: Block; level?: (of: number) => number }) {
  switch (block.kind) {
    case "heading": {
      const inner = spans(block.spans);
      const at = level?.(block.level);
      // In a quote or a list it is a line in bold: the page's own outline stays in order.
      if (at === undefined) return <p><b>{inner}</b></p>;
      return at === 2 ? <h2>{inner}</h2> : at === 3 ? <h3>{inner}</h3> : <h4>{inner}</h4>;
    }
    case "text":
      return <p>{spans(block.spans)}</p>;
    case "code":
      return <pre tabIndex={0}>{block.text}</pre>;
    case "rule":
      return <hr />;
    case "quote":
      return <blockquote>{pieces(block.blocks)}</blockquote>;
    case "list": {
      const items = block.items.map((each, i) => <li key={i}>{pieces(each)}</li>);
      return block.start === null ? <ul>{items}</ul> : <ol start={block.start}>{items}</ol>;
    }
    case "table":
      return (
        <div className="sideways" tabIndex={0}>
          <table>
            <thead>
              <tr>
                {block.head.map((cell, i) => (
                  <th key={i} scope="col">
                    {spans(cell)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {block.rows.map((row, i) => (
                <tr key={i}>
                  {row.map((cell, j) => (
                    <td key={j}>{spans(cell)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
  }
}

function pieces(blocks: readonly Block[]): ReactNode {
  return blocks.map((each, i) => <Piece key={i} block={each} />);
}

function spans(found: readonly Span[]): ReactNode {
  return found.map((each, i) => <One key={i} span={each} />);
}

function One({ span }: { span: Span }) {
  if (typeof span === "string") return <span>{span}</span>;
  switch (span.kind) {
    case "strong":
      return <strong>{spans(span.spans)}</strong>;
    case "em":
      return <em>{spans(span.spans)}</em>;
    case "del":
      return <s>{spans(span.spans)}</s>;
    case "code":
      return <code>{span.text}</code>;
    case "link":
      return (
        <>
          <a href={span.href} target="_blank" rel="noreferrer noopener nofollow">
            {spans(span.spans)}
          </a>{" "}
          <span className="quiet small">({span.host})</span>
        </>
      );
  }
}
