// Why nobody can decide a question, and why something could not be sent, in Chinese: the server keeps these as sentences,
// which are told by their form. What is left is what another server has said, and is quoted.

import { plainName } from "../logic/seats.ts";

type Said = (...parts: string[]) => string;

const names = (text: string): string => text.split(", ").map(plainName).join("、");

const REASONS: readonly (readonly [RegExp, Said])[] = [
  [/^(\S+) is away until (\S+) and has not named a delegate/, (who, day) => `${names(who ?? "")} 外出至 ${day}，没有指定代理人`],
  [/^(\S+) is away, and (\S+) has no key to decide with/, (who, other) => `${names(who ?? "")} 外出，代理人 ${names(other ?? "")} 没有密钥`],
  [/^the absences go round in a circle: (.+) to (\S+)/, (chain, last) => `外出代理形成循环：${(chain ?? "").split(" to ").map(plainName).join(" → ")} → ${names(last ?? "")}`],
  [/^more than (\d+) people in a row are away for (\S+)/, (n, who) => `${names(who ?? "")} 的代理人接连外出，超过 ${n} 人`],
  [/^it needs (\d+) more people, and (\d+) can decide/, (n, able) => `还需 ${n} 人，只有 ${able} 人可以决定`],
  [/^nobody with a key or in the file of channels matches (.+)/, (whom) => `没有持有密钥或列入渠道文件的人符合 ${names(whom ?? "")}`],
  [/^nobody with a key matches (.+)/, (whom) => `没有持有密钥的人符合 ${names(whom ?? "")}`],
  [/^(\S+), or somebody by whom the vote came to \S+, is excluded from it \(([^)]*)\)/, (who, by) => `${names(who ?? "")} 或其委托人已被排除（${names(by ?? "")}）`],
  [/^(\S+) is excluded from it \(([^)]*)\)/, (who, by) => `${names(who ?? "")} 已被排除（${names(by ?? "")}）`],
  [/^(\S+) is an agent, and agents decide only where `from` names them/, (who) => `${names(who ?? "")} 是智能体，只有在流程指名时才能决定`],
  [/^(\d+) of those whom it asks are being picked; look again in a moment/, (n) => `正在选定 ${n} 人，请稍后再看`],
  [/^(\S+(?:, \S+)*) (?:was|were) picked to decide it/, (who) => `已选定由 ${names(who ?? "")} 决定`],
  [/^(\S+) has voted on it; a vote stands/, (who) => `${names(who ?? "")} 已投票，投票不可更改`],
  [/^(\S+) started this run; somebody else must decide/, (who) => `运行由 ${names(who ?? "")} 启动，须由他人决定`],
  [/^(\S+) [^;]+; somebody else must decide/, (who) => `运行由 ${names(who ?? "")} 引起，须由他人决定`],
  [/^it takes more people than one/, () => "需要不止一人决定"],
  [/^it asks (.+)/, (whom) => `询问的是 ${names(whom ?? "")}`],
  [/^no (?:answer|end) within (\S+) s/, (n) => `${n} 秒内没有应答`],
  [/^it answered (\S+)/, (status) => `对方服务器返回 ${status}`],
  [/^its answer has more than (\d+) bytes/, (n) => `对方的应答超过 ${n} 字节`],
  [/^the secret (\S+) is not there; set (\S+)/, (name, setting) => `缺少密钥 ${name}，请设置 ${setting}`],
  [/^the mail server refused the recipient \((\d+)\)/, (status) => `邮件服务器拒绝了收件人（${status}）`],
  [/^there is no channel (.+) in the file that HAI_FLOW_NOTIFY names/, (name) => `HAI_FLOW_NOTIFY 所指的文件中没有渠道 ${name}`],
  [/^nobody who is meant has an e-mail address in the file that HAI_FLOW_NOTIFY names/, () => "HAI_FLOW_NOTIFY 所指的文件中没有相关人员的邮箱地址"],
  [/^nobody who is meant has connected an account of this chat, and the channel has no `room`/, () => "相关人员都没有绑定此聊天工具的账号，渠道也没有设置 `room`"],
  [/^(.+) is no app in a chat, in the file that HAI_FLOW_NOTIFY names/, (name) => `HAI_FLOW_NOTIFY 所指的文件中，${name} 不是聊天应用`],
  [/^this process knows no apps in chats/, () => "此进程没有聊天应用"],
  [/^WeCom shows cards to people, not in rooms: leave `room` away/, () => "企业微信只向个人发送卡片，不能发到群聊：请去掉 `room`"],
  [/^WeCom knows no user (.+)/, (id) => `企业微信中没有用户 ${id}`],
  [/^(\S+) gives no token: (.+)/, (platform, why) => `${platform} 没有签发令牌：“${why}”`],
];

/** The reasons of a sentence that the server has put together of them. */
export function reasonInChinese(sentence: string): string {
  const told: string[] = [];
  for (let left = sentence; left !== ""; left = left.replace(/^; /, "")) {
    const [reason, match] = first(left);
    if (reason === null || match === null) return [...told, `原文：“${left}”`].join("；");
    told.push(reason(...match.slice(1)));
    left = left.slice(match[0].length);
  }
  return `${told.join("；")}。`;
}

function first(text: string): [Said, RegExpExecArray] | [null, null] {
  for (const [form, said] of REASONS) {
    const match = form.exec(text);
    if (match !== null) return [said, match];
  }
  return [null, null];
}
