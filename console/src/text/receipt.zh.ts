import type { ReceiptTexts } from "./receipt.en.ts";

export const receiptZh: ReceiptTexts = {
  title: "回执",
  proven: "本浏览器已核验此回执：签名和每一处文本都相符。",
  unproven: (part) => `此回执无效：${part}。请勿采信，并告知运维人员。`,
  parts: {
    file: "文件与发出时不同",
    header: "头部不是有效的回执头部",
    key: "签名所用的密钥不在本服务器公布之列",
    signature: "签名与内容不符",
    texts: "有一处文本与签名时不同",
    executed: "执行的内容与决定的内容不同",
  },
  unable: "本浏览器无法核验回执：它不支持 Ed25519，或页面未通过 HTTPS 提供。请下载回执，用 hai-flow receipt verify 核验。",
  asked: "提问者",
  decided: "决定",
  executed: "执行",
  nothing: "无",
  key: "密钥",
  withheld: "（对您不可见）",
  download: "下载回执",
};
