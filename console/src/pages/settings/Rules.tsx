// The standing rules: what they allow or refuse, how often they did, and who stands behind them. One is revoked here.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useId, useState } from "react";
import { call, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Json, RuleRecord, RuleRecords, RuleWithUses } from "../../api/types.gen.ts";
import { useMay, useSession } from "../../context.ts";
import { plainName } from "../../logic/seats.ts";
import { Ask } from "../../parts/Ask.tsx";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { moment } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { useRuleText } from "../../text/rules.ts";

const TONES = { proposed: "warn", active: "good", used_up: "", expired: "", refused: "bad", revoked: "bad" } as const;
const AGAIN_MS = 10_000;

export function Rules() {
  const t = useText();
  const r = useRuleText().list;
  const id = useId();
  const queries = useQueryClient();
  const [over, setOver] = useState(false);
  const [revoking, setRevoking] = useState<RuleRecord | null>(null);
  const { busy, problem, send } = useSending();
  const rules = useQuery({
    queryKey: ["rules", over],
    queryFn: ({ signal }) => get<RuleRecords>(`/v1/rules?over=${over}`, signal),
    refetchInterval: AGAIN_MS,
  });
  const revoke = (rule: RuleRecord): Promise<unknown> =>
    send(async () => {
      await call("POST", `/v1/rules/${rule.id}/revoke`, {});
      setRevoking(null);
      await queries.invalidateQueries({ queryKey: ["rules"] });
    });
  return (
    <div className="stack">
      <p className="quiet">{r.hint}</p>
      <div className="row">
        <input id={id} type="checkbox" checked={over} onChange={(event) => setOver(event.currentTarget.checked)} />
        <label htmlFor={id}>{r.over}</label>
      </div>
      {rules.error && <ProblemNote problem={asProblem(rules.error)} />}
      {rules.isPending && <p role="status">{t.app.loading}</p>}
      {rules.data?.items.length === 0 && <p role="status">{r.none}</p>}
      <ul className="changes">
        {rules.data?.items.map((each) => (
          <Rule key={each.id} rule={each} revoke={() => setRevoking(each)} />
        ))}
      </ul>
      {revoking && (
        <Ask title={r.revokeTitle(revoking.tool)} yes={r.revoke} dangerous busy={busy} problem={problem} onYes={() => void revoke(revoking)} onNo={() => setRevoking(null)}>
          <p>{r.revokeNote}</p>
          <Conditions rule={revoking} />
        </Ask>
      )}
    </div>
  );
}

function Rule({ rule, revoke }: { rule: RuleRecord; revoke(): void }) {
  const t = useText();
  const r = useRuleText().list;
  const operates = useMay("control_runs");
  const { principal } = useSession();
  const holds = ["proposed", "active", "used_up"].includes(rule.status);
  const mayRevoke = holds && (operates || [rule.proposed_by, ...rule.approved_by].includes(principal));
  return (
    <li className="stack">
      <div className="row">
        <span className="grow words">
          <b>{r.kinds[rule.kind](rule.tool)}</b> <span className="quiet">{r.where(rule.workflow)}</span>{" "}
          <span className={`tag ${TONES[rule.status]}`}>{r.statuses[rule.status]}</span> <code className="quiet small">{rule.id.slice(0, 8)}</code>
        </span>
        {mayRevoke && <button onClick={revoke}>{r.revoke}</button>}
      </div>
      <dl className="facts small">
        <Fact name={r.conditions}>
          <Conditions rule={rule} />
        </Fact>
        {rule.kind === "allow" && (
          <Fact name={r.uses}>
            {r.used(rule.uses, rule.uses_max)} {rule.every && r.each(rule.every)}
          </Fact>
        )}
        <Fact name={r.until}>
          <time dateTime={rule.until}>{moment(rule.until)}</time>
        </Fact>
        <Fact name={r.proposedBy}>{plainName(rule.proposed_by)}</Fact>
        {rule.approved_by.length > 0 && <Fact name={r.approvedBy}>{rule.approved_by.map(plainName).join(t.app.comma)}</Fact>}
        <Fact name={r.reason}>{rule.reason}</Fact>
        {rule.ended_at !== null && (
          <Fact name={r.ended}>
            {moment(rule.ended_at)} {rule.ended_by !== null && plainName(rule.ended_by)} {rule.ended_why}
          </Fact>
        )}
      </dl>
      <p className="row small">
        {rule.pending_id !== null && <Go href={`/console/inbox/${encodeURIComponent(rule.pending_id)}`}>{r.of}</Go>}
        {rule.run_id !== null && <Go href={`/console/runs/${rule.run_id}`}>{r.asking}</Go>}
      </p>
      {rule.approved_at !== null && <Uses id={rule.id} />}
    </li>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Each condition whole: it is what people approved. */
function Conditions({ rule }: { rule: RuleRecord }) {
  const r = useRuleText().list;
  const words: Record<string, string> = { equals: r.equals, in: r.in, min: r.min, max: r.max };
  const text = (value: Json): string => (typeof value === "string" ? `“${value}”` : JSON.stringify(value));
  const all = Object.entries(rule.arguments).flatMap(([name, bound]) => Object.entries(bound).map(([word, value]) => `${name} ${words[word] ?? word} ${text(value)}`));
  if (rule.when !== null) all.push(rule.when);
  if (all.length === 0) return <>{r.unconditional}</>;
  return (
    <ul className="words">
      {all.map((each) => (
        <li key={each}>
          <code>{each}</code>
        </li>
      ))}
    </ul>
  );
}

/** The questions that the rule has answered last; they are fetched when somebody wants them. */
function Uses({ id }: { id: string }) {
  const t = useText();
  const r = useRuleText().list;
  const [open, setOpen] = useState(false);
  const rule = useQuery({
    queryKey: ["rules", "uses", id],
    queryFn: ({ signal }) => get<RuleWithUses>(`/v1/rules/${id}`, signal),
    enabled: open,
  });
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{r.last}</summary>
      {open && rule.isPending && <p role="status">{t.app.loading}</p>}
      {rule.error && <ProblemNote problem={asProblem(rule.error)} />}
      {rule.data?.last_uses.length === 0 && <p>{r.unused}</p>}
      <ul>
        {rule.data?.last_uses.map((each) => (
          <li key={each.pending_id}>
            <Go href={`/console/inbox/${encodeURIComponent(each.pending_id)}`}>{moment(each.at)}</Go>
          </li>
        ))}
      </ul>
    </details>
  );
}
