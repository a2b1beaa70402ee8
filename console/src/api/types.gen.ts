// Written by `make generate` from the server's OpenAPI document: change api/requests/schemas.py, or clients/openapi.py.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface AMoment {
  seq: number;
  at: string | null;
  status: "new" | "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
}

export interface Absence {
  id: string;
  person: string;
  delegate: string | null;
  first_day: string;
  last_day: string;
  zone: string;
  since: string;
  until: string;
  note: string | null;
  entered_by: string;
  decides_now: string | null;
  why_nobody: string | null;
}

export interface AbsenceBody {
  person?: string | null;
  delegate?: string | null;
  first_day: string;
  last_day: string;
  zone?: string;
  note?: string | null;
}

export interface AbsencePage {
  items: Absence[];
  next_cursor: string | null;
}

export interface AccountBody {
  channel: string;
}

export interface Approval {
  id: string;
  status: "pending" | "approved" | "consumed" | "rejected" | "expired" | "cancelled" | "failed";
  action: string;
  arguments: Json;
  edited: boolean;
  digest: string;
  workflow: string;
  requested_by: string;
  page: string;
  pending_id: string | null;
  expires_at: string | null;
  reason: string | null;
  votes: Json;
  consumed_at: string | null;
  error: Record<string, Json> | null;
}

export interface ApprovalBody {
  action: string;
  arguments: Record<string, Json>;
  policy?: Record<string, Json> | null;
  workflow?: string;
  expires_in?: string | null;
  title?: string | null;
  message?: string | null;
  webhook?: OutcomeWebhook | null;
}

export interface Asked {
  path: string;
  title: string | null;
  status: string;
  by: string | null;
  votes: Record<string, Json>[];
}

export interface AuditAnchor {
  tenant: string;
  n: number;
  hash: string;
}

export interface AuditChainPage {
  items: AuditLink[];
  next_cursor: string | null;
}

export interface AuditLink {
  tenant: string;
  n: number;
  id: string;
  hash: string;
  record: Record<string, Json> | null;
  details: Record<string, Json> | null;
}

export interface AuditPage {
  missing: string[];
  items: AuditRecord[];
  next_cursor: string | null;
}

export interface AuditRecord {
  id: string;
  n: number | null;
  at: string;
  act: string;
  by: string | null;
  run_id: string | null;
  seq: number | null;
  subject: string | null;
  digest: string | null;
  details: Record<string, Json> | null;
  erased_at: string | null;
}

export interface BacktestExample {
  run_id: string;
  kind: string;
  step: string;
  recorded: string;
  now: string;
  more: BacktestQuestion[];
  fewer: BacktestQuestion[];
  reason: string;
}

export interface BacktestQuestion {
  step: string;
  from: string[];
  quorum: string;
  runs?: number;
}

export interface BacktestReport {
  workflow: string;
  since: string;
  complete: boolean;
  runs: number;
  verdicts: Record<string, number>;
  unreadable: Record<string, number>;
  more: BacktestQuestion[];
  fewer: BacktestQuestion[];
  waiting: number;
  stuck: Record<string, number>;
  examples: BacktestExample[];
  stuck_examples: BacktestStuck[];
  unreadable_examples: BacktestUnread[];
}

export interface BacktestStuck {
  run_id: string;
  obstacles: Obstacle[];
}

export interface BacktestUnread {
  run_id: string;
  reason: string;
  detail: string;
}

export interface BulkItem {
  decision?: string | null;
  reason?: string | null;
  values?: Json;
  edits?: Json;
  digest?: string | null;
  result?: Json;
  error?: string | null;
  on_behalf_of?: string | null;
  id: string;
}

export interface BulkOutcome {
  id: string;
  status: number;
  pending: DecidedPending | null;
  problem: Record<string, Json> | null;
}

export interface BulkOutcomes {
  items: BulkOutcome[];
}

export interface BulkReport {
  action: string;
  dry_run: boolean;
  found: number;
  done: number;
  already: number;
  refused: number;
  items: BulkRun[];
}

export interface BulkRun {
  id: string;
  status: string;
  outcome: "done" | "already" | "refused" | "would";
  problem: MarkObstacle | null;
}

