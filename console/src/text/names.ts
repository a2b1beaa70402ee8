// Names of fields, options and steps as people read them, where an author gave them no title.

const SHORT = new Set(["id", "url", "uri", "api", "vat", "iban", "bic", "sku", "eur", "usd", "gbp", "cny", "jpy", "chf", "ip", "json", "csv", "pdf", "html", "sql", "sla", "kpi", "gdpr", "hr", "pii"]);

/** "value_eur" is "Value EUR", "askLegal" is "Ask legal"; what is no plain name stays as it is. */
export function humanised(name: string): string {
  if (!/^[A-Za-z][A-Za-z0-9]*([_\- ][A-Za-z0-9]+)*$/.test(name)) return name;
  const words = name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").split(/[_\- ]+/);
  const read = words.map((word) => (SHORT.has(word.toLowerCase()) ? word.toUpperCase() : /^[A-Z0-9]+$/.test(word) ? word : word.toLowerCase()));
  return capitalised(read.join(" "));
}

/** A sentence with a capital letter at its beginning, unless it begins with a command or a setting: those are typed as they are spelt. */
export function capitalised(sentence: string): string {
  return /^(hai-flow|chmod|ulimit)\b|^[^\s:;,]*[_=/.]\w/.test(sentence) ? sentence : sentence.charAt(0).toUpperCase() + sentence.slice(1);
}
