// Keys and tokens, each of which proves who calls. What proves it is shown once.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { call, get } from "../../api/client.ts";
import { useNow } from "../../api/now.ts";
import { asProblem } from "../../api/problems.ts";
import type { Key, KeyPage, NewKey, Token } from "../../api/types.gen.ts";
import { useSession } from "../../context.ts";
import { Ask } from "../../parts/Ask.tsx";
import { useDraft } from "../../parts/draft.ts";
import { Field, SmallForm } from "../../parts/Field.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { moment, since } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";

const DAY_SECONDS = 86_400;

export const listed = (text: string): string[] => text.split(",").map((each) => each.trim()).filter(Boolean);

export function Keys() {
  const t = useText();
  const p = usePageText().settings.keys;
  const id = useId();
  const queries = useQueryClient();
  const [draft, write, forget] = useDraft("key", () => ({ principal: "", name: "", roles: "", days: "" }));
  const { principal, name, roles, days } = draft;
  const [made, setMade] = useState<NewKey | null>(null);
  const [revoking, setRevoking] = useState<Key | null>(null);
  const { busy, problem, send } = useSending();
  const found = useQuery({ queryKey: ["keys"], queryFn: ({ signal }) => get<KeyPage>("/v1/keys?limit=200", signal) });

  async function act(work: () => Promise<unknown>): Promise<void> {
    await send(work);
    setRevoking(null);
    await queries.invalidateQueries({ queryKey: ["keys"] });
  }

  const make = (): Promise<void> =>
    act(async () => {
      const lasts = days.trim() === "" ? {} : { expires_in: Math.round(Number(days) * DAY_SECONDS) };
      setMade(await call<NewKey>("POST", "/v1/keys", { principal: principal.trim(), name, roles: listed(roles), ...lasts }));
      forget();
    });

  return (
    <div className="stack">
      <p className="quiet">{p.hint}</p>
      {made && <Secret label={p.made} text={made.key} />}
      {found.error && <ProblemNote problem={asProblem(found.error)} />}
      {found.isPending && <p role="status">{t.app.loading}</p>}
      {found.data?.items.length === 0 && <p>{p.none}</p>}
      <ul className="changes">
        {found.data?.items.map((each) => (
          <One key={each.id} item={each} revoke={() => setRevoking(each)} />
        ))}
      </ul>
      <SmallForm send={p.make} problem={revoking ? null : problem} busy={busy} onSend={() => void make()}>
        <Field id={`${id}p`} label={p.principal} value={principal} onChange={(now) => write({ ...draft, principal: now })} required />
        <Field id={`${id}n`} label={p.name} value={name} onChange={(now) => write({ ...draft, name: now })} />
        <Field id={`${id}r`} label={p.roles} value={roles} onChange={(now) => write({ ...draft, roles: now })} />
        <Field id={`${id}d`} label={p.days} value={days} onChange={(now) => write({ ...draft, days: now })} type="number" />
      </SmallForm>
      {revoking && (
        <Ask
          title={p.revokeTitle(revoking.name || revoking.principal)}
          yes={p.revoke}
          dangerous
          busy={busy}
          problem={busy ? problem : null}
          onYes={() => void act(() => call("POST", `/v1/keys/${encodeURIComponent(revoking.id)}/revoke`))}
          onNo={() => setRevoking(null)}
        >
          <p>{p.revokeNote}</p>
        </Ask>
      )}
    </div>
  );
}

function One({ item, revoke }: { item: Key; revoke(): void }) {
  const p = usePageText().settings.keys;
  const now = useNow();
  const over = item.revoked_at !== null || (item.expires_at !== null && new Date(item.expires_at).getTime() < now);
  return (
    <li className="row">
      <span className="grow">
        <b>{item.name || item.principal}</b> <code className="quiet">{item.principal}</code>{" "}
        {item.roles.map((each) => (
          <span key={each} className="tag">
            {each}
          </span>
        ))}
        <br />
        <span className="quiet small">
          {item.used_at ? p.used(since(item.used_at, now)) : p.unused} · {item.expires_at ? p.expires(moment(item.expires_at)) : p.endless}
        </span>
      </span>
      {over ? <span className="tag bad">{item.revoked_at ? p.revoked : p.expired}</span> : <button onClick={revoke}>{p.revoke}</button>}
    </li>
  );
}

/** What is shown this once. */
function Secret({ label, text }: { label: string; text: string }) {
  const p = usePageText().settings.keys;
  const [copied, setCopied] = useState(false);
  return (
    <div className="note good" role="status">
      <p>{label}</p>
      <p className="row">
        <code className="grow">{text}</code>
        {navigator.clipboard && (
          <button onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}>{copied ? p.copied : p.copy}</button>
        )}
      </p>
    </div>
  );
}

export function Tokens() {
  const p = usePageText().settings.tokens;
  const id = useId();
  const session = useSession();
  const [draft, write, forget] = useDraft("token", () => ({ minutes: "15", threads: "" }));
  const { minutes, threads } = draft;
  const [made, setMade] = useState<Token | null>(null);
  const { busy, problem, send } = useSending();

  const make = (): Promise<unknown> =>
    send(async () => {
      const only = listed(threads);
      const body = { principal: session.principal, expires_in: Math.round(Number(minutes) * 60), ...(only.length > 0 && { threads: only }) };
      setMade(await call<Token>("POST", "/v1/tokens", body));
      forget();
    });

  return (
    <SmallForm send={p.make} problem={problem} busy={busy} onSend={() => void make()}>
      <p className="quiet">{p.hint}</p>
      {made && <Secret label={p.made} text={made.token} />}
      <Field id={`${id}m`} label={p.minutes} value={minutes} onChange={(now) => write({ ...draft, minutes: now })} type="number" required />
      <Field id={`${id}t`} label={p.threads} value={threads} onChange={(now) => write({ ...draft, threads: now })} />
    </SmallForm>
  );
}