export interface Call {
  name: string;
  arguments: string;
  executor: string;
  error: string | null;
}

export interface Canaries {
  missing: string[];
  items: Canary[];
}

export interface Canary {
  run_id: string;
  pending_id: string | null;
  workflow: string;
  path: string;
  tool: string | null;
  started_by: string;
  reason: string;
  seeded_by: string;
  at: string;
  status: "open" | "caught" | "missed" | "expired" | "withdrawn" | "spoilt";
}

export interface CanaryBody {
  workflow: string;
  path: string;
  arguments?: Record<string, Json> | null;
  evidence?: Json;
  form?: Record<string, Json> | null;
  title?: string | null;
  message?: string | null;
  summary?: string | null;
  requester?: string | null;
  reason: string;
  within?: string | null;
}

export interface CellOverview {
  name: string;
  servers: ServerStanding[];
  workers: WorkerStanding[];
  waiting: WaitingCounts;
  runs: Record<string, number>;
  faults: string[];
  problems: FaultStanding[];
  checks: SetupCheck[];
  hours: HourOfRuns[];
}

export interface Change {
  kind: "added" | "removed" | "moved" | "changed";
  path: string;
  verb: string;
  was?: string | null;
  parts: ChangedPart[];
}

export interface ChangedPart {
  key: string;
  from: Json;
  to: Json;
}

export interface ChatAccount {
  id: string;
  channel: string;
  account: string | null;
  until: string;
  created_at: string;
}

export interface ChatAccounts {
  items: ChatAccount[];
}

export interface ChatCode {
  id: string;
  channel: string;
  account: string | null;
  until: string;
  created_at: string;
  code: string;
  send: string;
}

export interface CheckedAnswer {
  id: string;
  already: boolean;
  decides: boolean;
  status: string;
  title: string | null;
  args: Json;
  digest: string;
  lapsing: Record<string, Json>[];
  needed: Record<string, Json> | null;
}

export interface ClaimBody {
  for?: string;
}

export interface ConsumeBody {
  digest?: string | null;
  action?: string | null;
  arguments?: Record<string, Json> | null;
}

export interface ConsumedApproval {
  id: string;
  status: "pending" | "approved" | "consumed" | "rejected" | "expired" | "cancelled" | "failed";
  action: string;
  arguments: Json;
  edited: boolean;
  digest: string;
  workflow: string;
  requested_by: string;
  page: string;
  pending_id: string | null;
  expires_at: string | null;
  reason: string | null;
  votes: Json;
  consumed_at: string | null;
  error: Record<string, Json> | null;
  already: boolean;
}

export interface ControlRunsBody {
  action: "pause" | "resume" | "stop" | "retry";
  where?: Where | null;
  runs?: string[] | null;
  expect?: number | null;
  reason?: string;
  dry_run?: boolean;
}

export interface ControlledRun {
  id: string;
  thread_id: string;
  workflow: string;
  workflow_title: string | null;
  summary: string | null;
  version: Version;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  seq: number;
  started_by: string;
  instigators: string[];
  created_at: string;
  ended_at: string | null;
  input: Json;
  output: Json;
  error: Record<string, Json> | null;
  branch_of: string | null;
  parent: RunParent | null;
  unreadable: string | null;
  queue: string;
  frozen: boolean;
  queued_for?: QueuedFor | null;
  paused?: Pause | null;
  held_by?: Holder | null;
  in_flight?: number;
}

export interface CursorReset {
  seq: number;
}

export interface DecideBody {
  decision?: string | null;
  reason?: string | null;
  values?: Json;
  edits?: Json;
  digest?: string | null;
  result?: Json;
  error?: string | null;
  on_behalf_of?: string | null;
}

export interface DecideSeveralBody {
  items: BulkItem[];
}

export interface Decided {
  id: string;
  run_id: string;
  workflow: string;
  workflow_title: string | null;
  kind: "tool" | "ask" | "approve" | "gate" | "doubt";
  title: string | null;
  decision: string | null;
  reason: string | null;
  by: string;
  on_behalf_of: string | null;
  via: string;
  rule: string | null;
  at: string;
  status: string;
}

