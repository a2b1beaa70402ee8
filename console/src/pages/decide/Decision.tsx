// One question, in the words of those who decide it; the machinery is folded away.

import { type ReactNode, Suspense, lazy, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { call } from "../../api/client.ts";
import { SECONDS, leave, takeBack, useLeaving, way } from "../../api/leaving.ts";
import { useNow } from "../../api/now.ts";
import { useZone } from "../../api/zone.ts";
import type { CheckedAnswer, DecidedPending, InboxItem, Json, Pending } from "../../api/types.gen.ts";
import { changes, isObject, readable, unreadText } from "../../logic/json.ts";
import { beginning } from "../../logic/schema.ts";
import { workflowOf } from "../../logic/titles.ts";
import { lapsing, neededOf, plainName, ruleOf } from "../../logic/seats.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import { Ask } from "../../parts/Ask.tsx";
import type { FormProps } from "../../parts/Form.tsx";
import { JsonInput } from "../../parts/JsonInput.tsx";
import { Go } from "../../parts/Go.tsx";
import { Markdown } from "../../parts/Markdown.tsx";
import { Lacking } from "../../parts/Missing.tsx";
import { Undo } from "../../parts/Leaving.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Seats } from "../../parts/Seats.tsx";
import { useSending } from "../../parts/useSending.ts";
import { Text, Value } from "../../parts/Value.tsx";
import { exactly, inZones, moment, relative, since } from "../../text/dates.ts";
import { reasonText, useText } from "../../text/index.ts";
import { humanised } from "../../text/names.ts";
import { answerOf, argsOf, editable, editsOf, escalationOf, reasonsOf } from "./answer.ts";
import { type Schema, schemaOfArgs } from "../../logic/schema.ts";
import { type Draft, dropDraft, keepDraft, keptDraft } from "./draft.ts";
import { hasHidden } from "../../logic/signs.ts";
import { useParameters } from "./useParameters.ts";
import { useQuestion } from "./useQuestion.ts";
import { useWho } from "../../context.ts";
import { host } from "../../host.ts";

// Most decisions have no form, and those that do wait for their question anyway.
const LazyForm = lazy(() => import("../../parts/Form.tsx").then(({ Form }) => ({ default: Form })));

const LazyReceipt = lazy(() => import("./Receipt.tsx").then(({ Receipt }) => ({ default: Receipt })));

function Form(props: FormProps) {
  const t = useText();
  return (
    <Suspense fallback={<p role="status">{t.app.loading}</p>}>
      <LazyForm {...props} />
    </Suspense>
  );
}

export interface DecisionProps {
  id: string;
  /** What comes after deciding, if the page around it knows. */
  after?: ReactNode;
  /** What puts it off, where the page has a list for that. */
  later?: ((pending: Pending) => ReactNode) | undefined;
  /** Whether its keys (a, r, e) are listened to. */
  keys?: boolean;
  /** Whether the reader has opened it, so that its heading takes the focus. */
  focus?: boolean;
  onDecided?: (() => void) | undefined;
}

export function Decision({ id, after, later, keys = true, focus = true, onDecided }: DecisionProps) {
  const t = useText();
  const question = useQuestion(id);
  const [sent, setSent] = useState<{ id: string; status: string } | null>(null);
  const { pending, mine, problem } = question;
  const heading = useRef<HTMLHeadingElement>(null);
  const loaded = pending !== null;
  useEffect(() => {
    if (focus) heading.current?.focus();
  }, [id, loaded, focus]);
  const here = useRef(id); // an answer may come when another question is shown
  here.current = id;
  const said = useRef<HTMLDivElement>(null);
  useEffect(() => said.current?.focus(), [sent]); // the button that was pressed is gone
  useEffect(() => {
    if (pending !== null) host.see(pending, false);
  }, [pending?.id, pending?.status]);

  if (pending === null) {
    if (problem === null) return <p className="quiet" role="status">{t.decision.loading}</p>;
    return (
      <>
        <Lacking problem={problem} again={question.look} />
        {after}
      </>
    );
  }
  const thanks = sent?.id === id ? sent : null;
  return (
    <article className="decision stack" aria-busy={problem !== null}>
      <header>
        <h1 tabIndex={-1} ref={heading} dir="auto">
          <Text text={pending.title || t.inbox.untitled} />
        </h1>
        <p className="quiet small">
          {t.inbox.from(workflowOf(pending), plainName(pending.started_by))}
          {" · "}
          <Deadline pending={pending} />
        </p>
        {hasHidden([pending.title, pending.message, pending.tool, pending.args, pending.evidence]) && (
          <p className="note warn" role="note">
            {t.decision.hidden}
          </p>
        )}
      </header>
      {problem !== null && <ProblemNote problem={problem} />}
      <div role="status">
        {thanks && (
          <div className="note good" tabIndex={-1} ref={said}>
            <p>{pending.status === "open" ? t.decision.voted : t.decision.thanks}</p>
          </div>
        )}
      </div>
      {pending.status === "open" ? (
        <Open
          key={`${id} ${mine?.may_decide ?? ""}`}
          pending={pending}
          mine={mine}
          keys={keys}
          later={later?.(pending)}
          look={question.look}
          onDecided={(decided) => {
            if (here.current !== id) return;
            setSent({ id, status: decided.status });
            question.take(decided);
            onDecided?.();
          }}
        />
      ) : (
        <Outcome pending={pending} meanwhile={thanks === null} />
      )}
      {(pending.status !== "open" || thanks !== null) && after}
      <details>
        <summary>{t.decision.machinery}</summary>
        <dl className="facts small">
          <dt>{t.decision.run}</dt>
          <dd>
            <Go href={`/console/runs/${pending.run_id}`}>{pending.run_id}</Go>
          </dd>
          <dt>{t.decision.step}</dt>
          <dd>{pending.path}</dd>
          <dt>{t.decision.id}</dt>
          <dd>{pending.id}</dd>
          <dt>{t.decision.digest}</dt>
          <dd>{pending.digest}</dd>
        </dl>
      </details>
    </article>
  );
}

function Deadline({ pending }: { pending: Pending }) {
  const t = useText();
  const now = useNow();
  const zone = useZone(pending.deadline === null ? undefined : pending.workflow, pending.started_by);
  if (pending.status !== "open") {
    // Of what is over the deadline says nothing any more, but when it ended does.
    const ended = pending.decided_at ?? (pending.status === "expired" ? pending.deadline : null);
    if (ended === null) return <>{t.inbox.over}</>;
    return (
      <time dateTime={ended} title={exactly(ended)}>
        {(pending.status === "expired" ? t.inbox.expired : t.inbox.ended)(since(ended, now))}
      </time>
    );
  }
  if (pending.deadline === null) return <>{t.inbox.noDeadline}</>;
  const soon = new Date(pending.deadline).getTime() - now < 3_600_000;
  const days = Number.parseInt(String(pending.needed?.["deadline"] ?? ""), 10);
  return (
    <time dateTime={pending.deadline} title={exactly(pending.deadline)} className={soon ? "tag wraps warn" : ""}>
      {days > 0 && t.inbox.workingDays(days)}
      {t.inbox.due(relative(pending.deadline, now), inZones(t, moment(pending.deadline), pending.deadline, zone))}
    </time>
  );
}

function Outcome({ pending, meanwhile }: { pending: Pending; meanwhile: boolean }) {
  const t = useText();
  const needed = neededOf(pending.needed);
  const parameters = useParameters(pending);
  // Of an approval the votes and the comment are shown already; what is left are the values of its form.
  const value = ["approve", "gate"].includes(pending.kind) && isObject(pending.value) ? (pending.value["values"] ?? null) : pending.value;
  const good = pending.status === "approve" || pending.status === "answered";
  const mine = useWho();
  const byMe = pending.decided_by !== null && pending.decided_by === mine;
  const rule = ruleOf(pending);
  const lost = useLeaving().find((each) => each.id === pending.id && each.state === "refused");
  return (
    <>
      {lost && (
        <div className="note warn" role="alert">
          {t.decision.tooLate(lost.label)}
        </div>
      )}
      <section className={`note ${good ? "good" : pending.status === "reject" ? "bad" : ""}`}>
        <h2>{t.decision.decidedTitle[pending.status] ?? t.decision.options[pending.status] ?? pending.status}</h2>
        {rule !== null && (
          <p>
            <Go href="/console/settings#rules">{t.decision.byRule(rule, good)}</Go>
          </p>
        )}
        {meanwhile && rule === null && pending.decided_by && <p>{byMe ? t.decision.decidedByYou : t.decision.decidedMeanwhile}</p>}
        {pending.decided_by && pending.decided_at && (
          <p>{t.decision.decidedBy(plainName(pending.decided_by), moment(pending.decided_at))}</p>
        )}
        {pending.reason && <Text text={pending.reason} />}
      </section>
      {pending.canary && (
        <section className={`note ${pending.canary["status"] === "caught" ? "good" : "warn"}`}>
          <h2>{t.decision.canary}</h2>
          <p>{pending.canary["status"] === "caught" ? t.decision.canaryCaught : t.decision.canaryMissed}</p>
          <Text text={String(pending.canary["reason"])} />
        </section>
      )}
      <About pending={pending} parameters={parameters} />
      {needed && <Seats needed={needed} over />}
      {value !== null && (
        <section>
          <h2>{t.decision.answer}</h2>
          <Value value={value} />
        </section>
      )}
      {host.Standing !== null && pending.kind === "gate" && (
        <Suspense>
          <host.Standing pending={pending} />
        </Suspense>
      )}
      <Proof id={pending.id} />
      {host.console && (
        <p>
          <Go href={`/console/runs/${pending.run_id}`}>{t.decision.toRun}</Go>
        </p>
      )}
    </>
  );
}

/** The receipt, which is fetched and checked when somebody opens it. */
function Proof({ id }: { id: string }) {
  const t = useText();
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t.decision.receipt}</summary>
      {open && (
        <Suspense fallback={<p role="status">{t.app.loading}</p>}>
          <LazyReceipt id={id} />
        </Suspense>
      )}
    </details>
  );
}

