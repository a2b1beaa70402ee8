// How this browser shows the console, who one is, and what is set for others: keys, tokens, tenants.

import { type ReactNode, useState } from "react";
import { useMay, useSession } from "../../context.ts";
import { actAs, call, setActAs } from "../../api/client.ts";
import { type Way, WAYS, setWay, way } from "../../api/leaving.ts";
import { type Theme, setTheme, theme } from "../../look/theme.ts";
import { Field, SmallForm } from "../../parts/Field.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { type Language, setLanguage, useLanguage, useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";
import { Absences } from "./Absences.tsx";
import { Away } from "./Away.tsx";
import { Delegations } from "./Delegations.tsx";
import { Keys, Tokens } from "./Keys.tsx";
import { Rules } from "./Rules.tsx";
import { Sent } from "./Sent.tsx";
import { Tenants } from "./Tenants.tsx";
import { isOpenHouse } from "./house.ts";

const THEMES: Theme[] = ["system", "light", "dark"];

export function Settings() {
  const t = useText();
  const language = useLanguage();
  const session = useSession();
  const [chosen, setChosen] = useState(theme);
  const [sending, setSending] = useState(way);
  const [who, setWho] = useState(actAs);
  const { sections } = usePageText().settings;
  const decides = useMay("decide");
  const manages = useMay("manage_keys");
  const issues = useMay("issue_tokens");
  const watches = useMay("see_runs");
  const seesInbox = useMay("see_inbox");
  const { busy, problem, send } = useSending();
  const signOut = async (): Promise<void> => {
    const refused = await send(() => call("DELETE", "/v1/session"));
    if (refused === null || refused.status === 401) location.reload();
  };
  return (
    <div className="stack">
      <h1>{t.settings.title}</h1>
      <section className="card">
        <div className="field short">
          <label htmlFor="language">{t.settings.language}</label>
          <select id="language" value={language} onChange={(event) => setLanguage(event.currentTarget.value as Language)}>
            <option value="en" lang="en">
              English
            </option>
            <option value="zh" lang="zh-CN">
              中文
            </option>
          </select>
        </div>
        <div className="field short">
          <label htmlFor="theme">{t.settings.theme}</label>
          <select
            id="theme"
            value={chosen}
            onChange={(event) => {
              const which = event.currentTarget.value as Theme;
              setTheme(which);
              setChosen(which);
            }}
          >
            {THEMES.map((each) => (
              <option key={each} value={each}>
                {t.settings.themes[each]}
              </option>
            ))}
          </select>
        </div>
        {decides && (
          <div className="field short">
            <label htmlFor="sending">{t.settings.sending}</label>
            <select
              id="sending"
              value={sending}
              onChange={(event) => {
                const which = event.currentTarget.value as Way;
                setWay(which);
                setSending(which);
              }}
            >
              {WAYS.map((each) => (
                <option key={each} value={each}>
                  {t.settings.sendings[each]}
                </option>
              ))}
            </select>
          </div>
        )}
      </section>
      <section className="card">
        <p>{t.signIn.as(session.principal)}</p>
        {session.way === "session" && (
          <button disabled={busy} onClick={() => void signOut()}>
            {t.signIn.out}
          </button>
        )}
        {problem && <ProblemNote problem={problem} />}
        {isOpenHouse(session.way) && (
          <SmallForm
            send={t.settings.keep}
            problem={null}
            onSend={() => {
              setActAs(who.trim());
              location.reload();
            }}
          >
            <Field id="act-as" label={t.settings.actAs} hint={t.settings.actAsHint} value={who} onChange={setWho} />
          </SmallForm>
        )}
      </section>
      {decides && (
        <Section title={sections.absences}>
          <Absences />
        </Section>
      )}
      {decides && (
        <Section title={sections.away}>
          <Away />
        </Section>
      )}
      {(watches || seesInbox) && (
        <Section title={sections.rules} id="rules">
          <Rules />
        </Section>
      )}
      {manages && (
        <Section title={sections.keys}>
          <Keys />
        </Section>
      )}
      {manages && (
        <Section title={sections.absencesOfAll}>
          <Absences everybody />
        </Section>
      )}
      {manages && (
        <Section title={sections.delegations}>
          <Delegations />
        </Section>
      )}
      {issues && (
        <Section title={sections.tokens}>
          <Tokens />
        </Section>
      )}
      {manages && (
        <Section title={sections.tenants}>
          <Tenants />
        </Section>
      )}
      {watches && (
        <Section title={sections.sent}>
          <Sent />
        </Section>
      )}
      <section className="card">
        <h2>{t.settings.shortcuts}</h2>
        <dl className="facts">
          {Object.entries(t.keys).map(([key, does]) => (
            <div key={key}>
              <dt>
                <kbd>{key === "escape" ? "Esc" : key}</kbd>
              </dt>
              <dd>{does}</dd>
            </div>
          ))}
        </dl>
      </section>
      <section className="card">
        <h2>{t.settings.about}</h2>
        <p>
          <a href="/console/licenses.md">{t.settings.licences}</a> · <a href="/docs">{t.settings.api}</a>
        </p>
      </section>
    </div>
  );
}

/** A part of the page that is looked at when it is opened, by hand or by its name in the address. */
function Section({ title, id, children }: { title: string; id?: string; children: ReactNode }) {
  const [open, setOpen] = useState(id !== undefined && location.hash === `#${id}`);
  return (
    <details className="card" id={id} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>{title}</h2>
      </summary>
      {open && children}
    </details>
  );
}
