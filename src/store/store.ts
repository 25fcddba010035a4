/** What the limiter needs of a store: run the script, and say whether it is there. */
export interface Store {
  /**
   * The keys of one call must lie in one slot (a Redis Cluster): an evaluation that spans slots is sent as several
   * calls. Without it any keys may go together.
   */
  readonly isCluster?: boolean
  /**
   * Runs the decision script once for each call, all in one HTTP request.
   * @returns the script's replies in order, not yet checked; where some calls failed and others did not (one slot of a
   *   cluster is gone), a GatewayError in the place of the reply
   * @throws GatewayError ERR_STORE_TIMEOUT, _UNREACHABLE, _REFUSED or _REPLY_INVALID; their messages hold no keys
   */
  run(calls: readonly ScriptCall[]): Promise<unknown[]>
  /** Resolves when the store answers; throws as `run` does. */
  ping(): Promise<void>
}

export interface ScriptCall {
  keys: readonly string[]
  args: readonly string[]
  /** It touches keys that are not in `keys`, whose names only the script can know. */
  hasHiddenKeys?: boolean
}
