// Who decides instead of the reader, while the reader is away.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useId } from "react";
import { call, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Delegations } from "../../api/types.gen.ts";
import { useSession } from "../../context.ts";
import { plainName } from "../../logic/seats.ts";
import { useDraft } from "../../parts/draft.ts";
import { Field, SmallForm } from "../../parts/Field.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { moment } from "../../text/dates.ts";
import { usePageText } from "../../text/pages.ts";

const NOBODY = { to: "", since: "", until: "", note: "" };

export function Away() {
  const p = usePageText().settings.away;
  const { principal } = useSession();
  const id = useId();
  const queries = useQueryClient();
  const [draft, write, forget] = useDraft("away", () => NOBODY);
  const { to, since, until, note } = draft;
  const { busy, problem, send } = useSending();
  const found = useQuery({
    queryKey: ["delegations"],
    queryFn: ({ signal }) => get<Delegations>("/v1/inbox/delegations", signal),
  });

  const act = (work: () => Promise<unknown>): Promise<unknown> =>
    send(async () => {
      await work();
      await queries.invalidateQueries({ queryKey: ["delegations"] });
    });

  const make = (): Promise<unknown> =>
    act(async () => {
      const body = {
        to: to.includes(":") ? to.trim() : `user:${to.trim()}`,
        ...(since && { since: new Date(since).toISOString() }),
        until: new Date(until).toISOString(),
        ...(note.trim() && { note: note.trim() }),
      };
      await call("POST", "/v1/inbox/delegations", body);
      write({ ...draft, to: "", note: "" });
      forget();
    });

  const items = found.data?.items ?? [];
  return (
    <div className="stack">
      <p className="quiet">{p.hint}</p>
      {found.error && <ProblemNote problem={asProblem(found.error)} />}
      {found.data && items.length === 0 && <p role="status">{p.none}</p>}
      <ul className="changes">
        {items.map((each) => (
          <li key={each.id} className="row">
            <span className="grow">
              {each.from === principal ? p.by(plainName(each.to)) : p.forWhom(plainName(each.from))}{" "}
              <span className="quiet small">
                {moment(each.since)} – {moment(each.until)} {each.ends_with === "session" && p.withSession} {each.note}
              </span>
            </span>
            <button disabled={busy} onClick={() => void act(() => call("DELETE", `/v1/inbox/delegations/${each.id}`))}>{p.end}</button>
          </li>
        ))}
      </ul>
      <SmallForm send={p.make} problem={problem} busy={busy} onSend={() => void make()}>
        <Field id={`${id}to`} label={p.to} value={to} onChange={(now) => write({ ...draft, to: now })} required />
        <Field id={`${id}since`} label={p.since} type="datetime-local" value={since} onChange={(now) => write({ ...draft, since: now })} />
        <Field id={`${id}until`} label={p.until} type="datetime-local" value={until} onChange={(now) => write({ ...draft, until: now })} required />
        <Field id={`${id}note`} label={p.note} value={note} onChange={(now) => write({ ...draft, note: now })} />
      </SmallForm>
    </div>
  );
}
