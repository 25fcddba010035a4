/**
 * Concurrency: at most `limit` units in flight. Lua twin: concurrency.lua, section by section. docs/concurrency.md has the proof.
 *
 * With each request an isolate sends what it holds of the identity: two numbers that grow, started and ended. The store keeps one
 * record for each isolate, with the largest numbers of its latest epoch that have arrived, and adds to `started` what it admits.
 * In flight is the sum of started - ended. So a message may be lost, repeated, or arrive late: the next one has it all again.
 *
 * A record expires `period` after the last message. An isolate that lives renews it before, so what a dead one held is free then.
 *
 * A request without a holding has no holder: such units expire together, `period` after the last of
 * them was admitted, unless they are given back.
 *
 * Of many records their sum is kept. It counts until the first of those that hold something expires; only then are all of them
 * read again, and those that have expired are dropped. So a decision takes hardly longer with a thousand isolates than with ten.
 *
 * State: idleAt is when the last record expires, n is an instant before which none expires that holds something (µs).
 */
import { type Holder, type Holding, modelOf, type Reading, type Sections, type State } from './algorithm.ts'

/** No record lives longer without a message (µs): a `ttl` is at most an hour. */
export const MAX_TTL = 3600e6

/** The holder of units of requests that come without one. */
export const NO_HOLDER = 'noholder'

/** So many records are read one by one, each time. */
export const FEW = 8

interface Kept {
  limit: number
  period: number
  now: number
  /** Records of others: those that have not expired, or, where the sum counts, all that are stored. */
  others: readonly Holder[]
  own: Holder
  /** The isolate has begun a later epoch meanwhile, and has counted this request in it. */
  isCounted: boolean
  inFlight: number
  given: Holding | undefined
  areMany: boolean
  firstExpiry: number
  /** Of the others: of those that hold something, and of all. Where the sum counts both are when the last record expires. */
  lastExpiry: number
  lastUse: number
}

/** In whole milliseconds, and never later than the period allows. */
const expiryAt = (now: number, period: number) => Math.floor((now + period) / 1000) * 1000

const unitsOf = ({ started, ended }: Holding) => started - ended

const sections: Sections<Kept> = {
  read({ quota: { burst, period }, state: [idleAt, n, , holders = []], now, holding }) {
    const areMany = holders.length > FEW
    const isSummed = areMany && n > now && idleAt <= now + 2 * period
    // One that expires much later than a record can is of a clock that was far ahead.
    const alive = holders.filter(({ expiresAt }) => expiresAt > now && expiresAt <= now + 2 * period)
    const name = holding?.holder ?? NO_HOLDER
    const { limit = burst, ...message } = holding ?? { holder: name, epoch: 0, started: 0, ended: 0 }
    const stored = alive.find(({ holder }) => holder === name)
    const isCounted = holding !== undefined && stored !== undefined && stored.epoch > message.epoch
    const own = { ...ownOf(message, stored), expiresAt: expiryAt(now, period) }
    if (!holding && stored)
      Object.assign(own, { started: unitsOf(stored), ended: 0, expiresAt: stored.expiresAt })
    const others = (isSummed ? holders : alive).filter(({ holder }) => holder !== name)
    const using = others.filter(other => unitsOf(other) > 0).map(({ expiresAt }) => expiresAt)
    return {
      ...{ limit, period, now, others, own, isCounted, given: holding, areMany },
      inFlight: others.reduce((sum, other) => sum + unitsOf(other), unitsOf(own)),
      firstExpiry: Math.min(own.expiresAt, ...(isSummed ? [n] : using)),
      lastExpiry: isSummed ? idleAt : Math.max(0, ...using),
      lastUse: isSummed ? idleAt : Math.max(0, ...others.map(({ expiresAt }) => expiresAt)),
    }
  },

  check({ limit, now, others, own, isCounted, inFlight, areMany, lastUse }, cost) {
    const added = isCounted ? 0 : cost
    if (cost > limit) return -1
    if (inFlight + added <= limit) return 0
    // An upper bound: when the last record has expired.
    if (areMany) return Math.max(own.expiresAt, lastUse) - now
    // An upper bound: when so many records have expired that there is room, if no request ends before and none is renewed.
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
    // What an isolate holds is given back by its next message.
    const back = kept.given ? 0 : Math.min(units, unitsOf(kept.own))
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

// Annotated as pure, so that a bundler can leave it out of the Worker, which counts what it holds itself.
export const concurrency = /* @__PURE__ */ modelOf<Kept>(sections)

/** Units that an isolate asks for in advance. */
export interface Want {
  units: number
  limit: number
  /** With fewer holders none is granted. */
  leastHolders: number
}

/** The answer to a message without a request. */
export interface Received {
  /** In advance. */
  granted: number
  /** Isolates with a record. */
  holders: number
  inFlight: number
}

/** After a message without a request: units that are free again, are still held, or are wanted in advance. */
export function afterMessage(reading: Reading, want?: Want): Received & { state: State } {
  const kept = sections.read(reading)
  const holders = kept.others.length + 1
  let granted = 0
  // A message of an earlier epoch may have been repeated, and its units are no longer known to the isolate.
  if (want && !kept.isCounted && holders >= want.leastHolders) {
    // Half of what is free, over all isolates: the rest is for requests that ask one by one.
    const most = Math.floor((want.limit - kept.inFlight) / (2 * holders))
    granted = Math.max(0, Math.min(want.units, most))
    kept.own = { ...kept.own, started: kept.own.started + granted }
    kept.inFlight += granted
  }
  const state = sections.write(kept, sections.standing(kept))
  return { state, granted, holders, inFlight: kept.inFlight }
}

/** The later epoch counts, and within one epoch the larger numbers. */
function ownOf(message: Holding, stored: Holding | undefined): Holding {
  if (!stored || stored.epoch < message.epoch) return message
  if (stored.epoch > message.epoch) return stored
  return {
    ...message,
    started: Math.max(message.started, stored.started),
    ended: Math.max(message.ended, stored.ended),
  }
}
