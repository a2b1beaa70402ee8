export { HttpAgent } from "./agent.js";
export type { Credential, HttpAgentConfig, HttpAgentFetchFn, RunAgentParameters, RunAgentResult } from "./agent.js";
export { documentsOf, textOf } from "./documents.js";
export { ConnectionLost, HaiError, HttpProblem, PatchError, ProtocolError } from "./errors.js";
export type { Problem } from "./errors.js";
export type { FileContent, UploadOptions, UploadedFile } from "./files.js";
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
