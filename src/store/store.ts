import { hashTagOf } from './keys.ts'

/** The store of the limiter: it runs scripts and plain commands, and says whether it takes changes. */
export interface Store {
  /**
   * Whether the store is a Redis Cluster. The keys of one call must then be in one slot, so an evaluation that spans slots is sent as
   * several calls.
   */
  readonly isCluster?: boolean
  /**
   * Runs the calls (scripts and plain commands) in one HTTP request.
   * @param calls at least one
   * @param listener informed while the calls wait for their turn, and when their replies arrive
   * @returns the replies in order, not checked yet. If only some calls failed (for example, one slot of a cluster is down), their
   *   replies are GatewayErrors
   * @throws GatewayError ERR_STORE_TIMEOUT, _UNREACHABLE, _REFUSED, _QUOTA, _REPLY_INVALID, _OVERLOAD or _BREAKER_OPEN. The messages
   *   contain no keys
   */
  run(calls: readonly StoreCall[], listener?: CallListener): Promise<unknown[]>
  /** Resolves when the store answers, and takes changes (on a cluster: when a node answers); throws as `run` does. */
  ping(): Promise<void>
}

/** Whether one call can have all these keys. */
export const fitOneCall = ({ isCluster }: Pick<Store, 'isCluster'>, keys: readonly string[]): boolean =>
  !isCluster || new Set(keys.map(hashTagOf)).size === 1

/** Connects a request to its calls, until it gets their replies. */
export interface CallListener {
  /**
   * Names the caller whose calls wait in one line, in a flood. Called only if they have to wait. Default: the first key of the calls names it.
   */
  line?: (() => string | undefined) | undefined
  /**
   * Returns whether the replies are no longer needed. If so, the calls fail with ERR_STORE_OVERLOAD without being sent. Called only
   * while the calls wait for their turn, the last time right before they are sent. Default: they are needed.
   */
  isNoLongerNeeded?: (() => boolean) | undefined
  /** Called when the replies arrive. If another request has sent the calls, the waiting request finds its replies later, at
   * its next check. */
  noteArrival?: (() => void) | undefined
}

export type StoreCall = ScriptCall | PlainCall

export interface ScriptCall {
  script: Script
  keys: readonly string[]
  args: readonly string[]
  /** Set if the script accesses keys that are not in `keys`, because it reads their names from the store. */
  hasHiddenKeys?: boolean
}

/** A script in its two builds. */
export interface Script {
  /** For Upstash: with `flags=allow-key-locking`, so that calls with different keys run in parallel. */
  keyLocking: ScriptText
  /** For Redis and Valkey, which reject that flag. */
  plain: ScriptText
}

export interface ScriptText {
  source: string
  sha1: string
}

/** A plain Redis command: reads live switches and pointers, or the counters of metrics. */
export interface PlainCall {
  command: 'GET' | 'HGETALL'
  key: string
}