/** The author's message and the evidence. */
function About({ pending, parameters }: { pending: Pending; parameters: Schema | null }) {
  const t = useText();
  return (
    <>
      {pending.message && <Markdown text={pending.message} />}
      {pending.evidence !== null && (
        <section>
          <h2>{t.decision.evidence}</h2>
          {typeof pending.evidence === "string" && pending.evidence.trim() !== "" ? <Markdown text={pending.evidence} top={3} /> : <Value value={pending.evidence} prose />}
        </section>
      )}
      {pending.args !== null && (
        <section>
          <h2>
            {pending.status === "open" ? t.decision.args : t.decision.argsOver}
            {pending.tool && <span className="quiet"> · {pending.tool}</span>}
            {pending.effect && " "}
            {pending.effect && <span className={`tag ${pending.effect === "irreversible" ? "warn" : ""}`}>{t.decision.effects[pending.effect]}</span>}
          </h2>
          <Value value={pending.args} schema={parameters} />
        </section>
      )}
    </>
  );
}

function Changes({ before, edits }: { before: Json; edits: Record<string, Json> | null }) {
  const t = useText();
  if (edits === null) return null;
  const all = typeof before === "object" && before !== null && !Array.isArray(before) ? before : {};
  return (
    <dl className="facts">
      {changes(all, { ...all, ...edits }).map((each) => (
        <div key={each.path}>
          <dt>{readable(each.path)}</dt>
          <dd>
            <del>
              <span className="hidden">{t.decision.before}{t.app.colon}</span>
              <Text text={whole(each.before)} />
            </del>{" "}
            <ins>
              <span className="hidden">{t.decision.after}{t.app.colon}</span>
              <Text text={whole(each.after)} />
            </ins>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** A value that was or will be, in one text: none of it is left out. */
function whole(value: Json | undefined): string {
  return typeof value === "string" ? value : value === undefined ? "" : (unreadText(value) ?? JSON.stringify(value));
}

interface OpenProps {
  pending: Pending;
  mine: InboxItem | null;
  keys: boolean;
  later: ReactNode;
  look(): void;
  onDecided(decided: DecidedPending): void;
}

function Open({ pending, mine, keys, later, look, onDecided }: OpenProps) {
  const t = useText();
  const now = useNow();
  const [draft, setDraft] = useState<Draft>(() => keptDraft(pending.id) ?? begun(pending));
  const [kept] = useState(() => keptDraft(pending.id) !== null);
  const [seen, setSeen] = useState(pending.digest);
  const [asking, setAsking] = useState<string | null>(null);
  const [checked, setChecked] = useState<CheckedAnswer | null>(null);
  const { busy, doing, problem: refused, send, say } = useSending();
  const leaving = useLeaving().find((each) => each.id === pending.id) ?? null;
  const goes = leaving !== null && leaving.state !== "refused";
  const problem = refused ?? leaving?.problem ?? null;
  const [behalf, setBehalf] = useState("");
  const [lacking, setLacking] = useState<string | null>(null); // the option that is not sent without words
  const claiming = useSending();
  const reason = useRef<HTMLTextAreaElement>(null);

  const needed = neededOf(pending.needed);
  const others = mine?.on_behalf_of ?? [];
  const may = mine !== null && (mine.may_decide || others.length > 0);
  const parameters = useParameters(pending);
  const names = useMemo(() => editable(pending, parameters), [pending, parameters]);
  const argsSchema = useMemo(() => schemaOfArgs(argsOf(pending), names, parameters), [pending, names, parameters]);
  const changed = editsOf(pending, draft);
  const options = pending.kind === "ask" ? ["", ...pending.options] : pending.kind === "tool" ? [""] : pending.options;
  const mustSay = reasonsOf(pending);
  const escalation = escalationOf(pending);

  const write = useCallback(
    (more: Partial<Draft>) => {
      setDraft((before) => {
        const now = { ...before, ...more };
        keepDraft(pending.id, now);
        return now;
      });
    },
    [pending.id],
  );

  const label = useCallback((option: string) => (option === "" ? t.decision.send : (t.decision.options[option] ?? humanised(option))), [t]);

  const choose = useCallback(
    (option: string, sure: boolean) => {
      if (goes) return;
      takeBack(pending.id); // why it was refused before
      if (mustSay.includes(option) && !draft.reason.trim()) {
        setLacking(option);
        reason.current?.focus();
        say(null);
        setAsking(null);
        return;
      }
      const how = needed?.confirm ? "ask" : way();
      const edited = option === "approve" && changed !== null;
      if (sure) void decide(option);
      else if (how === "undo" && !edited) void letGo(option);
      else void check(option);
    },
    [draft, mustSay, pending, mine, behalf, goes],
  );

  const post = <T,>(what: "decide" | "check", option: string, last = false): Promise<T> => {
    const whom = mine?.may_decide === false ? behalf || (others[0] ?? "") : behalf;
    return call<T>("POST", `/v1/pendings/${encodeURIComponent(pending.id)}/${what}`, answerOf(pending, draft, option, whom), { last });
  };

  /** Sends it in some seconds, in which it can be taken back; what is wrong with it is said at once. */
  const letGo = (option: string): Promise<void> =>
    attempt(option, async () => {
      await post<CheckedAnswer>("check", option).catch((error: unknown) => {
        if (asProblem(error).code !== "offline") throw error; // without a connection it is checked when it is sent
      });
      const title = pending.title || t.inbox.untitled;
      leave({ id: pending.id, title, label: label(option) }, (last) => post<DecidedPending>("decide", option, last), (decided) => {
        host.see(decided, true);
        dropDraft(pending.id);
        onDecided(decided);
      });
    });

  /** What a button does: with a form of its own, or where it was set so, it is sent at once. */
  const press = (option: string): void => {
    const edited = option === "approve" && changed !== null;
    choose(option, !edited && !needed?.confirm && way() === "once");
  };

  /** Ask the server what the answer would do, and then the reader whether that is meant. */
  const check = (option: string): Promise<void> =>
    attempt(option, async () => {
      setChecked(await post<CheckedAnswer>("check", option));
      setAsking(option);
    });

  const decide = (option: string): Promise<void> =>
    attempt(option, async () => {
      const decided = await post<DecidedPending>("decide", option);
      host.see(decided, true);
      dropDraft(pending.id);
      setAsking(null);
      onDecided(decided);
    });

  async function attempt(option: string, work: () => Promise<void>): Promise<void> {
    claiming.say(null);
    const found = await send(work, option || "send");
    if (found === null) return;
    setAsking(null);
    if (isOver(found)) look();
  }
  const late = leaving?.problem ?? null;
  useEffect(() => {
    if (late !== null && isOver(late)) look();
  }, [late]);

  async function claim(take: boolean): Promise<void> {
    await claiming.send(() => call("POST", `/v1/inbox/${encodeURIComponent(pending.id)}/${take ? "claim" : "release"}`, take ? {} : undefined));
    look();
  }

  useEffect(() => {
    if (!keys || !may || asking !== null) return;
    const pressed = (event: Event): void => {
      if (!(event instanceof KeyboardEvent) || event.metaKey || event.ctrlKey || event.altKey) return;
      if (isTyping(event.target)) {
        if (event.key === "Escape" && !event.isComposing && event.target instanceof HTMLElement) event.target.blur();
        return;
      }
      if (event.key === "z" && goes) {
        event.preventDefault();
        takeBack(pending.id);
        return;
      }
      const option = { a: "approve", r: "reject" }[event.key];
      if (option && options.includes(option)) {
        event.preventDefault();
        choose(option, false);
      } else if (event.key === "e" && names.length > 0) {
        event.preventDefault();
        write({ args: draft.args ?? argsOf(pending) });
      }
    };
    const place = host.keys();
    place.addEventListener("keydown", pressed);
    return () => place.removeEventListener("keydown", pressed);
  }, [keys, may, asking, options, names, choose, write, draft, pending, goes]);

  const lapse = changed && needed ? lapsing(needed) : 0;
  return (
    <>
      {seen !== pending.digest && (
        <div className="note warn" role="alert">
          <p>{t.decision.stale}</p>
          <button onClick={() => setSeen(pending.digest)}>{t.app.close}</button>
        </div>
      )}
      <About pending={pending} parameters={parameters} />
      {needed && <Seats needed={needed} />}
      {escalation && (
        <p className="quiet small">
          {t.decision.escalates(escalation.to.map(plainName).join(t.app.comma), relative(escalation.at, now))}
        </p>
      )}
      {pending.nobody_decides && (
        <div className="note warn" role="note">
          <p>
            <b>{t.decision.nobodyDecides}</b>
            {t.app.gap}
            <Text text={reasonText(pending.nobody_decides)} />
          </p>
        </div>
      )}
      {!may && <WhyNot mine={mine} needed={needed} />}
      {may && mine && mine.claimed_by && (
        <p className="row">
          <span className="tag warn">{t.inbox.claimed(plainName(mine.claimed_by))}</span>
          <button className="plain" disabled={claiming.busy} onClick={() => void claim(false)}>
            {t.decision.release}
          </button>
        </p>
      )}
      {may && (
        <section className="card stack" aria-label={t.decision.form}>
          {kept && <p className="quiet small">{t.decision.drafted}</p>}
          {names.length > 0 &&
            (draft.args === undefined ? (
              <div>
                <button onClick={() => write({ args: argsOf(pending) })}>
                  {t.decision.edit} <kbd className="quiet only-mouse">e</kbd>
                </button>
              </div>
            ) : (
              <fieldset className="group">
                <legend>{t.decision.edit}</legend>
                <Form
                  of={`${pending.id} args`}
                  schema={argsSchema}
                  value={draft.args}
                  onChange={(value) => write({ args: { ...argsOf(pending), ...(value as Record<string, Json>) } })}
                  findings={problem?.findings ?? []}
                />
                {changed && <Changes before={pending.args} edits={changed} />}
                {changed && <p className="note warn">{lapse > 0 ? t.decision.lapse(lapse) : t.decision.lapsesNone}</p>}
                <button onClick={() => write({ args: undefined })}>{t.decision.editStop}</button>
              </fieldset>
            ))}
          {pending.schema !== null && pending.kind !== "tool" && pending.kind !== "doubt" && (
            <Form
              of={pending.id}
              schema={pending.schema}
              value={draft.values}
              onChange={(values) => write({ values })}
              findings={problem?.findings ?? []}
            />
          )}
          {(pending.kind === "tool" || pending.kind === "doubt") && (
            <div className="field">
              <label htmlFor="result">{t.decision.resultLabel}</label>
              <JsonInput common={{ id: "result" }} value={draft.result} onChange={(result) => write({ result })} />
            </div>
          )}
          {options.some((each) => each !== "") && (
            <div className="field">
              <label htmlFor="reason">{t.decision.reason}</label>
              <textarea
                id="reason"
                ref={reason}
                rows={2}
                maxLength={10_000}
                aria-invalid={(lacking !== null && !draft.reason.trim()) || undefined}
                aria-describedby="reason-said"
                value={draft.reason}
                onInput={(event) => write({ reason: event.currentTarget.value })}
              />
              {lacking !== null && !draft.reason.trim() && (
                <div className="error" role="alert">
                  {lacking === "respond" ? t.decision.lacksResponse : t.decision.lacksReason(label(lacking))}
                </div>
              )}
              <div className="quiet small" id="reason-said">
                {t.decision.reasonHint} {mustSay.map((each) => (each === "respond" ? t.decision.responds : t.decision.reasonRequired(label(each)))).join(" ")}
              </div>
            </div>
          )}
          {others.length > 0 && (
            <div className="field">
              <label htmlFor="behalf">{t.decision.onBehalf}</label>
              <select id="behalf" value={behalf} onChange={(event) => setBehalf(event.currentTarget.value)}>
                {mine?.may_decide && <option value="">{t.decision.yourself}</option>}
                {others.map((each) => (
                  <option key={each} value={each}>
                    {plainName(each)}
                  </option>
                ))}
              </select>
            </div>
          )}
          {problem && asking === null && <ProblemNote problem={problem} atFields={pending.schema !== null && pending.kind !== "tool" && pending.kind !== "doubt"} comes />}
          {claiming.problem && <ProblemNote problem={claiming.problem} />}
          <p className="quiet small row">
            <span className="grow words">
              {way() === "undo" && !needed?.confirm && !changed ? t.decision.undoable(SECONDS) : t.decision.final} {needed && completes(needed, t)}
            </span>
            {mine && !mine.claimed_by && (
              <button className="plain" disabled={claiming.busy} onClick={() => void claim(true)}>
                {t.decision.claim}
              </button>
            )}
            {later}
          </p>
        </section>
      )}
      {may && goes && (
        <div className="actions sticky" role="group" aria-label={t.decision.actions}>
          <Undo leaving={leaving} focus />
        </div>
      )}
      {may && !goes && (
        <div className="actions sticky" role="group" aria-label={t.decision.actions}>
          {options.map((option) => (
            <button
              key={option}
              className={`${option === "approve" || option === "" ? "main" : option === "reject" ? "bad" : ""} ${doing === (option || "send") ? "busy" : ""}`}
              disabled={busy}
              onClick={() => press(option)}
            >
              {label(option)}
            </button>
          ))}
        </div>
      )}
      {asking !== null && (
        <Ask
          title={t.decision.confirm(label(asking))}
          yes={t.decision.confirmSend(label(asking))}
          dangerous={asking === "reject"}
          busy={busy}
          problem={problem}
          onYes={() => choose(asking, true)}
          onNo={() => setAsking(null)}
        >
          <p>
            <Text text={(asking === "approve" && checked !== null ? checked.title : pending.title) ?? ""} />
          </p>
          {asking === "approve" && changed && <Changes before={pending.args} edits={changed} />}
          {checked !== null && checked.lapsing.length > 0 && (
            <p className="note warn">
              {t.decision.lapsesOf(checked.lapsing.map((vote) => plainName(String(vote["by"]))).join(t.app.comma))}
            </p>
          )}
          {asking === "approve" && checked?.decides === true && needed !== null && <p>{t.decision.completes}</p>}
          <p className="quiet">{t.decision.final}</p>
        </Ask>
      )}
    </>
  );
}

function completes(needed: NonNullable<ReturnType<typeof neededOf>>, t: ReturnType<typeof useText>): string {
  const left = Math.max(needed.missing.people, needed.missing.names.length) - 1;
  return left <= 0 ? "" : t.decision.notYet(left);
}

function begun(pending: Pending): Draft {
  return { reason: "", values: pending.schema === null ? undefined : beginning(pending.schema) };
}

function WhyNot({ mine, needed }: { mine: InboxItem | null; needed: ReturnType<typeof neededOf> }) {
  const t = useText();
  const why = mine?.why_not;
  return (
    <div className="note">
      <p>
        <b>{t.decision.mayNot}</b>
        {t.app.gap}
        {t.decision.whyNot[why?.code ?? "not_asked"] ?? why?.reason}
      </p>
      {needed && needed.from.length > 0 && (
        <p>
          {t.decision.whoMay((needed.people ?? needed.from).slice(0, 20).map(plainName).join(t.app.comma))}
          {t.app.gap}
          {needed.exclude.length > 0 && t.decision.whoNot(needed.exclude.map((each) => (each === "requester" ? t.decision.requester : plainName(each))).join(t.app.comma))}
        </p>
      )}
    </div>
  );
}

/** Whether somebody else has decided it meanwhile, or it is another question now. */
function isOver(problem: Problem): boolean {
  return problem.status === 409 || problem.status === 410 || problem.code === "answer.digest";
}

/** Whether a key that is pressed there is a letter that is written. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button", "submit"].includes(target.type);
  return target.isContentEditable || ["TEXTAREA", "SELECT"].includes(target.tagName);
}