export interface DecidedPage {
  missing: string[];
  items: Decided[];
  next_cursor: string | null;
}

export interface DecidedPending {
  id: string;
  run_id: string;
  workflow: string;
  workflow_title?: string | null;
  started_by: string;
  status: string;
  opened_at: string;
  path: string;
  kind: "tool" | "ask" | "approve" | "gate" | "doubt";
  title: string | null;
  message: string | null;
  tool: string | null;
  effect?: "read" | "reversible" | "external" | "irreversible" | "write" | null;
  args: Json;
  evidence: Json;
  schema: Json;
  options: string[];
  policy: Json;
  deadline: string | null;
  digest: string;
  nobody_decides?: string | null;
  needed: Record<string, Json> | null;
  edits: Record<string, Json> | null;
  decided_by: string | null;
  on_behalf_of: string | null;
  decided_at: string | null;
  value: Json;
  reason: string | null;
  canary?: Record<string, Json> | null;
  already: boolean;
}

export interface Delegation {
  id: string;
  from: string;
  to: string;
  since: string;
  until: string;
  note: string | null;
  ends_with: "key" | "session" | "token" | null;
}

export interface DelegationBody {
  to: string;
  since?: string | null;
  until: string;
  note?: string | null;
}

export interface DelegationPage {
  items: Delegation[];
  next_cursor: string | null;
}

export interface Delegations {
  items: Delegation[];
}

export interface Diff {
  from: Version;
  to: Version;
  document: ChangedPart[];
  steps: Change[];
}

export interface Difference {
  from: AMoment;
  to: AMoment;
  state: Record<string, Json>[];
  steps: Record<string, StepChange>;
  pendings: Record<string, PendingChange>;
}

export interface Edit {
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  text: string;
}

export interface EventsPage {
  items: Record<string, Json>[];
  next_cursor: string | null;
  cursor_reset?: CursorReset | null;
}

export interface FaultStanding {
  code: string;
  message: string;
  params: string[];
}

export interface Feedback {
  id: string;
  thread_id: string;
  kind: "message" | "pending";
  subject_id: string;
  run_id: string;
  by: string;
  via: string;
  rating: "up" | "down" | 1 | 2 | 3 | 4 | 5 | null;
  comment: string | null;
  labels: string[];
  created_at: string;
  updated_at: string;
}

export interface FeedbackBody {
  rating?: "up" | "down" | 1 | 2 | 3 | 4 | 5 | null;
  comment?: string | null;
  labels?: string[];
}

export interface FeedbackPage {
  items: Feedback[];
  next_cursor: string | null;
}

export interface File {
  id: string;
  sha256: string;
  size: number;
  name: string;
  media_type: string;
  part: Record<string, Json>;
}

export interface Finding {
  file: string;
  line: number;
  column: number;
  severity: "error" | "warning";
  code: string;
  message: string;
  end_line: number;
  end_column: number;
  fix: Edit[];
  params: string[];
}

export interface Fire {
  at: string;
  outcome: "started" | "skipped" | "refused" | null;
  run_id: string | null;
}

export interface Fires {
  next: string[];
  past: Fire[];
}

export interface ForkBody {
  at?: number | null;
  step?: string | null;
  input?: Record<string, Json> | null;
  state?: Record<string, Json> | null;
  version?: string | null;
  map?: Record<string, string>;
  reason?: string;
  dry_run?: boolean;
}

export interface Formatted {
  source: string;
  changed: boolean;
}

export interface Freeze {
  id: string;
  mode: "frozen" | "read_only" | "no_agents";
  scope: "all" | "tenant" | "workflow" | "tool" | "model" | "principal";
  name: string;
  tenant: string | null;
  reason: string;
  created_by: string;
  created_at: string;
  thawed_by: string | null;
  thawed_at: string | null;
}

export interface FreezeBody {
  mode?: "frozen" | "read_only" | "no_agents";
  scope: "all" | "tenant" | "workflow" | "tool" | "model" | "principal";
  name?: string;
  reason: string;
}

export interface Freezes {
  items: Freeze[];
}

export interface Graph {
  name: string;
  version: number;
  title: string;
  width: number;
  height: number;
  steps: GraphStep[];
  shapes: (GraphBox | GraphText | GraphLine)[];
}

