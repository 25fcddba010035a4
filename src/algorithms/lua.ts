/** The Lua body of an algorithm, cut into sections: src/node/bundle-lua.ts makes it from <name>.lua. */

export interface AlgorithmLua {
  /** The numbers of a rule that the body works with. */
  readonly numbers: readonly WireNumber[]
  /** Locals that live from one section to the next. */
  readonly keeps: readonly string[]
  /** Functions that the sections call. */
  readonly declare: string
  /** From `idle_at` and `n` of the stored record to what it keeps. */
  readonly read: string
  /** Sets `retry_after` where `cost` is refused. */
  readonly check: string
  /** Takes `cost`. A queue sets `delay`; a rule with a key of its own sets `own_bytes` and, to change a part, `own_offset`. */
  readonly spend: string
  /** Gives back `units`, of `spent` that were admitted at `spent_at`. */
  readonly refund: string
  /** Sets `remaining` and `reset_after`. */
  readonly standing: string
  /** Sets `idle_at` and `n`, after `standing`. */
  readonly write: string
}

/**
 * A number of a rule: `rate`, `period`, `burst` and `step` as in Quota; `limit` is the burst of windows and logs; `ends` are
 * those of calendar windows, which travel with the request; `holding` is what the isolate
 * holds; `own_key` is the place of the log, or of the holders, among the keys.
 */
export type WireNumber = 'rate' | 'limit' | 'period' | 'burst' | 'step' | 'ends' | 'holding' | 'own_key'

/** The sections that a Lua file must have; `declare` may be missing. */
export const SECTIONS = ['read', 'check', 'spend', 'refund', 'standing', 'write'] as const
