/**
 * Units in flight that a receipt holds, and no process: each decision is a holder of its own in the store (docs/internals/concurrency.md), so
 * any isolate can renew or release what it holds. An epoch says what a message is about:
 *
 *     renewal  0   earlier than that of the decision: the store keeps what its record says, and extends it. Without a record, nothing is held
 *     decision 1   the store adds the cost to it
 *     release  2   later, without units: it replaces the record, and a decision that arrives after it adds nothing
 */
import type { Holding } from '../../algorithms/algorithm.ts'
import type { Background } from '../../background.ts'
import { countsInFlight, type Rule } from '../../config/compile-rule.ts'
import type { Allowed, Denied, Unavailable } from '../../limiter/decision.ts'
import type { Degraded } from '../../limiter/evaluate.ts'
import type { PreparedCall } from '../../limiter/prepared-call.ts'
import { newReservationId } from '../../limiter/reservations/reservation.ts'
import type { Outcome } from '../../script/evaluation.ts'
import { encodeSync, isSyncReply } from '../../script/sync.ts'
import { invalidReply } from '../../script/wire.ts'
import { sideKey } from '../../store/keys.ts'
import type { Script } from '../../store/store.ts'
import type { BindEarlier, LimitIdentity } from './arguments.ts'
import type { Limiter } from './limiter-shape.ts'

/** What a receipt holds. */
export interface Hold extends Pick<Held, 'held'> {
  limit: string
  identity: LimitIdentity
  /** That of the decision. */
  id: string
}

/** What a decision of `holding` has in addition, if it holds anything. */
export interface Held {
  /** Units, by rule name. */
  held: Readonly<Record<string, number>>
  /** How long they are held without a renewal: the shortest `ttl` of their rules. */
  renewWithinMs: number
}

/** What a message about a hold has done. */
export interface HoldResult {
  /** 0: its units are not counted any more. */
  renewWithinMs: number
  /** Why the store has not confirmed it. */
  degraded?: Degraded['cause']
}

/** One attempt to decide a call whose id will hold its units. */
export interface HoldAttempt {
  readonly id: string
  /** The message of a rule. */
  holdingOf(rule: Rule, cost: number): Holding | undefined
  /** Releases what the store may have counted for an attempt that holds nothing. */
  end(outcome: Outcome | undefined, decision: Allowed | Denied | Unavailable): Held | undefined
  /** Releases what it holds, because its caller has left. */
  cancel(): void
}

export type BeginHold = (limit: string, identity: LimitIdentity) => HoldAttempt

/** What the methods need from a limiter. */
export interface LimiterInternals {
  background: Background
  decideAt: (() => number) | undefined
  bindEarlier: BindEarlier
  change(call: PreparedCall<Told>): Promise<Told | Degraded>
  /** Notes that units were released. @param keys of the identity, of all rules of the limit */
  freed(keys: readonly string[]): void
  deciding(begin: BeginHold): Pick<Limiter, 'limit' | 'acquire'>
}

interface Told {
  at: number
  /** That are counted now. */
  units: number
}

/** The methods of the HTTP API. */
export interface Holder {
  /** As those of the limiter. The `id` of the decision holds its units in flight until its release, and without a renewal for their `ttl`. */
  holding: Pick<Limiter, 'limit' | 'acquire'>
  renew(hold: Hold): Promise<HoldResult>
  /** Harmless if it is repeated. */
  release(hold: Hold): Promise<HoldResult>
}

/** @param script of messages (sync.ts) */
export const createHolder =
  (script: () => Script) =>
  ({ background, bindEarlier, change, decideAt, deciding, freed }: LimiterInternals): Holder => {
    async function tell(epoch: number, { limit, identity, id, held }: Hold): Promise<HoldResult> {
      const keyed = bindEarlier(limit, identity, {}).filter(
        ({ rule }) => countsInFlight(rule) && Object.hasOwn(held, rule.name),
      )
      const told = await Promise.all(
        // One call each: on a cluster, they can be in several slots.
        keyed.map(({ rule: { tag, quota }, key }) => {
          const message = { key: sideKey(key, 'held', tag), ttl: quota.period, holding: holdingOf(id, epoch) }
          return change({ call: encodeSync(script(), [message], decideAt?.()), decode })
        }),
      )
      const failed = told.find(each => 'cause' in each)
      if (failed) return { renewWithinMs: 0, degraded: failed.cause }
      const isHeld = keyed.length > 0 && told.every(each => 'units' in each && each.units > 0)
      return { renewWithinMs: isHeld ? ttlOf(keyed) : 0 }
    }
    async function release(hold: Hold): Promise<HoldResult> {
      const told = await tell(2, hold)
      freed(bindEarlier(hold.limit, hold.identity, {}).map(({ key }) => key))
      return told
    }

    return {
      holding: deciding((limit, identity) => {
        // Another one for each attempt: the store may have counted one that it has not answered.
        const id = newReservationId()
        const costs: Record<string, number> = {}
        const cancel = () => background(release({ limit, identity, id, held: costs }))
        return {
          ...{ id, cancel },
          holdingOf(rule, cost) {
            if (!countsInFlight(rule) || cost === 0) return undefined
            costs[rule.name] = cost
            return holdingOf(id, 1)
          },
          end(outcome, decision) {
            const isAdmitted = outcome?.status === 'admitted'
            if (isAdmitted && decision.kind === 'allowed') {
              const counted = outcome.verdicts.filter(({ rule, allowed }) => allowed && costs[rule.name])
              const held = Object.fromEntries(counted.map(({ rule: { name } }) => [name, costs[name]!]))
              return counted.length > 0 ? { held, renewWithinMs: ttlOf(counted) } : undefined
            }
            if (outcome ? isAdmitted || outcome.isBySlot : decision.degraded) cancel()
          },
        }
      }),
      renew: hold => tell(0, hold),
      release,
    }
  }

const holdingOf = (id: string, epoch: number): Holding => ({
  ...{ holder: id.slice(0, 8), epoch, started: 0, ended: 0 },
})

/** ms */
const ttlOf = (rules: readonly { rule: Rule }[]) =>
  Math.floor(Math.min(...rules.map(({ rule }) => rule.quota.period)) / 1e3)

function decode(reply: unknown): Told {
  if (!isSyncReply(reply)) throw invalidReply('no units')
  const [at, units] = reply
  return { at, units }
}
