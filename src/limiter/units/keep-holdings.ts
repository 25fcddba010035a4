/**
 * Reports to the store which units this isolate holds. Each decision carries the message about its own identity. Released units are
 * reported with the next HTTP request of any kind, alone after 250 ms, or at once if most of the limit is in use. Units that are held
 * for long are renewed three times within the `ttl`. docs/internals/concurrency.md describes the messages.
 */

import type { Background } from '../../background.ts'
import { chunked } from '../../chunked.ts'
import type { Timer } from '../../clock.ts'
import { GatewayError } from '../../errors.ts'
import type { Log } from '../../log.ts'
import type { Evaluation } from '../../script/evaluation.ts'
import { encodeSync, isSyncReply } from '../../script/sync.ts'
import type { Script } from '../../store/store.ts'
import { keysOf, type Rider } from '../../trips/rider.ts'
import type { Trips } from '../../trips/trips.ts'
import type { Answers } from '../answers/answers.ts'
import type { Keeper, Stake } from '../keeper.ts'
import { renewUntilOver } from '../renew-until-over.ts'
import { Holdings, renewalMs } from './holdings.ts'
import { needsPermit, Permits } from './permits.ts'

/** How long a released unit waits for another HTTP request that reports it (ms). */
const SEND_DELAY_MS = 250

/** Messages in one HTTP request: beside a decision, and without one. The rest waits for the next HTTP request. */
const MAX_BESIDE_DECISION = 100
const MAX_PER_REQUEST = 500

/** How many HTTP requests follow each other, while there is more to renew. */
const MAX_REQUESTS_IN_ROW = 40

/** The shortest time between two checks of one request whether units are due for renewal, as a share of the interval. */
const SHORTEST_CHECK_SHARE = 0.1

const EXHAUSTION =
  'The platform allows a request in flight no more calls (50 with Workers Free), so it has stopped to renew units in flight. Other requests of the isolate renew them. Without any, the units are free after their ttl.'

export type HoldingsKeeper = ReturnType<typeof createHoldingsKeeper>

export interface KeepOptions {
  now(): number
  timer: Timer
  log: Log
  script(): Script
  /** The time to write by (µs). Absent, as always in production: the clock of the store. */
  writeAt?: (() => number) | undefined
  /** Forgets answers that are no longer valid when a request has ended. */
  answers?: Pick<Answers, 'forget'> | undefined
  /** Creates the names of holders. Default: random names. */
  newName?: (() => string) | undefined
}

/** Creates the keeper of an isolate's holdings. */
export function createHoldingsKeeper({ now, timer, log, script, writeAt, answers, newName }: KeepOptions) {
  const holdings = new Holdings(now, newName)
  /** Logged once for each isolate. */
  let hasLoggedExhaustion = false
  /** Whether units were released that the message of the next decision is to report. */
  let isLeftToDecision = false

  /** Tells the store, with each trip, the changes that it has not confirmed. */
  const rider: Rider = {
    isMeasured: true,
    isOffProbes: true,

    load({ calls, isAlone, keysPerCall }) {
      if (!isAlone && holdings.unconfirmedSince() === undefined) return undefined
      const messages = isAlone ? holdings.renewalsDue(MAX_PER_REQUEST) : []
      const most = (isAlone ? MAX_PER_REQUEST : MAX_BESIDE_DECISION) - messages.length
      // The same trip has a message about the keys of its decisions.
      const except = new Set([...calls.flatMap(keysOf), ...messages.map(({ key }) => key)])
      if (most > 0) messages.push(...holdings.unconfirmed(except, most))
      const parts = chunked(messages, keysPerCall)
      return {
        calls: parts.map(part => encodeSync(script(), part, writeAt?.())),
        // Messages without a reply are unconfirmed changes, and are sent again.
        done(replies) {
          for (const [i, part] of parts.entries()) if (isSyncReply(replies[i])) holdings.confirm(part)
        },
      }
    },

    aloneAfterMs() {
      const since = holdings.unconfirmedSince()
      return since === undefined ? undefined : Math.max(0, since + SEND_DELAY_MS - now())
    },
  }

  /**
   * Renews the permits of a request until it is over.
   * @returns a function that releases them, to be called when the request is over; undefined if the request has no units in flight
   */
  function keep(
    { inFlight: permits }: Permits,
    trips: Pick<Trips, 'sendAlone' | 'schedule'>,
    background: Background,
  ): ReturnType<Stake['keep']> {
    if (permits.length === 0) {
      // A refused decision reports nothing.
      if (isLeftToDecision && holdings.unconfirmedSince() !== undefined) background(trips.sendAlone(rider))
      isLeftToDecision = false
      return undefined
    }
    // Whichever request is awake renews what is due, of all requests. So this one checks when its own units are due, and usually
    // finds that another one has renewed them.
    const intervalMs = Math.min(...permits.map(({ held }) => renewalMs(held)))
    const dueInMs = () => Math.min(...permits.map(permit => holdings.msUntilRenewal(permit)), intervalMs)
    /** False: this request may make no more calls. It still shows that its permits are alive, so that other requests renew them. */
    let canSend = true
    async function sendRenewals(): Promise<void> {
      try {
        for (let sent = 0; sent < MAX_REQUESTS_IN_ROW && holdings.isRenewalDue(); sent++)
          if (!(await trips.sendAlone(rider))) return
      } catch (error) {
        if (!(error instanceof GatewayError && error.code === 'ERR_STORE_CALLS_EXHAUSTED')) return
        canSend = false
        if (!hasLoggedExhaustion) log('warn', 'renewals-stopped', { detail: EXHAUSTION })
        hasLoggedExhaustion = true
      } finally {
        if (canSend) trips.schedule(background)
      }
    }
    const endRenewals = renewUntilOver(timer, background, SHORTEST_CHECK_SHARE * intervalMs, dueInMs, () => {
      for (const permit of permits) holdings.renew(permit)
      if (canSend && holdings.isRenewalDue()) return sendRenewals()
      if (canSend) trips.schedule(background)
    })
    return (_settling, isFollowed = false) => {
      const keys = permits.map(({ rule }) => rule.key)
      answers?.forget(keys, 'ended')
      endRenewals()
      const isUrgent = permits.map(permit => holdings.release(permit)).some(Boolean)
      if (isUrgent && !isFollowed) background(trips.sendAlone(rider))
      else trips.schedule(background)
      if (isUrgent && isFollowed) isLeftToDecision = true
    }
  }

  return {
    holdings,
    rider,

    stakeOf: ({ evaluation: { rules } }: { evaluation: Pick<Evaluation, 'rules'> }) =>
      rules.some(needsPermit) ? new Permits(rules, holdings, keep) : undefined,
  } satisfies Keeper & { holdings: Holdings }
}
