// What the first day's tour says: the page of one decision does not need it.

import { useLanguage } from "./index.ts";

const en = {
  title: "Your first decision",
  dismiss: "Don't show this",
  done: "done",
  start: "Start the demo",
  startHint: "A small workflow wants to refund 180 to a customer. It needs a person to approve that.",
  open: "Open its question",
  openHint: "The run waits, for days if need be, and asks you. The question is in the list below.",
  openIt: "Open the question",
  decide: "Decide",
  decideHint: "The question shows what will be done, with its arguments. You can edit the amount. Choose Approve or Reject.",
  see: "See what it did",
  seeHint: "The run continued as you decided. Its page shows each step, and its slider every moment.",
  seeIt: "Look at the run",
};

const zh: typeof en = {
  title: "您的第一个决定",
  dismiss: "不再显示",
  done: "完成",
  start: "启动演示",
  startHint: "一个小工作流要给客户退款 180。没有人的批准，它不能退款。",
  open: "打开问题",
  openHint: "运行正在等待您的答复，等几天也没关系。问题就在下面的列表中。",
  openIt: "打开问题",
  decide: "作出决定",
  decideHint: "问题会显示将要执行的操作及其参数，金额可以修改。请选择“批准”或“拒绝”。",
  see: "查看执行结果",
  seeHint: "运行已按您的决定继续。它的页面展示每个步骤，滑块可以回到任何时刻。",
  seeIt: "查看运行过程",
};

export function useTourText(): typeof en {
  return useLanguage() === "zh" ? zh : en;
}
