// The offer to turn a decision into a standing rule, the form for it, and who decides about the rule.

import { useEffect, useId, useRef, useState } from "react";
import { call, get } from "../../api/client.ts";
import { nowAtServer } from "../../api/now.ts";
import type { Pending, PendingPage, ProposalBody, RuleRecord } from "../../api/types.gen.ts";
import { useSession } from "../../context.ts";
import { neededOf, plainName } from "../../logic/seats.ts";
import { type Bound, PERIODS, areWhole, conditionsOf, firstBounds, kindOf } from "../../logic/standing.ts";
import { schemaOfProperty } from "../../logic/schema.ts";
import { numberText } from "../../logic/numbers.ts";
import { Ask } from "../../parts/Ask.tsx";
import { Field } from "../../parts/Field.tsx";
import { Go } from "../../parts/Go.tsx";
import { useSending } from "../../parts/useSending.ts";
import { Value } from "../../parts/Value.tsx";
import { useText } from "../../text/index.ts";
import { humanised } from "../../text/names.ts";
import { useRuleText } from "../../text/rules.ts";
import { argsOf } from "./answer.ts";
import { useParameters } from "./useParameters.ts";

const DAYS = 30;
const LOOKS_MS = [0, 300, 700, 1500, 3000, 6000];

export function Standing({ pending }: { pending: Pending }) {
  const r = useRuleText();
  const kind = kindOf(pending, useSession());
  const [open, setOpen] = useState(false);
  const [rule, setRule] = useState<RuleRecord | null>(null);
  if (kind === null) return null;
  return (
    <>
      <div role="status">{rule && <Proposed rule={rule} />}</div>
      {rule === null && (
        <div>
          <button onClick={() => setOpen(true)}>{r.offer[kind]}</button>
        </div>
      )}
      {open && (
        <Proposal
          pending={pending}
          kind={kind}
          close={() => setOpen(false)}
          done={(made) => {
            setRule(made);
            setOpen(false);
          }}
        />
      )}
    </>
  );
}

interface ProposalProps {
  pending: Pending;
  kind: "allow" | "never";
  close(): void;
  done(rule: RuleRecord): void;
}

function Proposal({ pending, kind, close, done }: ProposalProps) {
  const r = useRuleText();
  const id = useId();
  const args = argsOf(pending);
  const sent = useRef({ text: "", key: "" });
  const [bounds, setBounds] = useState(() => firstBounds(args));
  const [until, setUntil] = useState(() => dayIn(DAYS));
  const [uses, setUses] = useState("");
  const [every, setEvery] = useState<(typeof PERIODS)[number]>("");
  const [reason, setReason] = useState("");
  const { busy, problem, send } = useSending();
  const parameters = useParameters(pending);

  const propose = (): Promise<unknown> =>
    send(async () => {
      const often = uses.trim() === "" ? {} : { uses: Number(uses), ...(every && { every }) };
      const body: ProposalBody = {
        pending_id: pending.id,
        kind,
        ...conditionsOf(args, bounds),
        until: new Date(`${until}T23:59:59`).toISOString(),
        ...often,
        reason: reason.trim(),
      };
      // The same proposal sent again, because its answer has been lost, is one proposal.
      const text = JSON.stringify(body);
      if (sent.current.text !== text) sent.current = { text, key: newKey() };
      done(await call<RuleRecord>("POST", "/v1/rules", body, { key: sent.current.key }));
    });

  const isWhole = areWhole(bounds) && reason.trim() !== "" && !Number.isNaN(Date.parse(until)) && /^\s*(\d{1,7})?\s*$/.test(uses);
  return (
    <Ask title={r.title[kind](pending.tool ?? "")} yes={r.propose} form busy={busy} notYet={!isWhole} problem={problem} onYes={() => void propose()} onNo={close}>
      <p>{r.hint[kind]}</p>
      {Object.entries(bounds).map(([name, bound]) => (
        <Condition
          key={name}
          name={name}
          args={args}
          bound={bound}
          schema={parameters}
          onChange={(now) => setBounds({ ...bounds, [name]: now })}
        />
      ))}
      {kind === "never" && Object.values(bounds).every((each) => each.kind === "any") && <p className="note warn">{r.every}</p>}
      <Field id={`${id}until`} label={r.until} type="date" value={until} onChange={setUntil} required />
      {kind === "allow" && (
        <>
          <Field id={`${id}uses`} label={r.uses} type="number" value={uses} onChange={setUses} />
          <div className="field">
            <label htmlFor={`${id}every`}>{r.period}</label>
            <select id={`${id}every`} value={every} onChange={(event) => setEvery(event.currentTarget.value as typeof every)}>
              {PERIODS.map((each) => (
                <option key={each} value={each}>
                  {r.periods[each]}
                </option>
              ))}
            </select>
          </div>
        </>
      )}
      <Field id={`${id}reason`} label={r.reason} value={reason} onChange={setReason} required maxLength={500} />
    </Ask>
  );
}

