/** What the limiter needs of a store: run the script, and say whether it is there. */
export interface Store {
  /**
   * The keys of one call must lie in one slot (a Redis Cluster): an evaluation that spans slots is sent as several
   * calls. Without it any keys may go together.
   */
  readonly isCluster?: boolean
  /**
   * Runs the decision script once for each call, and plain commands beside it, all in one HTTP request; for no calls at
   * all there is none.
   * @returns the replies in order, not yet checked; where some calls failed and others did not (one slot of a cluster is
   *   gone), a GatewayError in the place of the reply
   * @throws GatewayError ERR_STORE_TIMEOUT, _UNREACHABLE, _REFUSED, _QUOTA, _REPLY_INVALID or _OVERLOAD; their messages hold no
   *   keys
   */
  run(calls: readonly StoreCall[]): Promise<unknown[]>
  /** Resolves when the store answers; throws as `run` does. */
  ping(): Promise<void>
}

export type StoreCall = ScriptCall | PlainCall

export interface ScriptCall {
  keys: readonly string[]
  args: readonly string[]
  /** It touches keys that are not in `keys`, whose names only the script can know. */
  hasHiddenKeys?: boolean
}

/** A command of Redis that is no decision: live switches are read with them, and counters written. */
export type PlainCall =
  | { command: 'GET'; key: string }
  | { command: 'HINCRBY'; key: string; field: string; by: number }
  | { command: 'EXPIRE'; key: string; seconds: number }