export interface GraphBox {
  shape: "box";
  style: string;
  step: string | null;
  x: number;
  y: number;
  width: number;
  height: number;
  radius: number;
}

export interface GraphLine {
  shape: "line";
  style: "flow" | "dashed";
  step: string | null;
  points: number[][];
  arrow: boolean;
  from: string | null;
  to: string | null;
}

export interface GraphStep {
  path: string;
  id: string | null;
  verb: string;
  kind: "effect" | "model" | "people" | "message" | "state" | "time" | "end" | "block";
  title: string;
  detail: string;
  condition: string | null;
  gate: string | null;
  notes: string[];
  within: string | null;
  lane: string | null;
  line: number | null;
  column: number | null;
  end_line: number | null;
}

export interface GraphText {
  shape: "text";
  style: string;
  step: string | null;
  x: number;
  y: number;
  text: string;
  full: string | null;
  anchor: "start" | "middle";
}

export interface Health {
  status: "ok";
  version: string;
  streams: number;
  identity: "none" | "keys" | "file";
}

export interface Holder {
  name: string;
  alive: boolean;
}

export interface HourOfRuns {
  since: string;
  finished: number;
  failed: number;
  stopped: number;
}

export interface InboxCounts {
  missing: string[];
  workflows: Record<string, number>;
  complete: boolean;
}

export interface InboxItem {
  id: string;
  run_id: string;
  workflow: string;
  workflow_title?: string | null;
  started_by: string;
  status: string;
  opened_at: string;
  path: string;
  kind: "tool" | "ask" | "approve" | "gate" | "doubt";
  title: string | null;
  message: string | null;
  tool: string | null;
  effect?: "read" | "reversible" | "external" | "irreversible" | "write" | null;
  args: Json;
  evidence: Json;
  schema: Json;
  options: string[];
  policy: Json;
  deadline: string | null;
  digest: string;
  nobody_decides?: string | null;
  may_decide: boolean;
  why_not: WhyNot | null;
  on_behalf_of: string[];
  needed: Record<string, Json> | null;
  claimed_by: string | null;
  claimed_until: string | null;
}

export interface InboxPage {
  missing: string[];
  items: InboxItem[];
  next_cursor: string | null;
}

export interface InputBody {
  session_id: string;
  action?: string | null;
  label?: string | null;
  payload?: Record<string, Json> | null;
  interrupt_id?: string | null;
}

export interface JumpBody {
  for: string;
}

export interface JumpedRun {
  id: string;
  thread_id: string;
  workflow: string;
  workflow_title: string | null;
  summary: string | null;
  version: Version;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  seq: number;
  started_by: string;
  instigators: string[];
  created_at: string;
  ended_at: string | null;
  input: Json;
  output: Json;
  error: Record<string, Json> | null;
  branch_of: string | null;
  parent: RunParent | null;
  unreadable: string | null;
  queue: string;
  frozen: boolean;
  queued_for?: QueuedFor | null;
  paused?: Pause | null;
  held_by?: Holder | null;
  passed_ms: number;
  left_ms: number;
  children: string[];
}

export interface Key {
  id: string;
  name: string;
  principal: string;
  roles: string[];
  groups: string[];
  speaks_for: string[];
  created_by: string;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  used_at: string | null;
}

export interface KeyBody {
  principal: string;
  name?: string;
  roles?: string[];
  groups?: string[];
  expires_in?: number | null;
  speaks_for?: string[];
}

export interface KeyPage {
  items: Key[];
  next_cursor: string | null;
}

export interface Left {
  run_id: string;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  in_flight: string[];
  undoes: string[];
}

export interface Limits {
  runs_per_minute: number | null;
  open_runs: number | null;
  followers: number | null;
  log_bytes: number | null;
}

export interface Mark {
  seq: number;
  at: string;
  turn: number;
  step: string | null;
  forkable: boolean;
  editable: boolean;
  why_not: MarkObstacle | null;
}

export interface MarkObstacle {
  code: string;
  detail: string;
}

export interface Marks {
  items: Mark[];
}

