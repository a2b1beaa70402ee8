// The console's styles for a shadow root in a page of somebody else: `:root` and `html` are the element's own box, a
// `rem` is the size of its own letters, widths are those of its box, and each token can be set from outside.

const TOKEN = /--(?!hai-)([a-z-]+): ([^;]+);/g;

export function shadowed(css) {
  const plain = css
    .replace(/\/\*[^]*?\*\//g, "")
    .replace(/:root\[data-theme="dark"\]/g, '.hai[data-theme="dark"]')
    .replace(/:root:not\(\[data-theme="light"\]\)/g, '.hai:not([data-theme="light"])')
    .replace(/:root \{/g, ".hai { --rem: var(--hai-font-size, 16px);")
    .replace(TOKEN, (whole, name, value) => (name === "rem" ? whole : `--${name}: var(--hai-${name}, ${value});`))
    .replace(/^html \{ font: 100%\//m, ".hai { font: var(--rem)/")
    .replace(/^body \{.*\}$/m, "");
  return blocks(plain)
    .map(({ prelude, body }) => (prelude.startsWith("@media") ? media(prelude, body) : `${lengths(prelude, absolute)} {${lengths(body, relative)}}`))
    .join("\n");
}

/** The rules of the outermost level. */
function blocks(css) {
  const all = [];
  for (let from = 0; ; ) {
    const open = css.indexOf("{", from);
    if (open < 0) return all;
    let close = open + 1;
    for (let depth = 1; depth > 0; close += 1) depth += css[close] === "{" ? 1 : css[close] === "}" ? -1 : 0;
    all.push({ prelude: css.slice(from, open).trim(), body: css.slice(open + 1, close - 1) });
    from = close;
  }
}

/** Of a query the widths are asked of the element's box, and all else of the screen. */
function media(prelude, body) {
  const queries = prelude.slice("@media".length).split(",").map((each) => each.trim());
  const widths = queries.filter((each) => /^\(m(ax|in)-width/.test(each));
  const rest = queries.filter((each) => !widths.includes(each));
  const written = lengths(body, relative);
  return [
    ...(rest.length > 0 ? [`@media ${rest.join(", ")} {${written}}`] : []),
    ...widths.map((each) => `@container hai ${lengths(each, absolute)} {${written}}`),
  ].join("\n");
}

const lengths = (css, as) => css.replace(/(-?\d*\.?\d+)rem\b/g, (_, n) => as(Number(n)));
const relative = (n) => `calc(var(--rem) * ${n})`;
const absolute = (n) => `${n * 16}px`; // a query knows no custom property
