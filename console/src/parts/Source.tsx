// A piece of a document with its line numbers, the lines that are meant marked.

interface SourceProps {
  source: string;
  line: number;
  endLine: number;
  label: string;
}

const AROUND = 2;
const LINES = 40;
const CHARACTERS = 400;

export function Source({ source, line, endLine, label }: SourceProps) {
  const first = Math.max(1, line - AROUND);
  const last = Math.min(endLine + AROUND, first + LINES);
  const lines = source.split("\n").slice(first - 1, last);
  return (
    <pre className="source" tabIndex={0} role="region" aria-label={label}>
      {lines.map((each, i) => {
        const number = first + i;
        return (
          <div key={number} className={number >= line && number <= endLine ? "meant" : undefined}>
            <span className="number">{number}</span>
            {each.slice(0, CHARACTERS)}
            {each.length > CHARACTERS && "…"}
          </div>
        );
      })}
    </pre>
  );
}