export interface Message {
  id: string;
  role: string;
  kind: string;
  content: Json;
  open: boolean;
  at: string;
}

export interface MigrateBody {
  from: string;
  to: string;
  runs?: string[] | null;
  map?: Record<string, string>;
  dry_run?: boolean;
}

export interface MigratedRun {
  id: string;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  movable: boolean;
  moved: boolean;
  obstacles: Obstacle[];
}

export interface Migration {
  from: Version;
  to: Version;
  dry_run: boolean;
  runs: MigratedRun[];
  more: boolean;
}

export interface ModelUsage {
  provider: string;
  model: string;
  calls: number;
  input: number;
  output: number;
  cached: number;
  reasoning: number;
  cost: number | null;
}

export interface NewKey {
  id: string;
  name: string;
  principal: string;
  roles: string[];
  groups: string[];
  speaks_for: string[];
  created_by: string;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  used_at: string | null;
  key: string;
}

export interface Notification {
  id: string;
  run_id: string;
  pending_id: string;
  what: "opened" | "escalated" | "reminded" | "reseated" | "stranded";
  channel: string | null;
  person: string | null;
  status: "queued" | "due" | "sent" | "dropped" | "dead";
  tries: number;
  error: string | null;
  created_at: string;
  due_at: string | null;
}

export interface NotificationPage {
  missing: string[];
  items: Notification[];
  next_cursor: string | null;
}

export interface Obstacle {
  code: string;
  path: string;
  message: string;
}

export interface OpenedBody {
  part: "link";
}

export interface OpenedPending {
  id: string;
  run_id: string;
  workflow: string;
  workflow_title?: string | null;
  started_by: string;
  status: string;
  opened_at: string;
  path: string;
  kind: "tool" | "ask" | "approve" | "gate" | "doubt";
  title: string | null;
  message: string | null;
  tool: string | null;
  effect?: "read" | "reversible" | "external" | "irreversible" | "write" | null;
  args: Json;
  evidence: Json;
  schema: Json;
  options: string[];
  policy: Json;
  deadline: string | null;
  digest: string;
  nobody_decides?: string | null;
}

export interface Opening {
  principal: string;
  part: "question" | "attachment" | "link";
  at: string;
}

export interface Openings {
  items: Opening[];
}

export interface Origin {
  run_id: string;
  path: string | null;
}

export interface OutcomeWebhook {
  url: string;
  secret: string;
}

export interface Oversight {
  missing: string[];
  since: string;
  by: "workflow" | "tool";
  under: number;
  complete: boolean;
  items: OversightGroup[];
}

export interface OversightGroup {
  name: string | null;
  questions: number;
  open: number;
  approved: number;
  refused: number;
  other: number;
  expired: number;
  withdrawn: number;
  edited: number;
  by_rule: number;
  votes: number;
  quick: number;
  opened: number;
  followed: number;
  canaries: number;
  caught: number;
  missed: number;
  median_seconds: number | null;
  p90_seconds: number | null;
}

export interface Overview {
  cells: CellOverview[];
  counted_max: number;
}

export interface Pause {
  by: string;
  at: string;
  reason: string;
}

export interface Pending {
  id: string;
  run_id: string;
  workflow: string;
  workflow_title?: string | null;
  started_by: string;
  status: string;
  opened_at: string;
  path: string;
  kind: "tool" | "ask" | "approve" | "gate" | "doubt";
  title: string | null;
  message: string | null;
  tool: string | null;
  effect?: "read" | "reversible" | "external" | "irreversible" | "write" | null;
  args: Json;
  evidence: Json;
  schema: Json;
  options: string[];
  policy: Json;
  deadline: string | null;
  digest: string;
  nobody_decides?: string | null;
  needed: Record<string, Json> | null;
  edits: Record<string, Json> | null;
  decided_by: string | null;
  on_behalf_of: string | null;
  decided_at: string | null;
  value: Json;
  reason: string | null;
  canary?: Record<string, Json> | null;
}

export interface PendingArguments {
  tool: string | null;
  description: string | null;
  parameters: Record<string, Json> | null;
}

export interface PendingChange {
  from: Asked | null;
  to: Asked | null;
}

