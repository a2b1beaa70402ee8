// The receipt of a decision, checked by the reader's own browser.

import { useCallback, useEffect, useState } from "react";
import { fetchAs } from "../../api/client.ts";
import { type Problem, asProblem, problemOf } from "../../api/problems.ts";
import { NoCrypto, type ProvenReceipt, Unproven, verifyReceipt } from "../../logic/receipt.ts";
import { plainName } from "../../logic/seats.ts";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Text } from "../../parts/Value.tsx";
import { moment } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { useReceiptText } from "../../text/receipt.ts";

type Checked = { receipt: string; proven: ProvenReceipt } | { receipt: string; error: Unproven | NoCrypto };

/** The bytes as they are: a receipt that is written otherwise is none. Throws a Problem. */
async function fetched(path: string, signal: AbortSignal): Promise<string> {
  const response = await fetchAs(path, { signal });
  if (!response.ok) throw await problemOf(response);
  return response.text();
}

async function checked(id: string, signal: AbortSignal): Promise<Checked> {
  const paths = [`/v1/pendings/${encodeURIComponent(id)}/receipt`, "/.well-known/jwks.json"];
  const [receipt = "", keys = ""] = await Promise.all(paths.map((path) => fetched(path, signal)));
  try {
    return { receipt, proven: await verifyReceipt(receipt, keys) };
  } catch (error) {
    if (error instanceof Unproven || error instanceof NoCrypto) return { receipt, error };
    throw error;
  }
}

function useChecked(id: string): { result: Checked | null; problem: Problem | null; again: () => void } {
  const [state, setState] = useState<{ result: Checked | null; problem: Problem | null }>({ result: null, problem: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const leaving = new AbortController();
    checked(id, leaving.signal).then(
      (result) => setState({ result, problem: null }),
      (error: unknown) => leaving.signal.aborted || setState({ result: null, problem: asProblem(error) }),
    );
    return () => leaving.abort();
  }, [id, turn]);
  const again = useCallback(() => {
    setState({ result: null, problem: null });
    setTurn((n) => n + 1);
  }, []);
  return { ...state, again };
}

export function Receipt({ id }: { id: string }) {
  const t = useText();
  const p = useReceiptText();
  const { result, problem, again } = useChecked(id);
  if (problem !== null) return <ProblemNote problem={problem} again={again} />;
  if (result === null) return <p role="status">{t.app.loading}</p>;
  return (
    <section aria-label={p.title}>
      {"proven" in result ? (
        <Proven proven={result.proven} />
      ) : result.error instanceof NoCrypto ? (
        <p className="note warn" role="status">
          {p.unable}
        </p>
      ) : (
        <p className="note bad" role="alert">
          {p.unproven(p.parts[result.error.part])}
        </p>
      )}
      <Download id={id} receipt={result.receipt} />
    </section>
  );
}

function Proven({ proven: { content, key, textOf } }: { proven: ProvenReceipt }) {
  const t = useText();
  const p = useReceiptText();
  const option = (name: string): string => t.decision.options[name] ?? t.decision.decidedTitle[name] ?? name;
  return (
    <>
      <p className="note good" role="status">
        {p.proven}
      </p>
      <dl className="facts">
        <div>
          <dt>{p.asked}</dt>
          <dd>
            {`${content.question.workflow.name}@${content.question.workflow.version}`} · {moment(content.question.at)}
          </dd>
        </div>
        {content.votes.map((vote) => (
          <div key={`${vote.at} ${vote.by?.sha256 ?? ""}`}>
            <dt>{option(vote.decision)}</dt>
            <dd>
              <Text text={plainName(textOf(vote.by) ?? p.withheld)} /> · {moment(vote.at)}
            </dd>
          </div>
        ))}
        <div>
          <dt>{p.decided}</dt>
          <dd>
            {option(content.decision.outcome)} · {moment(content.decision.at)}
          </dd>
        </div>
        <div>
          <dt>{p.executed}</dt>
          <dd>{content.executed.length === 0 ? p.nothing : content.executed.map((each) => moment(each.ended_at ?? each.began_at)).join(", ")}</dd>
        </div>
        <div>
          <dt>{p.key}</dt>
          <dd>
            <code>{key}</code>
          </dd>
        </div>
      </dl>
    </>
  );
}

function Download({ id, receipt }: { id: string; receipt: string }) {
  const p = useReceiptText();
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([receipt], { type: "application/json" }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [receipt]);
  return (
    <p>
      <a href={url} download={`${id}.receipt.json`}>
        {p.download}
      </a>
    </p>
  );
}
