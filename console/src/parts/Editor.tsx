// A text of YAML that is being written: keys are offered by the language's schema, and the server's findings stand where
// they are. It lives in a shadow root, because the page's policy lets no script add styles to the document.

import { type CompletionContext, type CompletionResult, autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, bracketMatching, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, setDiagnostics } from "@codemirror/lint";
import { Annotation, EditorState, type Text } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, hoverTooltip, keymap, lineNumbers, tooltips } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import type { Finding } from "../api/types.gen.ts";
import { type Offer, aboutKey, offersAt } from "../logic/offers.ts";
import type { Schema } from "../logic/schema.ts";
import { placeAt } from "../logic/yaml.ts";

export interface Spot {
  line: number;
  column: number;
}

export interface EditorProps {
  /** What it begins with. */
  text: string;
  /** What takes the place of all that is written, from outside; a new object does it again. */
  given: { text: string } | null;
  onChange(text: string): void;
  findings: readonly Finding[];
  schema: Schema | null;
  label: string;
  describedBy: string;
  /** A place to go to; a new object goes there again. */
  spot: Spot | null;
  fixLabel: string;
}

/** Marks what did not come from who types: the page knows it already. */
const OUTSIDE = Annotation.define<boolean>();

export default function Editor(props: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const now = useRef(props);
  now.current = props;

  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const state = EditorState.create({ doc: now.current.text, extensions: extensionsOf(now) });
    const made = new EditorView({ state, parent: root, root });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
  }, []);

  useEffect(() => {
    const shown = view.current;
    if (shown === null || props.given === null || shown.state.doc.toString() === props.given.text) return;
    shown.dispatch({ changes: { from: 0, to: shown.state.doc.length, insert: props.given.text }, annotations: OUTSIDE.of(true) });
  }, [props.given]);

  useEffect(() => {
    const shown = view.current;
    if (shown === null) return;
    shown.dispatch(setDiagnostics(shown.state, props.findings.map((each) => diagnosticOf(shown.state.doc, each, props.fixLabel))));
  }, [props.findings, props.fixLabel]);

  useEffect(() => {
    const shown = view.current;
    if (shown === null || props.spot === null) return;
    const at = offsetOf(shown.state.doc, props.spot.line, props.spot.column);
    shown.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
    shown.focus();
  }, [props.spot]);

  return <div className="editor" ref={host} />;
}

type Now = { readonly current: EditorProps };

function extensionsOf(now: Now) {
  return [
    lineNumbers(),
    history(),
    drawSelection(),
    highlightActiveLine(),
    bracketMatching(),
    indentUnit.of("  "),
    yaml(),
    syntaxHighlighting(COLOURS),
    autocompletion({ override: [(context) => completed(context, now)], icons: false }),
    hoverTooltip((shown, at) => told(shown, at, now)),
    tooltips({ position: "absolute" }),
    keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": now.current.label, "aria-describedby": now.current.describedBy, spellcheck: "false", tabindex: "0" }),
    EditorView.domEventHandlers({ beforeinput: typedOver, compositionstart: composedOver }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged && !update.transactions.some((each) => each.annotation(OUTSIDE))) now.current.onChange(update.state.doc.toString());
    }),
    THEME,
  ];
}

/**
 * What is typed over a selection takes its place here and not in the browser, which would give the new text the style of the
 * old one as an attribute: the page's policy forbids that.
 */
function typedOver(event: InputEvent, view: EditorView): boolean {
  if (event.inputType !== "insertText" || event.isComposing || event.data === null) return false;
  const { from, to } = replacedNow(view);
  if (from === to) return false;
  event.preventDefault();
  const changes = { from, to, insert: event.data };
  view.dispatch({ changes, selection: { anchor: from + event.data.length }, userEvent: "input.type", scrollIntoView: true });
  return true;
}

/** The text that the input takes the place of. A selection that was made just now is known to the browser before the editor hears of it. */
function replacedNow(view: EditorView): { from: number; to: number } {
  const { main } = view.state.selection;
  const shadowRoots = view.root instanceof ShadowRoot ? [view.root] : [];
  const range = document.getSelection()?.getComposedRanges?.({ shadowRoots })[0]; // the event's own ranges are empty in there
  if (!main.empty || range === undefined || range.collapsed || !view.contentDOM.contains(range.startContainer)) return main;
  return {
    from: view.posAtDOM(range.startContainer, range.startOffset),
    to: view.posAtDOM(range.endContainer, range.endOffset),
  };
}

/** The same of what is composed, which a page can't keep the browser from: the selection goes before it begins. */
function composedOver(_event: CompositionEvent, view: EditorView): boolean {
  if (!view.state.selection.main.empty) view.dispatch(view.state.replaceSelection(""), { userEvent: "delete.selection" });
  return false;
}

