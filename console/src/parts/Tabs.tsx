// Several views of one thing, of which one is shown; arrows go from one to the next.

import { type KeyboardEvent, type ReactNode, useId, useRef } from "react";

interface TabsProps<Id extends string> {
  tabs: { id: Id; label: string }[];
  label: string;
  shown: Id;
  onShow(id: Id): void;
  children: ReactNode;
}

export function Tabs<Id extends string>({ tabs, label, shown, onShow, children }: TabsProps<Id>) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent): void => {
    const at = tabs.findIndex((each) => each.id === shown);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    const next = to === undefined ? undefined : tabs[(to + tabs.length) % tabs.length];
    if (next === undefined) return;
    event.preventDefault();
    onShow(next.id);
    list.current?.querySelector<HTMLElement>(`[data-tab="${next.id}"]`)?.focus();
  };
  return (
    <>
      <div className="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
        {tabs.map((each) => (
          <button
            key={each.id}
            role="tab"
            id={`${id}${each.id}`}
            data-tab={each.id}
            aria-selected={each.id === shown}
            aria-controls={`${id}panel`}
            tabIndex={each.id === shown ? 0 : -1}
            onClick={() => onShow(each.id)}
          >
            {each.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}panel`} aria-labelledby={`${id}${shown}`}>
        {children}
      </div>
    </>
  );
}
