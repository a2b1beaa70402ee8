// What a page needs to prove who calls: tokens of its own backend (backend.py is such a one), each asked for in time.

/** A function that gives the token, and a new one when a third of its life is left. `address`: who gives them. */
export function tokens(address = "/token") {
  let known;
  return async () => {
    if (known === undefined || performance.now() > known.renew_at) known = await asked(address);
    return known.token;
  };
}

/** A `fetch` that asks for the token before each request. */
export function signing(token) {
  return async (url, init = {}) => {
    const headers = new Headers(init.headers);
    headers.set("Authorization", `Bearer ${await token()}`);
    return fetch(url, { ...init, headers });
  };
}

async function asked(address) {
  const now = performance.now();
  const response = await fetch(address, { method: "POST" });
  if (!response.ok) throw new Error(`the backend gave no token (HTTP ${response.status}): sign in again`);
  const { token, expires_in } = await response.json();
  return { token, renew_at: now + (expires_in * 1000 * 2) / 3 };
}
