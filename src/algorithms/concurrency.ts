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
 * State: idleAt is when the last record expires. n is 0.
 */
import { type Holder, type Holding, modelOf, type Reading, type Sections, type State } from './algorithm.ts'

/** No record lives longer without a message (µs): a `ttl` is at most an hour. */
export const MAX_TTL = 3600e6

/** The holder of units of requests that come without one. */
export const NO_HOLDER = 'noholder'

interface Kept {
  limit: number
  period: number
  now: number
  /** Records of others that have not expired. */
  others: readonly Holder[]
  own: Holder
  /** The isolate has begun a later epoch meanwhile, and has counted this request in it. */
  isCounted: boolean
  inFlight: number
  given: Holding | undefined
}

/** In whole milliseconds, and never later than the period allows. */
const expiryAt = (now: number, period: number) => Math.floor((now + period) / 1000) * 1000

const unitsOf = ({ started, ended }: Holding) => started - ended

const sections: Sections<Kept> = {
  read({ quota: { burst: limit, period }, state: [, , , holders = []], now, holding }) {
    // One that expires much later than a record can is of a clock that was far ahead.
    const alive = holders.filter(({ expiresAt }) => expiresAt > now && expiresAt <= now + 2 * period)
    const name = holding?.holder ?? NO_HOLDER
    const message = holding ?? { holder: name, epoch: 0, started: 0, ended: 0 }
    const stored = alive.find(({ holder }) => holder === name)
    const isCounted = holding !== undefined && stored !== undefined && stored.epoch > message.epoch
    const own = { ...ownOf(message, stored), expiresAt: expiryAt(now, period) }
    if (!holding && stored)
      Object.assign(own, { started: unitsOf(stored), ended: 0, expiresAt: stored.expiresAt })
    const others = alive.filter(other => other !== stored)
    const inFlight = others.reduce((sum, other) => sum + unitsOf(other), unitsOf(own))
    return { limit, period, now, others, own, isCounted, inFlight, given: holding }
  },

  check({ limit, now, others, own, isCounted, inFlight }, cost) {
    const added = isCounted ? 0 : cost
    if (cost > limit) return -1
    if (inFlight + added <= limit) return 0
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

  standing({ limit, now, others, own, inFlight }) {
    const latest = Math.max(
      ...[...others, own].filter(holder => unitsOf(holder) > 0).map(({ expiresAt }) => expiresAt),
    )
    return { remaining: Math.max(0, limit - inFlight), resetAfter: inFlight > 0 ? latest - now : 0 }
  },

  write({ others, own }) {
    const holders = [...others, own]
    return [Math.max(...holders.map(({ expiresAt }) => expiresAt)), 0, undefined, holders]
  },
}

// Annotated as pure, so that a bundler can leave it out of the Worker, which counts what it holds itself.
export const concurrency = /* @__PURE__ */ modelOf<Kept>(sections)

/** The state after a message without a request: units that are free again, or are still held. */
export function afterMessage(reading: Reading): State {
  const kept = sections.read(reading)
  return sections.write(kept, sections.standing(kept))
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
