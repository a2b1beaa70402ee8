export { HttpAgent } from "./agent.js";
export type { HttpAgentConfig, HttpAgentFetchFn, RunAgentParameters, RunAgentResult } from "./agent.js";
export type { Credential } from "./credentials.js";
export { documentsOf, textOf } from "./documents.js";
export { ConnectionLost, HaiError, HttpProblem, PatchError, ProtocolError } from "./errors.js";
export type { Problem } from "./errors.js";
export type { FileContent, UploadOptions, UploadedFile } from "./files.js";
export { FlowClient } from "./flow.js";
export type { Answer, ApprovalRequest, Approvals, Inbox, InboxFilters, KeyRequest, Keys, Pendings, QuestionRef, Tenants, TokenRequest } from "./flow.js";
export type { Page, PageOptions } from "./paging.js";
export type { ForkRequest, LogEvent, Moment, RunFilters, RunRef, Runs, StartOptions } from "./runs.js";
export type { InboxNews } from "./news.js";
export type * from "./records.js";
export type { RestConfig } from "./rest.js";
export { isKnownOutput } from "./events.js";
export type * from "./events.js";
export { applyPatch } from "./patch.js";
export type { Pending } from "./pendings.js";
export type { ReconnectOptions } from "./reconnect.js";
export type {
  AgentStateMutation,
  AgentSubscriber,
  AgentSubscriberParams,
  ChangeParams,
  Collaboration,
} from "./subscriber.js";