function offsetOf(doc: Text, line: number, column: number): number {
  const found = doc.line(Math.min(doc.lines, Math.max(1, line)));
  return Math.min(found.to, found.from + Math.max(0, column - 1));
}

function diagnosticOf(doc: Text, finding: Finding, fixLabel: string): Diagnostic {
  const from = offsetOf(doc, finding.line, finding.column);
  const to = Math.max(from, offsetOf(doc, finding.end_line, finding.end_column));
  const { fix } = finding;
  return {
    from,
    to: to === from ? Math.min(doc.length, from + 1) : to,
    severity: finding.severity,
    message: finding.message.slice(0, 2000),
    ...(fix.length > 0 && {
      actions: [
        {
          name: fixLabel,
          apply: (view: EditorView) =>
            view.dispatch({
              changes: fix.map((each) => ({
                from: offsetOf(view.state.doc, each.line, each.column),
                to: offsetOf(view.state.doc, each.end_line, each.end_column),
                insert: each.text,
              })),
            }),
        },
      ],
    }),
  };
}

function linesUpTo(doc: Text, line: number): string[] {
  const lines: string[] = [];
  for (let n = 1; n <= line; n += 1) lines.push(doc.line(n).text);
  return lines;
}

function completed(context: CompletionContext, now: Now): CompletionResult | null {
  const { schema } = now.current;
  if (schema === null) return null;
  const { doc } = context.state;
  const line = doc.lineAt(context.pos);
  const place = placeAt(linesUpTo(doc, line.number), line.number - 1, context.pos - line.from);
  if (!context.explicit && place.written === "" && place.key === null && line.text.trim() !== "-") return null;
  const offers = offersAt(schema, place);
  if (offers.length === 0) return null;
  const from = context.pos - place.written.length;
  const indent = " ".repeat(from - line.from);
  return {
    from,
    validFor: /^[\w.]*$/,
    options: offers.map((each) => ({
      label: each.label,
      detail: each.example.slice(0, 40),
      info: () => aboutElement(each),
      apply: place.key === null ? opened(each, indent) : each.label,
    })),
  };
}

function opened(offer: Offer, indent: string): string {
  if (offer.opens === "value") return `${offer.label}: `;
  return `${offer.label}:\n${indent}  ${offer.opens === "list" ? "- " : ""}`;
}

function told(view: EditorView, at: number, now: Now) {
  const { schema } = now.current;
  if (schema === null) return null;
  const { doc } = view.state;
  const line = doc.lineAt(at);
  const match = /^(\s*(?:-\s+)*)([A-Za-z_][\w.-]*)\s*:/.exec(line.text);
  const begins = line.from + (match?.[1]?.length ?? 0);
  const key = match?.[2] ?? "";
  if (match === null || at < begins || at > begins + key.length) return null;
  const place = placeAt(linesUpTo(doc, line.number), line.number - 1, begins - line.from + key.length);
  const about = aboutKey(schema, place.path, key);
  if (about === null || about.about === "") return null;
  return { pos: begins, end: begins + key.length, above: true, create: () => ({ dom: aboutElement(about) }) };
}

function aboutElement(offer: Offer): HTMLElement {
  const shown = document.createElement("div");
  shown.className = "about";
  shown.textContent = offer.example ? `${offer.about}\n${offer.example}` : offer.about;
  return shown;
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--good)" },
  { tag: [tags.comment, tags.meta, tags.punctuation, tags.separator], color: "var(--quiet)" },
]);

const THEME = EditorView.theme({
  "&": { height: "100%", fontSize: ".875rem", backgroundColor: "var(--surface)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 7%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "8px", maxWidth: "28rem" },
  ".cm-tooltip .about": { padding: ".4rem .6rem", whiteSpace: "pre-wrap" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal" },
  "li[aria-selected] .cm-completionDetail": { color: "var(--on-accent)" },
  ".cm-diagnostic": { padding: ".4rem .6rem", borderLeft: "4px solid var(--bad)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--warn)" },
  ".cm-diagnosticAction": { backgroundColor: "var(--accent)", color: "var(--on-accent)", padding: ".2rem .5rem" },
  ".cm-lintRange": { backgroundImage: "none !important", paddingBottom: "0" },
  ".cm-lintRange-error": { textDecoration: "underline wavy var(--bad)" },
  ".cm-lintRange-warning": { textDecoration: "underline wavy var(--warn)" },
  ".cm-lintRange-active": { backgroundColor: "var(--warn-soft)" },
  ".cm-lintPoint::after": { borderBottomColor: "var(--bad)" },
});
