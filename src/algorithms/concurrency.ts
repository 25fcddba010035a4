/**
 * Concurrency: at most `limit` units in flight. Lua twin: concurrency.lua, section by section. docs/internals/concurrency.md has the proof.
 *
 * With each request, an isolate sends the units that it holds for the identity as two numbers that only grow: started and ended. The
 * store keeps one record for each isolate: the largest numbers that have arrived of the latest epoch. It adds the units that it
 * admits to `started`. The units in flight are the sum of started - ended. A message may be lost, repeated or late, because the next
 * one repeats both numbers.
 *
 * A record expires `period` after the last message. A running isolate renews its record before that, so only the units of a dead
 * isolate expire.
 *
 * Requests without a holding share one record, NO_HOLDER. Its units expire together, `period` after the last of them was
 * admitted, unless they are given back.
 *
 * With more than FEW_HOLDERS records, the store also keeps their sum. The sum is valid until the first record with units in flight
 * expires. Only then are all records read again, and expired ones dropped. So a decision with a thousand isolates takes hardly longer
 * than one with ten.
 *
 * State: idleAt is when the last record expires. n is an instant (µs) before which no record with units in flight expires.
 */
import {
  type Holder,
  type Holding,
  type ModelInput,
  modelOf,
  type Sections,
  type State,
} from './algorithm.ts'

/** The longest `ttl`, and so the longest life of a record without a message: an hour (µs). */
export const MAX_TTL = 3600e6

/** The holder of the units of requests without a holding. */
export const NO_HOLDER = 'noholder'

/** The most units that a record can count: it has three bytes for each of its two numbers. */
export const MAX_UNITS = 2 ** 24 - 1

/** Up to this many records are read one by one for each decision. */
export const FEW_HOLDERS = 8

/** Up to this many records are read to find out when enough units expire for a refused request. */
export const MANY_HOLDERS = 64

interface Kept {
  limit: number
  period: number
  now: number
  /** Records of other holders: those that have not expired, or all stored ones while the sum is valid. */
  others: readonly Holder[]
  own: Holder
  /** The isolate has begun a later epoch since it sent the message, and has counted this request in that epoch. */
  isCounted: boolean
  inFlight: number
  holding: Holding | undefined
  hasManyHolders: boolean
  /** Before this instant, no record with units in flight expires. */
  firstExpiry: number
  /** When the last of the others with units in flight expires. While the sum is valid: as `lastUse`. */
  lastExpiry: number
  /** When the last of the others expires. While the sum is valid: when the last of all records expires. */
  lastUse: number
}

/** Rounded down to whole milliseconds, so that no record lives longer than `period`. */
const expiryAt = (now: number, period: number) => Math.floor((now + period) / 1000) * 1000

const unitsOf = ({ started, ended }: Holding) => started - ended

const sections: Sections<Kept> = {
  read({ quota: { burst, period }, state: [idleAt, n, , holders = []], now, holding }) {
    const isSummed = holders.length > FEW_HOLDERS && n > now && idleAt <= now + 2 * period
    // A record that expires impossibly late was written by a clock that was far ahead.
    const alive = holders.filter(({ expiresAt }) => expiresAt > now && expiresAt <= now + 2 * period)
    const name = holding?.holder ?? NO_HOLDER
    const { limit = burst, ...sent } = holding ?? { holder: name, epoch: 0, started: 0, ended: 0 }
    const message = fitted(sent)
    const stored = alive.find(({ holder }) => holder === name)
    const isCounted = holding !== undefined && stored !== undefined && stored.epoch > message.epoch
    const own = { ...ownOf(message, stored), expiresAt: expiryAt(now, period) }
    if (!holding && stored)
      Object.assign(own, { started: unitsOf(stored), ended: 0, expiresAt: stored.expiresAt })
    const others = (isSummed ? holders : alive).filter(({ holder }) => holder !== name)
    const expiries = others.filter(other => unitsOf(other) > 0).map(({ expiresAt }) => expiresAt)
    return {
      ...{ limit, period, now, others, own, isCounted, holding },
      hasManyHolders: holders.length > MANY_HOLDERS,
      inFlight: others.reduce((sum, other) => sum + unitsOf(other), unitsOf(own)),
      firstExpiry: Math.min(own.expiresAt, ...(isSummed ? [n] : expiries)),
      lastExpiry: isSummed ? idleAt : Math.max(0, ...expiries),
      lastUse: isSummed ? idleAt : Math.max(0, ...others.map(({ expiresAt }) => expiresAt)),
    }
  },

  check({ limit, now, others, own, isCounted, inFlight, hasManyHolders, lastUse }, cost) {
    const added = isCounted ? 0 : cost
    if (cost > limit) return -1
    // What the record cannot count is refused. An isolate begins a new epoch long before.
    const fits = own.started + added <= MAX_UNITS
    if (inFlight + added <= limit && fits) return 0
    // An upper bound: the time until the last record has expired.
    if (hasManyHolders) return Math.max(own.expiresAt, lastUse) - now
    // The time until enough records have expired, if no request ends before and no record is renewed.
    let left = inFlight
    const inOrder = [...others, own].sort((a, b) => a.expiresAt - b.expiresAt)
    const last = inOrder.find(holder => {
      left -= unitsOf(holder)
      return left + added <= limit
    })
    return (last ?? own).expiresAt - now
  },

  spend(kept, cost) {
    const { own, period, now, isCounted } = kept
    kept.own = {
      ...own,
      started: own.started + (isCounted ? 0 : cost),
      expiresAt: expiryAt(now, period),
    }
    kept.inFlight += isCounted ? 0 : cost
    return undefined
  },

  refund(kept, { units }) {
    // The units of an isolate are given back by its next message.
    const back = kept.holding ? 0 : Math.min(units, unitsOf(kept.own))
    kept.own = { ...kept.own, started: kept.own.started - back }
    kept.inFlight -= back
  },

  standing({ limit, now, own, inFlight, lastExpiry }) {
    const latest = Math.max(lastExpiry, unitsOf(own) > 0 ? own.expiresAt : 0)
    return { remaining: Math.max(0, limit - inFlight), resetAfter: inFlight > 0 ? latest - now : 0 }
  },

  write({ others, own, firstExpiry, lastUse }) {
    return [Math.max(own.expiresAt, lastUse), firstExpiry, undefined, [...others, own]]
  },
}

// Annotated as pure, so that a bundler can leave it out of the Worker, which uses localConcurrency (concurrency.descriptor.ts).
export const concurrency = /* @__PURE__ */ modelOf<Kept>(sections)

/** Applies a message without a request: it reports the units that are still held. @returns the state to store */
export function applyMessage(input: ModelInput): State {
  const kept = sections.read(input)
  return sections.write(kept, sections.standing(kept))
}

/** The message with numbers that the record has room for. Units that do not fit count as far as they fit, so the record is full. */
function fitted(message: Holding): Holding {
  const excess = Math.max(0, message.started - MAX_UNITS)
  return { ...message, started: message.started - excess, ended: Math.max(0, message.ended - excess) }
}

/** Merges a message with the stored record: the later epoch wins, and within one epoch the larger numbers. */
function ownOf(message: Holding, stored: Holding | undefined): Holding {
  if (!stored || stored.epoch < message.epoch) return message
  if (stored.epoch > message.epoch) return stored
  return {
    ...message,
    started: Math.max(message.started, stored.started),
    ended: Math.max(message.ended, stored.ended),
  }
}
