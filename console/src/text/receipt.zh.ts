import type { ReceiptTexts } from "./receipt.en.ts";

export const receiptZh: ReceiptTexts = {
  title: "凭证",
  proven: "本浏览器已核验此凭证：签名和每一处文本都相符。",
  unproven: (part) => `此凭证不成立：${part}。请勿采信，并告知运维人员。`,
  parts: {
    file: "文件与发出时的写法不同",
    header: "头部不是凭证的头部",
    key: "签名所用的密钥不在本服务器公布之列",
    signature: "签名与内容不符",
    texts: "有一处文本不是签名时的文本",
    executed: "所执行的与所决定的不同",
  },
  unable: "本浏览器无法核验凭证：它不支持 Ed25519，或页面未通过 HTTPS 提供。请下载凭证，用 hai-flow receipt verify 核验。",
  asked: "提问者",
  decided: "决定",
  executed: "执行",
  nothing: "无",
  key: "密钥",
  withheld: "（对你不可见）",
  download: "下载凭证",
};
