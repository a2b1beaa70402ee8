// How this browser shows the console, and who one is in development.

import { useState } from "react";
import { useSession } from "../context.ts";
import { actAs, call, setActAs } from "../api/client.ts";
import { type Theme, setTheme, theme } from "../look/theme.ts";
import { type Language, setLanguage, useLanguage, useText } from "../text/index.ts";

const THEMES: Theme[] = ["system", "light", "dark"];

export function Settings({ changed }: { changed(): void }) {
  const t = useText();
  const language = useLanguage();
  const session = useSession();
  const [chosen, setChosen] = useState(theme);
  const [who, setWho] = useState(actAs);
  return (
    <div className="stack">
      <h1>{t.settings.title}</h1>
      <section className="card">
        <div className="field">
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
        <div className="field">
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
      </section>
      <section className="card">
        <p>{t.signIn.as(session.principal)}</p>
        {session.way === "session" && (
          <button onClick={() => void call("DELETE", "/v1/session").finally(changed)}>{t.signIn.out}</button>
        )}
        {isOpenHouse(session.way) && (
          <form
            onSubmit={(event) => {
              event.preventDefault();
              setActAs(who.trim());
              changed();
            }}
          >
            <div className="field">
              <label htmlFor="act-as">{t.settings.actAs}</label>
              <input id="act-as" value={who} aria-describedby="act-as-said" onInput={(event) => setWho(event.currentTarget.value)} />
              <div id="act-as-said" className="quiet small">
                {t.settings.actAsHint}
              </div>
            </div>
            <button>{t.settings.keep}</button>
          </form>
        )}
      </section>
      <section className="card">
        <h2>{t.settings.keys}</h2>
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

/** Whether nobody is asked here who they are. */
export function isOpenHouse(way: string): boolean {
  return !["session", "key", "token", "jwt", "link", "ticket"].includes(way);
}
