/** A sentence of ours, in which commands stand between backticks. */
export function WithCode({ text }: { text: string }) {
  return <>{text.split("`").map((each, i) => (i % 2 === 1 ? <code key={i}>{each}</code> : each))}</>;
}
