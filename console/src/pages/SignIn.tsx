// Where one is sent who is nobody yet. Nothing that was written is lost on the way.

import { useEffect, useState } from "react";
import { call } from "../api/client.ts";
import { Field, SmallForm } from "../parts/Field.tsx";
import { useSending } from "../parts/useSending.ts";
import { WithCode } from "../parts/WithCode.tsx";
import { useText } from "../text/index.ts";

export function SignIn({ retry }: { retry(): void }) {
  const t = useText();
  const back = location.pathname + location.search;
  const provider = `/sign-in?return_to=${encodeURIComponent(back)}`;
  const [issuers, setIssuers] = useState<string[]>([]);
  const [key, setKey] = useState("");
  const { busy, problem, send } = useSending();
  useEffect(() => {
    document.title = t.signIn.title;
    // Where there is no identity provider, there is no such page.
    void fetch("/sign-in", { headers: { Accept: "application/json" } })
      .then(async (response) => setIssuers(response.ok ? ((await response.json()) as { issuers: string[] }).issuers : []))
      .catch(() => setIssuers([]));
  }, [t]);
  return (
    <main className="alone stack">
      <h1>{t.signIn.title}</h1>
      <p>{t.signIn.ended}</p>
      {issuers.map((name) => (
        <p key={name}>
          <a href={`${provider}&issuer=${encodeURIComponent(name)}`}>{t.signIn.provider(name)}</a>
        </p>
      ))}
      <SmallForm
        send={t.signIn.withKey}
        problem={problem}
        busy={busy}
        onSend={() =>
          void send(async () => {
            await call("POST", "/sign-in/key", { key });
            setKey("");
            retry();
          })
        }
      >
        <Field id="key" type="password" label={t.signIn.key} value={key} required onChange={setKey} hint={t.signIn.keyHint} />
      </SmallForm>
      <p>
        <WithCode text={t.signIn.link} />
      </p>
      <div>
        <button onClick={retry}>
          {t.signIn.retry}
        </button>
      </div>
    </main>
  );
}
