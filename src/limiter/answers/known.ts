/**
 * What an isolate knows from answers of the store. Requests that are decided alike, except for their costs, share one entry. It has the
 * refusal that the isolate repeats (refusals.ts) and the units that it has leased (leases.ts). Both are valid under the same conditions:
 *
 *     same key               the caller, and the identity, mode and role of each rule
 *     same switches          as in force for the request that has brought the answer
 *     nothing has changed    since its trip began: no reset, refund or ending of a request under its keys. Nor was the clock of the machine
 *                            set back, or the answer would last longer than the store has said
 *     no contradiction       by a later answer about the credential
 *
 * Only answers of the store are kept, never decisions of the isolate. Plain data, bounded in number and time.
 */
import { latestOf } from '../../clock.ts'
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import { Lru } from '../../lru.ts'
import type { BoundRule, Evaluation, Outcome } from '../../script/evaluation.ts'
import type { Switches } from '../../switches/switches.ts'
import type { Asked, Wait } from './asked.ts'
import type { LeaseGrant } from './lease-units.ts'
import type { Renewal, RequestRate } from './renewal.ts'

/** A request that looks for an answer. */
export interface KnownRequest {
  readonly demand: Omit<Evaluation, 'now'>
  /** Under which it was bound. */
  readonly switches: Switches
  /** Returns the last answers of the store about the credential. */
  readonly recall?: (() => RememberedCaller | undefined) | undefined
  /** Whether its costs are final, so it reserves nothing. */
  readonly isFinal?: boolean | undefined
  /** Set once it waits. */
  wait?: Wait
  /** Set once it makes a trip. */
  trip?: AskingTrip | undefined
}

/** The trip of a request (ms). */
export interface AskingTrip {
  /** `KnownAnswers.changes` when it began. */
  readonly asOf: number
  readonly begunAt: number
  /** It was not sent before this time: it may have waited for its turn at the store. */
  notSentBefore: number
  /** When the reply arrived. Its request may notice it later. */
  answeredAt?: number
}

/** An answer of the store that may decide later requests. */
interface StoreAnswer {
  readonly outcome: Outcome
  readonly switches: Switches
  /** As of its trip. */
  readonly asOf: number
  /** ms */
  readonly answeredAt: number
}

export interface Refusal extends StoreAnswer {
  /** The cost of each rule, in their order. A request that costs less may be admitted. */
  readonly costs: readonly number[]
  /** The state keys of the rules that have refused. */
  readonly keys: readonly string[]
  /** How long its trip took (ms). */
  readonly tripMs: number
  /** ms */
  readonly rememberedUntil: number
  /** Until when the store would refuse (ms). */
  readonly validUntil: number
  /** After `rememberedUntil`: the last request that has asked the store again. */
  asked?: Asked & { by: KnownRequest['demand'] }
}

/** The answer that has prolonged a lease last. */
export interface LeaseAnswer extends StoreAnswer {
  /** When the lease ends (ms). It may be over when the answer arrives. */
  readonly endsAt: number
  /** Until when the units are kept for the requests that have waited for this answer (ms). */
  readonly keptUntil: number
  /** The renewal that this answers. */
  readonly renewal: Renewal | undefined
}

export interface Lease {
  /** ms */
  readonly leaseMs: number
  readonly rate: RequestRate
  /** The oldest grant first. All of them are valid as long as the last answer. */
  grants: LeaseGrant[]
  lastAnswer: LeaseAnswer | undefined
  lastUsedAt: number
  /** Whether a budget that refills steadily (`gcra`, `token-bucket`) has less than 90 % of its burst left. */
  isScarce: boolean
  renewal: Renewal | undefined
  /** The part of its wanted requests that the last renewal has got. */
  grantedShare: number
  /** Until when no lease is asked for, because the store has refused (ms). */
  refusedUntil: number
}

interface Entry {
  refusal?: Refusal | undefined
  lease?: Lease
}

/** About 1 kB each. The LRU keeps up to twice as many. */
const MAX_ENTRIES = 4000

export type KnownAnswers = ReturnType<typeof createKnownAnswers>

/**
 * @param clock ms since an arbitrary instant; should never decrease
 * @param currentSwitches returns the switches that are in force now
 */
export function createKnownAnswers(clock: () => number, currentSwitches: () => Switches) {
  /** The number of the last change under each state key. */
  const changedKeys = new Lru<number>({ size: MAX_ENTRIES })
  const entries = new Lru<Entry>({
    size: MAX_ENTRIES,
    onEviction: (_, { lease }) => lease && known.onDroppedLease(lease),
  })
  const known = {
    /** ms since an arbitrary instant. Decreases only if the clock was set back. */
    now: latestOf(clock, () => {
      known.setBackAt = ++known.changes
      known.onSetBack()
    }),
    currentSwitches,
    /** Called when the clock was set back. */
    onSetBack() {},
    /** Called with the lease of an entry that was evicted: its unused units are given back. */
    onDroppedLease(_: Lease) {},
    /** The number of changes so far, and of the last one that set the clock back. */
    changes: 0,
    setBackAt: 0,

    /** The entry, which then counts as used; undefined if nothing is known. */
    find: (key: string): Entry | undefined => entries.get(key),

    add(key: string): Entry {
      const entry = {}
      entries.set(key, entry)
      return entry
    },

    /** Invalidates the answers under these state keys, also those of trips that have begun and not ended. */
    noteChange(keys: readonly string[]): void {
      known.changes += 1
      for (const key of keys) changedKeys.set(key, known.changes)
    },

    /** Whether an answer is still valid. @param keys under which it matters whether anything has changed */
    isValid: (
      { asOf, switches, outcome }: StoreAnswer,
      recall: KnownRequest['recall'],
      keys?: readonly string[],
    ): boolean =>
      asOf >= known.setBackAt &&
      switches === currentSwitches() &&
      !keys?.some(key => (changedKeys.peek(key) ?? 0) > asOf) &&
      (!recall || isConsistent(outcome, recall())),
  }
  return known
}

/**
 * The key of an entry. It is unambiguous, because keys contain no line break, and names of rules no space.
 * @param caller absent: the answer is valid for all callers
 */
export function answerKeyOf(
  rules: readonly BoundRule[],
  caller?: Pick<Evaluation, 'subject' | 'plan'>,
): string {
  let answerKey = caller ? callerKeyOf(caller) : 'anyone'
  // What was answered under other numbers of a call says nothing.
  for (const { rule, key, mode, role } of rules)
    answerKey += `\n${rule.name} ${mode} ${role} ${rule.ofCall?.written ?? ''} ${key}`
  return answerKey
}

function callerKeyOf({ subject, plan = '' }: Pick<Evaluation, 'subject' | 'plan'>): string {
  switch (subject?.kind) {
    case 'key':
      return subject.credentialKey
    case 'pointer':
      return subject.pointerKey
    case 'token':
      return `token ${subject.plan ?? ''} ${subject.consumerKey}`
    case 'failed':
    case undefined:
      return `plan ${plan}`
  }
}

/** Whether an outcome is consistent with the last answers of the store about the credential. */
export function isConsistent(
  { status, plan }: Pick<Outcome, 'status' | 'plan'>,
  seen: RememberedCaller | undefined,
): boolean {
  if (!seen) return true
  if (status === 'blocked') return seen.isBlocked === true
  if (status === 'unknown-credential') return seen.plan === undefined
  return !seen.isBlocked && !seen.isUnknown && (!plan || seen.plan === undefined || seen.plan === plan)
}
