// What a page needs to have a credential: a token of its own backend, and a new one shortly before it ends.

const EARLY_MS = 10_000;
let known;

/** The page's token. */
export async function token() {
  if (known === undefined || Date.parse(known.expires_at) - Date.now() < EARLY_MS) known = await asked();
  return known.token;
}

async function asked() {
  const response = await fetch("/token", { method: "POST" });
  if (!response.ok) throw new Error(`The backend gave no token (HTTP ${response.status}). Sign in again.`);
  return response.json();
}