interface ConditionProps {
  name: string;
  args: ReturnType<typeof argsOf>;
  bound: Bound;
  schema: ReturnType<typeof useParameters>;
  onChange(bound: Bound): void;
}

/** What the rule says of one argument; the value that it had is shown whole. */
function Condition({ name, args, bound, schema, onChange }: ConditionProps) {
  const r = useRuleText();
  const id = useId();
  const value = args[name];
  const property = schema && schemaOfProperty(schema, name);
  const title = typeof property?.["title"] === "string" ? property["title"] : humanised(name);
  const wrong = !areWhole({ [name]: bound });
  return (
    <div className="field">
      <label htmlFor={id}>{r.argument(title)}</label>
      <select id={id} value={bound.kind} onChange={(event) => onChange({ ...bound, kind: event.currentTarget.value as Bound["kind"] })}>
        {(["equal", "most", "any"] as const).map(
          (each) =>
            (each !== "most" || typeof value === "number") && (
              <option key={each} value={each}>
                {r.kinds[each]}
              </option>
            ),
        )}
      </select>
      {bound.kind === "most" ? (
        <>
          <input
            aria-label={r.most(title)}
            inputMode="decimal"
            autoComplete="off"
            value={bound.most}
            aria-invalid={wrong || undefined}
            onInput={(event) => onChange({ ...bound, most: event.currentTarget.value })}
          />
          {wrong && (
            <div className="error" role="alert">
              {r.notNumber}
            </div>
          )}
        </>
      ) : (
        bound.kind === "equal" &&
        (typeof value === "number" ? <div className="number">{numberText(args, name, value)}</div> : <Value value={value} schema={property} />)
      )}
    </div>
  );
}

/** Who decides about the rule, as soon as its run asks them. */
function Proposed({ rule }: { rule: RuleRecord }) {
  const t = useText();
  const r = useRuleText();
  const [question, setQuestion] = useState<Pending | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    void (async () => {
      for (const ms of LOOKS_MS) {
        await new Promise((resolve) => setTimeout(resolve, ms));
        if (abort.signal.aborted) return;
        try {
          const { items } = await get<PendingPage>(`/v1/pendings?run_id=${rule.run_id}`, abort.signal);
          if (items[0] === undefined) continue;
          return setQuestion(await get<Pending>(`/v1/pendings/${encodeURIComponent(items[0].id)}`, abort.signal));
        } catch {
          // Who may not see it is told where to look.
        }
      }
    })();
    return () => abort.abort();
  }, [rule.run_id]);
  const needed = neededOf(question?.needed ?? null);
  // The proposer has started the run that asks.
  const barred = (needed?.exclude ?? []).map((each) => (each === "requester" ? rule.proposed_by : each));
  const names = (all: string[]): string => all.map(plainName).join(t.app.comma);
  return (
    <div className="note good">
      <p>{r.proposed}</p>
      <p>
        {needed === null ? r.notAsked : t.decision.whoMay(names(needed.from.filter((each) => !barred.includes(each))))} {barred.length > 0 && t.decision.whoNot(names(barred))}
      </p>
      <p className="row">
        {rule.run_id !== null && <Go href={`/console/runs/${rule.run_id}`}>{r.run}</Go>}
        <Go href="/console/settings#rules">{r.settings}</Go>
      </p>
    </div>
  );
}

const newKey = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16).padStart(2, "0")).join("");

function dayIn(days: number): string {
  const at = new Date(nowAtServer() + days * 86_400_000);
  return [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((each) => String(each).padStart(2, "0")).join("-");
}
