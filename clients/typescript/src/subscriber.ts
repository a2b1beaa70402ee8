/** The callbacks of a subscriber to an `HttpAgent`. */

import type { HttpAgent } from "./agent.js";
import type { Listener, Params, ParamsOfChange } from "./listener.js";

export type { AgentStateMutation, Collaboration } from "./listener.js";

export interface AgentSubscriberParams extends Params<HttpAgent> {}

/** Outside of a run there is no input. */
export type ChangeParams = ParamsOfChange<HttpAgent>;

export interface AgentSubscriber extends Listener<HttpAgent> {}
