// What the server writes into the picture of a workflow, in Chinese. What the author wrote, and the keywords of the
// language, stay as they are.

type Word = readonly [RegExp, string];

// By the style of the text (hai_flow/graph/layout.py).
const WORDS: Record<string, readonly Word[]> = {
  verb: [
    [/^start$/, "开始"],
    [/^end$/, "结束"],
  ],
  detail: [[/^output /, "输出 "]],
  cond: [[/^if /, "如果 "]],
  label: [
    [/^when /, "当 "],
    [/^otherwise$/, "否则"],
    [/^on (\S+)$/, "决定为 $1 时"],
    [/^catch any error$/, "捕获任何错误"],
    [/^catch /, "捕获 "],
    [/^finally$/, "最后"],
  ],
};
const PEOPLE: readonly Word[] = [
  [/(^| · )within /, "$1期限 "],
  [/(^| · )(\d+) of them(?= · |$)/, "$1其中 $2 人"],
];
WORDS["gate"] = [[/^approval: /, "审批："], ...PEOPLE];
WORDS["note"] = [
  ...PEOPLE,
  [/^asks when /, "询问条件："],
  [/^tools /, "工具 "],
  [/^late: /, "逾期："],
  [/, then /g, "，然后 "],
  [/^the first (\d+) branches to finish win$/, "最先完成的 $1 个分支获胜"],
  [/^the first branch to finish wins$/, "最先完成的分支获胜"],
  [/(^| · )(\d+) at once/, "$1同时 $2 个"],
  [/(^| · )a failure stops its item only/, "$1失败只停止该项"],
  [/(^| · )timeout /, "$1超时 "],
  [/(^| · )retry /, "$1重试 "],
  [/(^| · )detached nobody waits/, "$1独立运行"],
  [/(^| · )at most once/, "$1最多一次"],
  [/(^| · )undo /, "$1撤销 "],
];

/** `own`: the text belongs to a step, in whose details the author speaks. */
export function graphWord(style: string, text: string, own: boolean): string {
  if (own && (style === "verb" || style === "detail")) return text;
  return (WORDS[style] ?? []).reduce((said, [form, word]) => said.replace(form, word), text);
}