export interface PendingHistory {
  items: Record<string, Json>[];
  next_cursor: string | null;
}

export interface PendingPage {
  missing: string[];
  items: OpenedPending[];
  next_cursor: string | null;
}

export interface PersonOversight {
  missing: string[];
  since: string;
  under: number;
  complete: boolean;
  questions: number;
  approved: number;
  refused: number;
  other: number;
  edited: number;
  by_rule: number;
  votes: number;
  quick: number;
  opened: number;
  followed: number;
  canaries: number;
  caught: number;
  missed: number;
  median_seconds: number | null;
  p90_seconds: number | null;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  params?: string[];
  findings?: {
    message: string;
    path?: string;
    code?: string;
    params?: string[];
  }[];
  winner?: Json;
  see?: string;
}

export interface ProposalBody {
  pending_id: string;
  kind?: "allow" | "never";
  every_workflow?: boolean;
  when?: string | null;
  arguments?: Record<string, Record<string, Json>>;
  until: string;
  uses?: number | null;
  every?: string | null;
  reason: string;
  from?: string[] | null;
  quorum?: number | null;
  expires_in?: string;
}

export interface ProtectedResource {
  resource: string;
  authorization_servers: string[];
  bearer_methods_supported: string[];
  resource_name: string;
}

export interface PublicKeys {
  keys: Record<string, Json>[];
}

export interface PublishedWorkflow {
  version: number;
  sha256: string;
  dev: boolean;
  name: string;
  title: string | null;
  created_at: string;
  retired_at: string | null;
  warnings: Finding[];
}

export interface QueuedFor {
  key: string;
  limit: number;
  holders: SlotHolder[];
}

export interface QueuedMessage {
  run_id: string;
  by: string;
  message: string | null;
  queued_at: string;
  refused: Record<string, Json> | null;
}

export interface QueuedMessages {
  items: QueuedMessage[];
}

export interface Readiness {
  status: "ready";
  hints: "good" | "away";
  worker: boolean;
  workers: number | null;
  waiting: number | null;
  unserved: string[] | null;
}

export interface ReasonBody {
  reason?: string;
}

export interface Receipt {
  receipt: string;
  texts: Record<string, ReceiptText>;
}

export interface ReceiptText {
  salt: string;
  text: string;
}

export interface ReceivedCallback {
  already: boolean;
}

export interface ReceivedEvent {
  id: string;
  type: string;
  sent_at: string;
  already: boolean;
  runs: StartedRun[];
}

export interface ReceivedWebhook {
  run_id: string | null;
  already: boolean;
}

export interface Rehearsal {
  of: string;
  at: number;
  thread_id: string;
  workflow: string;
  version: number;
  requester: string;
  begins: string[];
  asks: string[];
  restarts: string[];
  stops: Left | null;
}

export interface RevocationBody {
  reason?: string;
}

export interface RuleRecord {
  id: string;
  kind: "allow" | "never";
  status: "proposed" | "active" | "used_up" | "expired" | "refused" | "revoked";
  tool: string;
  workflow: string | null;
  when: string | null;
  arguments: Record<string, Record<string, Json>>;
  until: string;
  uses: number;
  uses_max: number | null;
  every: string | null;
  reason: string;
  digest: string;
  proposed_by: string;
  approved_by: string[];
  pending_id: string | null;
  run_id: string | null;
  created_at: string;
  approved_at: string | null;
  ended_at: string | null;
  ended_by: string | null;
  ended_why: string | null;
}

export interface RuleRecords {
  items: RuleRecord[];
}

export interface RuleUsage {
  run_id: string;
  pending_id: string;
  at: string;
}

export interface RuleWithUses {
  id: string;
  kind: "allow" | "never";
  status: "proposed" | "active" | "used_up" | "expired" | "refused" | "revoked";
  tool: string;
  workflow: string | null;
  when: string | null;
  arguments: Record<string, Record<string, Json>>;
  until: string;
  uses: number;
  uses_max: number | null;
  every: string | null;
  reason: string;
  digest: string;
  proposed_by: string;
  approved_by: string[];
  pending_id: string | null;
  run_id: string | null;
  created_at: string;
  approved_at: string | null;
  ended_at: string | null;
  ended_by: string | null;
  ended_why: string | null;
  last_uses: RuleUsage[];
}

