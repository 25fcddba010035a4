/** The Lua code of an algorithm, cut into sections. src/node/bundle-lua.ts makes it from <name>.lua. */

export interface AlgorithmLua {
  /** The numbers of a rule that the sections read. */
  readonly numbers: readonly WireNumber[]
  /** Local variables that the sections share. */
  readonly keeps: readonly string[]
  /** Functions that the sections call. */
  readonly declare: string
  /** Sets the shared variables from `idle_at` and `n` of the stored record. */
  readonly read: string
  /** Sets `retry_after` if `cost` is refused. */
  readonly check: string
  /**
   * Subtracts `cost`. A queue sets `delay`. A rule with its side key sets `side_bytes`.
   */
  readonly spend: string
  /** Gives back `units` of a request admitted at `spent_at`. `spent`: its units that are still spent, including `units`. */
  readonly refund: string
  /** Sets `remaining` and `reset_after`, and `debt` of a rule with a settlement. */
  readonly standing: string
  /** Sets `idle_at` and `n`. Runs after `standing`. */
  readonly write: string
}

/**
 * An input of a rule. `rate`, `period`, `burst` and `step` have the same meaning as in Quota. For windows, the log and `concurrency`,
 * `limit` is the burst. `ends`, `holding` and `wait` are texts in the arguments of each call: the ends of calendar windows, the units
 * that the isolate holds, and how long a request waits for its turn in a queue.
 * `side_key` is the index in KEYS of the rule's side key, for its log or its holders; `chunks_key` that of the chunks of the log.
 */
export type WireNumber =
  | 'rate'
  | 'limit'
  | 'period'
  | 'burst'
  | 'step'
  | 'ends'
  | 'holding'
  | 'wait'
  | 'side_key'
  | 'chunks_key'

/** The sections that every Lua file must have. `declare` is optional. */
export const SECTIONS = ['read', 'check', 'spend', 'refund', 'standing', 'write'] as const
