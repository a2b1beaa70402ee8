// What a reader sees where a page has a fault.

import { Component, type ReactNode } from "react";
import { host } from "../host.ts";
import { useText } from "../text/index.ts";

export class Boundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    return this.state.failed ? <Broken /> : this.props.children;
  }
}

function Broken() {
  const t = useText();
  const Frame = host.console ? "main" : "div";
  return (
    <Frame className="alone" role="alert">
      <h1>{t.app.brokenTitle}</h1>
      <p>{t.app.broken}</p>
      <button onClick={() => host.reload()}>{t.app.again}</button>
    </Frame>
  );
}
