/** Credentials: the proof of a caller's identity. */

/** A credential, or a function that gives one. */
export type Credential = string | (() => string | Promise<string>);

/** With this code a server ends the stream of a caller whose credential has expired. */
export const AUTH_EXPIRED = "auth.expired";

/** In a browser there is no environment, and a key of everybody's would be no secret. */
export function keyOfEnvironment(): string | undefined {
  const { process } = globalThis as unknown as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.["HAI_FLOW_KEY"] || undefined;
}

/** The request with the credential, unless its headers have one. */
export async function signed(request: RequestInit, credential: Credential | undefined): Promise<RequestInit> {
  const headers = new Headers(request.headers);
  const key = typeof credential === "function" ? await credential() : credential;
  if (!key || headers.has("Authorization")) return request;
  headers.set("Authorization", `Bearer ${key}`);
  return { ...request, headers };
}
