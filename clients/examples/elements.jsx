// The same in React 19: `esbuild elements.jsx --bundle --format=esm --jsx=automatic --outfile=elements_react.js`.

import { useState } from "react";
import { createRoot } from "react-dom/client";
import { tokens } from "./tokens.js";

const query = new URLSearchParams(location.search);
const [url, pending] = [query.get("url"), query.get("pending")];
const next = tokens();

function Approval({ pending, onDecided }) {
  const [token, setToken] = useState();
  const renew = async () => setToken(await next());
  return (
    <hai-approval
      pending={pending}
      token={token}
      onhai-token-needed={renew}
      onhai-decided={({ detail }) => onDecided(detail.status)}
    />
  );
}

function Page() {
  const [outcome, setOutcome] = useState("");
  return (
    <>
      <h1>An order</h1>
      <Approval pending={pending} onDecided={setOutcome} />
      <p role="status">{outcome && `Outcome: ${outcome}`}</p>
    </>
  );
}

void import(/* @vite-ignore */ `${url}/console/elements.js`);
createRoot(document.getElementById("root")).render(<Page />);