export interface Run {
  id: string;
  thread_id: string;
  workflow: string;
  workflow_title: string | null;
  summary: string | null;
  version: Version;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  seq: number;
  started_by: string;
  instigators: string[];
  created_at: string;
  ended_at: string | null;
  input: Json;
  output: Json;
  error: Record<string, Json> | null;
  branch_of: string | null;
  parent: RunParent | null;
  unreadable: string | null;
  queue: string;
  frozen: boolean;
  queued_for?: QueuedFor | null;
  paused?: Pause | null;
  held_by?: Holder | null;
}

export interface RunCounts {
  missing: string[];
  counts: Record<string, number>;
  max: number;
}

export interface RunPage {
  missing: string[];
  items: Run[];
  next_cursor: string | null;
}

export interface RunParent {
  run_id: string;
  path: string;
}

export interface RunStep {
  path: string;
  plan_path: string;
  verb: string;
  title: string | null;
  status: "running" | "finished" | "failed" | "skipped" | "stopped" | "undone";
  started_at: string;
  ended_at: string | null;
  first_seq: number;
  last_seq: number;
  args: Json;
  error: Record<string, Json> | null;
  attempts: StepAttempt[];
  waits: StepWait[];
  children: string[];
  notes: string[];
  usage: Record<string, number>;
  passages?: Record<string, number> | null;
}

export interface Schedule {
  id: string;
  workflow: string;
  version: Version;
  cron: string | null;
  timezone: string;
  explanation: string;
  explained: ScheduleClause[];
  missed: "skip" | "once" | "all";
  overlap: "queue" | "queue_one" | "skip" | "cancel_running";
  input: Record<string, Json>;
  paused: boolean;
  waiting: number;
  next: string | null;
  last: string | null;
  last_run_id: string | null;
}

export interface ScheduleClause {
  code: "schedule.interval" | "schedule.times" | "schedule.minute" | "schedule.hour" | "schedule.day" | "schedule.weekday" | "schedule.day_or_weekday" | "schedule.month" | "schedule.zone";
  params: string[];
}

export interface SchedulePage {
  items: Schedule[];
  next_cursor: string | null;
}

export interface ServerStanding {
  name: string;
  release: string;
  up: number;
  seen: number;
}

export interface Session {
  principal: string;
  roles: string[];
  groups: string[];
  rights: string[];
  way: string;
  expires_at: string | null;
  csrf: string | null;
}

export interface SetupCheck {
  name: string;
  verdict: "good" | "doubtful" | "bad";
  found: string;
  remedy: string;
  code: string;
  params: string[];
}

export interface Signal {
  id: string;
  type: string;
  run_id: string | null;
  sent_at: string;
  already: boolean;
}

export interface SignalBody {
  type: string;
  data?: Json;
  id?: string | null;
}

export interface SkipBody {
  step: string;
  output?: Json;
  reason?: string;
}

export interface SlotHolder {
  run_id: string;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped" | null;
}

export interface Snapshot {
  run_id: string;
  seq: number;
  status: "new" | "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  trigger: string;
  scheduled_at: string | null;
  origin: Origin | null;
  turn: Turn | null;
  state: Json;
  steps: Record<string, StepView>;
  pendings: Pending[];
  messages: Message[];
  timers: Timer[];
  usage: ModelUsage[];
  output: Json;
  error: Record<string, Json> | null;
}

export interface StartBody {
  workflow: string;
  input?: Record<string, Json>;
  thread_id?: string | null;
}

export interface StartedRun {
  workflow: string;
  status: "started" | "already" | "refused";
  run_id: string | null;
  problem: TriggerProblem | null;
}

export interface Step {
  path: string;
  verb: string;
}

export interface StepAttempt {
  n: number;
  started_at: string;
  ended_at: string | null;
  lost: boolean;
  error: Record<string, Json> | null;
}

export interface StepChange {
  from: StepView | null;
  to: StepView | null;
}

export interface StepPage {
  items: RunStep[];
  next_cursor: string | null;
}

