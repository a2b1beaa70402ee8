// The page of one question, for a link on a phone: all that it needs to decide, and none of the rest of the console.

import { useEffect } from "react";
import { createRoot } from "react-dom/client";
import "./look/base.css";
import "./look/theme.ts";
import "./standing.ts";
import { useReader } from "./api/session.ts";
import { useInbox } from "./api/inbox.ts";
import { Decision } from "./pages/decide/Decision.tsx";
import { askEarly } from "./pages/decide/useQuestion.ts";
import { SignIn } from "./pages/SignIn.tsx";
import { SessionContext } from "./context.ts";
import { Boundary } from "./parts/Boundary.tsx";
import { Undos } from "./parts/Leaving.tsx";
import { ProblemNote } from "./parts/Problem.tsx";
import { Status } from "./parts/Status.tsx";
import { useText } from "./text/index.ts";

const id = decodeURIComponent(location.pathname.replace(/^\/console\/decide\//, "").replace(/\/$/, ""));

function Page() {
  const t = useText();
  const [reader, ask] = useReader();
  if (reader.state === "nobody") return <SignIn retry={ask} />;
  return (
    <main className="alone stack">
      {reader.state === "asking" && <p role="status">{t.app.loading}</p>}
      {reader.state === "failed" && <ProblemNote problem={reader.problem} again={ask} />}
      {reader.state === "known" && (
        <SessionContext.Provider value={reader.session}>
          <Known />
          <Undos but={id} />
        </SessionContext.Provider>
      )}
    </main>
  );
}

function Known() {
  const t = useText();
  const { connection, problem, items } = useInbox();
  useEffect(() => {
    document.title = t.app.inbox;
  }, [t]);
  const next = items?.find((each) => each.id !== id && each.may_decide);
  return (
    <>
      {connection === "lost" && problem?.status !== 403 && <Status connection={connection} />}
      <Decision
        id={id}
        after={
          <p className="row">
            {next && <a href={`/console/decide/${encodeURIComponent(next.id)}`}>{t.decision.next}</a>}
            <a href="/console/">{t.decision.toInbox}</a>
          </p>
        }
      />
    </>
  );
}

askEarly(id);
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <Boundary>
      <Page />
    </Boundary>,
  );
}
