// Who is away on which days, and who decides for them: the reader; or, for admins, everybody.

import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useId } from "react";
import { call, get } from "../../api/client.ts";
import { type FieldFinding, asProblem } from "../../api/problems.ts";
import type { Absence, AbsencePage } from "../../api/types.gen.ts";
import { useSession } from "../../context.ts";
import { plainName } from "../../logic/seats.ts";
import { useDraft } from "../../parts/draft.ts";
import { Field, SmallForm } from "../../parts/Field.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { fieldText, useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";

const NOBODY = { person: "", first: "", last: "", delegate: "", note: "" };

const FIELDS: Record<string, keyof typeof NOBODY> = { person: "person", first_day: "first", last_day: "last", zone: "last", delegate: "delegate", note: "note" };

const asPerson = (text: string): string => (text.includes(":") ? text.trim() : `user:${text.trim()}`);

/** The field that the server's finding is about. */
function placeOf(finding: FieldFinding | undefined): keyof typeof NOBODY | null {
  return FIELDS[finding?.path?.split("/").at(-1) ?? ""] ?? null;
}

export function Absences({ everybody = false }: { everybody?: boolean }) {
  const t = useText();
  const p = usePageText().settings.absences;
  const { principal } = useSession();
  const id = useId();
  const queries = useQueryClient();
  const [draft, write, forget] = useDraft(everybody ? "absences-of-all" : "absences", () => NOBODY);
  const { busy, problem, send } = useSending();
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const pages = useInfiniteQuery({
    queryKey: ["absences", everybody],
    queryFn: ({ pageParam, signal }) => {
      const query = new URLSearchParams({ limit: "50", everybody: String(everybody), ...(pageParam && { cursor: pageParam }) });
      return get<AbsencePage>(`/v1/absences?${query}`, signal);
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
  });

  const act = (work: () => Promise<unknown>): Promise<unknown> =>
    send(async () => {
      await work();
      await queries.invalidateQueries({ queryKey: ["absences"] });
    });

  const enter = (): Promise<unknown> =>
    act(async () => {
      const body = {
        ...(everybody && { person: asPerson(draft.person) }),
        ...(draft.delegate.trim() && { delegate: asPerson(draft.delegate) }),
        ...(draft.note.trim() && { note: draft.note.trim() }),
        first_day: draft.first,
        last_day: draft.last,
        zone,
      };
      await call("POST", "/v1/absences", body);
      write(NOBODY);
      forget();
    });

  const title = (each: Absence): string => {
    const who = each.delegate === null ? null : plainName(each.delegate);
    if (each.person === principal) return who === null ? p.youAlone : p.you(who);
    return who === null ? p.alone(plainName(each.person)) : p.other(plainName(each.person), who);
  };
  const items = pages.data?.pages.flatMap((page) => page.items) ?? [];
  const finding = problem?.findings[0];
  const place = placeOf(finding);
  const field = (name: keyof typeof NOBODY) => ({
    id: `${id}${name}`,
    error: finding !== undefined && place === name ? fieldText(t, finding) : undefined,
    label: p[name],
    value: draft[name],
    onChange: (now: string) => write({ ...draft, [name]: now }),
  });
  return (
    <div className="stack">
      <p className="quiet">{everybody ? p.hintOfAll : p.hint}</p>
      {pages.error && <ProblemNote problem={asProblem(pages.error)} />}
      {pages.data && items.length === 0 && <p role="status">{p.none}</p>}
      <ul className="changes">
        {items.map((each) => (
          <li key={each.id} className="row">
            <span className="grow">
              {title(each)}{" "}
              <span className="quiet small">
                {each.first_day} – {each.last_day} ({each.zone}) {each.note}
              </span>
              {each.why_nobody && <strong className="small"> {p.nobody}</strong>}
            </span>
            <button disabled={busy} onClick={() => void act(() => call("DELETE", `/v1/absences/${encodeURIComponent(each.id)}`))}>{p.end}</button>
          </li>
        ))}
      </ul>
      {pages.hasNextPage && (
        <button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
          {t.app.more}
        </button>
      )}
      <SmallForm send={p.make} problem={place === null ? problem : null} busy={busy} onSend={() => void enter()}>
        {everybody && <Field {...field("person")} required />}
        <Field {...field("first")} type="date" required />
        <Field {...field("last")} type="date" required hint={p.zone(zone)} />
        <Field {...field("delegate")} />
        <Field {...field("note")} />
      </SmallForm>
    </div>
  );
}