export interface StepView {
  status: string;
  attempt: number;
  output?: Json;
  error?: Record<string, Json> | null;
}

export interface StepWait {
  for: "people" | "time" | "signal" | "retry" | "child";
  since: string;
  until: string | null;
  due: string | null;
  pending_id: string | null;
}

export interface Tenant {
  id: string;
  name: string;
  created_at: string;
  limits: Limits;
  in_force: Limits;
  cells: TenantCell[];
}

export interface TenantBody {
  cells?: string[] | null;
  runs_per_minute?: number | null;
  open_runs?: number | null;
  followers?: number | null;
  log_bytes?: number | null;
}

export interface TenantCell {
  name: string;
  begins: boolean;
  first: boolean;
}

export interface Tenants {
  items: Tenant[];
}

export interface Thread {
  id: string;
  run_id: string;
  workflow: string;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  created_at: string;
  updated_at: string;
}

export interface ThreadMessage {
  id: string;
  run_id: string;
  seq: number;
  role: string;
  kind: string;
  content: Json;
  at: string;
  call: Call | null;
  aborted: boolean;
}

export interface ThreadMessagePage {
  items: ThreadMessage[];
  next_cursor: string | null;
}

export interface ThreadPage {
  missing: string[];
  items: Thread[];
  next_cursor: string | null;
}

export interface ThreadWithRuns {
  id: string;
  run_id: string;
  workflow: string;
  status: "queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped";
  created_at: string;
  updated_at: string;
  runs: Run[];
}

export interface Ticket {
  ticket: string;
  expires_at: string;
}

export interface Timer {
  path: string;
  kind: string;
  due: string;
}

export interface Token {
  token: string;
  principal: string;
  expires_at: string;
}

export interface TokenBody {
  principal: string;
  roles?: string[];
  groups?: string[];
  threads?: string[] | null;
  workflows?: string[] | null;
  expires_in?: number;
}

export interface TriggerProblem {
  code: string;
  detail: string;
  findings: Json[];
}

export interface Turn {
  n: number;
  first_seq: number;
  open: boolean;
  wire_run_id: string | null;
}

export interface Validation {
  valid: boolean;
  findings: Finding[];
}

export interface Version {
  version: number;
  sha256: string;
  dev: boolean;
}

export interface WaitingCounts {
  due: number;
  due_age: number;
  overdue: number;
  pendings: number;
  pendings_age: number;
  outbox: number;
  outbox_age: number;
  unsealed_age: number;
  workers: number;
}

export interface Where {
  status?: ("queued" | "running" | "waiting" | "paused" | "stopping" | "needs_attention" | "finished" | "failed" | "stopped")[] | null;
  workflow?: string | null;
  workflow_like?: string | null;
  version?: number | null;
  thread_id?: string | null;
  queue?: string | null;
  started_by?: string | null;
  created_after?: string | null;
  created_before?: string | null;
  error?: string | null;
}

export interface WhyNot {
  code: "excluded.requester" | "excluded.instigator" | "agent" | "excluded" | "voted" | "not_asked" | "not_picked" | "unreadable";
  reason: string;
}

export interface Worker {
  id: number;
  name: string;
  cell: string;
  state: "alive" | "draining" | "ended" | "dead";
  queues: string[];
  release: string | null;
  started_at: string | null;
  beat_at: string | null;
  draining_since: string | null;
  holds: number;
  held: number | null;
  attempts: number | null;
  waiting: number | null;
  places: number | null;
}

export interface WorkerStanding {
  id: number;
  name: string;
  release: string | null;
  lease: number;
  held: number;
}

export interface Workers {
  items: Worker[];
}

export interface Workflow {
  version: number;
  sha256: string;
  dev: boolean;
  name: string;
  title: string | null;
  created_at: string;
  retired_at: string | null;
  description: string;
  input: Json;
  steps: Step[];
  source: string;
  versions: WorkflowSummary[];
}

export interface WorkflowPage {
  items: WorkflowSummary[];
  next_cursor: string | null;
}

export interface WorkflowSummary {
  version: number;
  sha256: string;
  dev: boolean;
  name: string;
  title: string | null;
  created_at: string;
  retired_at: string | null;
}
