// <hai-approval> and <hai-inbox>, for pages of others: what they are to the page around. What they show is in inner.tsx.

import base from "../look/base.css?inline";
import lists from "../look/lists.css?inline";
import own from "./elements.css?inline";
import type { HaiApprovalElement, HaiElement, HaiEvents, HaiInboxElement } from "./types.ts";
import type { Element } from "./host.ts";
import type { Kind } from "./inner.tsx";
import { isLegible } from "./legible.ts";
import { load } from "#inner";

// As they are when this is loaded: a script that comes later, and puts something of its own in the place of `fetch`,
// reads no token.
const { fetch } = globalThis;
const ATTRIBUTES = ["pending", "server", "sending", "theme", "token", "lang"];
const PATIENCE_MS = 1_000;
const sheet = new CSSStyleSheet();
sheet.replaceSync([own, base, lists].join("\n"));

abstract class Base extends HTMLElement implements HaiElement {
  static readonly observedAttributes = ATTRIBUTES;
  protected abstract readonly kind: Kind;
  readonly #place = document.createElement("div");
  #server: string | null = null;
  #token: string | null = null;
  #inner: ReturnType<typeof load> | null = null;
  #running = false;
  #patience: ReturnType<typeof setTimeout> | undefined;
  readonly #left = (): void => this.#inner?.leave();

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    this.#place.className = "hai";
    root.append(this.#place);
    for (const name of ["click", "keydown"]) root.addEventListener(name, (event) => this.#demandLegible(event), true);
  }

  /** Nothing comes of a press where the page's look hides what is decided. From then on the look is the element's own. */
  #demandLegible(event: Event): void {
    if (isLegible(this.#place)) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    this.#place.dataset["plain"] = "";
    this.#tell("hai-error", { code: "unreadable", status: 0, message: "What is decided here could not be read in the look of this page." });
  }

  get server(): string {
    return this.#server ?? this.getAttribute("server") ?? "";
  }

  set server(address: string) {
    this.setAttribute("server", address);
  }

  get theme(): "light" | "dark" | "system" {
    const said = this.getAttribute("theme");
    return said === "light" || said === "dark" ? said : "system";
  }

  set theme(theme: "light" | "dark" | "system") {
    this.setAttribute("theme", theme);
  }

  get sending(): "undo" | "ask" | "once" {
    const said = this.getAttribute("sending");
    return said === "ask" || said === "once" ? said : "undo";
  }

  set sending(sending: "undo" | "ask" | "once") {
    this.setAttribute("sending", sending);
  }

  /** Nobody reads it here: what has to know it has given it. */
  get token(): null {
    return null;
  }

  set token(token: string | null | undefined) {
    const before = this.#token;
    this.#token = token || null;
    this.removeAttribute("token");
    if (!this.#running || (before === null && this.#token === null)) return;
    clearTimeout(this.#patience);
    if (this.#token === null) this.#inner?.close();
    else this.#inner?.use(this.#token);
  }

  attributeChangedCallback(name: string, _before: string | null, now: string | null): void {
    if (name !== "token") this.#show();
    else if (now !== null) this.token = now; // and it is gone from the document
  }

  connectedCallback(): void {
    // What was set before the element was known to the browser stands in the way of its properties.
    for (const name of ["pending", "server", "sending", "theme", "token"] as const) {
      if (!Object.hasOwn(this, name)) continue;
      const value: unknown = Reflect.get(this, name);
      Reflect.deleteProperty(this, name);
      Reflect.set(this, name, value);
    }
    // A moment later, so that who has put it here can give it its token.
    setTimeout(() => this.#start());
  }

  disconnectedCallback(): void {
    queueMicrotask(() => this.isConnected || this.#stop()); // it may have been moved
  }

  #start(): void {
    if (!this.isConnected || this.#running) return;
    this.#running = true;
    window.addEventListener("pagehide", this.#left);
    try {
      this.#server ??= addressOf(this.getAttribute("server"));
    } catch (error) {
      this.#tell("hai-error", { code: "server", status: 0, message: String(error) });
      return;
    }
    const inner = (this.#inner ??= load(this.#surroundings()));
    this.#show();
    if (this.#token !== null) return inner.use(this.#token);
    // A server that asks nobody who they are needs none: it is asked when the page has had the time to give one.
    this.#patience = setTimeout(() => inner.use(null), PATIENCE_MS);
    this.#tell("hai-token-needed", { code: "auth.missing" });
  }

  #stop(): void {
    if (!this.#running) return;
    this.#running = false;
    clearTimeout(this.#patience);
    window.removeEventListener("pagehide", this.#left);
    this.#inner?.stop();
  }

  #show(): void {
    if (this.theme === "system") delete this.#place.dataset["theme"];
    else this.#place.dataset["theme"] = this.theme;
    if (this.#running) this.#inner?.show(this.kind, this.getAttribute("pending"));
  }

  #surroundings(): Element {
    const server = this.#server ?? "";
    return {
      root: this.shadowRoot as ShadowRoot,
      place: this.#place,
      fetch: (path, init) => fetch(server + path, { ...init, credentials: "omit", referrerPolicy: "no-referrer", redirect: "error" }),
      language: () => {
        const said = this.closest("[lang]")?.getAttribute("lang")?.toLowerCase();
        return said ? (said.startsWith("zh") ? "zh" : "en") : null;
      },
      sending: () => this.sending,
      tell: (name, detail) => this.#tell(name, detail),
      reload: () => {
        this.#inner?.stop();
        this.#show();
      },
    };
  }

  #tell(name: keyof HaiEvents, detail: Record<string, unknown>): void {
    // Who answers with a token has to have the element itself, and not whatever in the page asks for one.
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: name !== "hai-token-needed" }));
  }
}

class Approval extends Base implements HaiApprovalElement {
  protected override readonly kind = "approval";

  get pending(): string {
    return this.getAttribute("pending") ?? "";
  }

  set pending(id: string | null | undefined) {
    if (id === null || id === undefined) this.removeAttribute("pending");
    else this.setAttribute("pending", id);
  }
}

class Inbox extends Base implements HaiInboxElement {
  protected override readonly kind = "inbox";
}

/** The address of the server, without a slash at its end. Throws a TypeError. */
function addressOf(said: string | null): string {
  const url = new URL(said || new URL(/* @vite-ignore */ "..", import.meta.url), document.baseURI);
  if (!/^https?:$/.test(url.protocol) || url.username || url.password) {
    throw new TypeError("server: expected the address of a HAI Flow server, as https://flow.example.com.");
  }
  return url.origin + url.pathname.replace(/\/+$/, "");
}

if (!customElements.get("hai-approval")) customElements.define("hai-approval", Approval);
if (!customElements.get("hai-inbox")) customElements.define("hai-inbox", Inbox);
