/** What the limiter needs from a store: it runs scripts, and answers a ping. */
export interface Store {
  /**
   * The keys of one call must lie in one slot (a Redis Cluster): an evaluation that spans slots is sent as several
   * calls. Without it any keys may go together.
   */
  readonly isCluster?: boolean
  /**
   * Runs one script for each call, and plain commands beside it, all in one HTTP request. At least one call.
   * @returns the replies in order, not yet checked; where some calls failed and others did not (one slot of a cluster is
   *   gone), a GatewayError in the place of the reply
   * @throws GatewayError ERR_STORE_TIMEOUT, _UNREACHABLE, _REFUSED, _QUOTA, _REPLY_INVALID or _OVERLOAD; their messages hold no
   *   keys
   * @param isMoot asked while the calls wait for their turn: whether their replies are no longer needed. Then they fail with
   *   ERR_STORE_OVERLOAD, and are not made
   */
  run(calls: readonly StoreCall[], isMoot?: () => boolean): Promise<unknown[]>
  /** Resolves when the store answers; throws as `run` does. */
  ping(): Promise<void>
}

export type StoreCall = ScriptCall | PlainCall

export interface ScriptCall {
  script: Script
  keys: readonly string[]
  args: readonly string[]
  /** The script touches keys that are not in `keys`: only the script knows their names. */
  hasHiddenKeys?: boolean
}

/** One script in two builds. */
export interface Script {
  /** For Upstash: with `flags=allow-key-locking`, so that calls with different keys run side by side. */
  keyLocking: ScriptText
  /** For Redis and Valkey, which refuse that flag. */
  plain: ScriptText
}

export interface ScriptText {
  source: string
  sha1: string
}

/** A plain command of Redis: live switches and pointers are read, counters are written. */
export type PlainCall =
  | { command: 'GET'; key: string }
  | { command: 'HINCRBY'; key: string; field: string; by: number }
  | { command: 'EXPIRE'; key: string; seconds: number }
