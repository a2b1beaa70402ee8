// Where one is sent who is nobody yet. Nothing that was written is lost on the way.

import { useEffect, useState } from "react";
import { useText } from "../text/index.ts";

export function SignIn({ retry }: { retry(): void }) {
  const t = useText();
  const back = location.pathname + location.search;
  const provider = `/sign-in?return_to=${encodeURIComponent(back)}`;
  const [offered, setOffered] = useState(false);
  useEffect(() => {
    document.title = t.signIn.title;
    // Where there is an identity provider, the address leads to it; else there is no such page.
    void fetch(provider, { redirect: "manual" })
      .then((response) => setOffered(response.type === "opaqueredirect"))
      .catch(() => setOffered(false));
  }, [provider, t]);
  return (
    <main className="alone stack">
      <h1>{t.signIn.title}</h1>
      <p>{t.signIn.ended}</p>
      {offered && (
        <p>
          <a href={provider}>{t.signIn.provider}</a>
        </p>
      )}
      <p>{t.signIn.link}</p>
      <div>
        <button className="main" onClick={retry}>
          {t.signIn.retry}
        </button>
      </div>
    </main>
  );
}
