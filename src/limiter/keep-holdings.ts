/**
 * Reports to the store which units this isolate holds. Each decision carries the message about its own identity. Released units are
 * reported with the next HTTP request of any kind, alone after 250 ms, or at once if most of the limit is in use. Units that are held
 * for long are renewed three times within the `ttl`. docs/concurrency.md describes the messages.
 */

import type { Background } from '../background.ts'
import { chunked } from '../chunked.ts'
import type { Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { BoundRule } from '../script/evaluation.ts'
import { checkSyncReply, encodeSync, type Message } from '../script/sync.ts'
import type { Script, Store, StoreCall } from '../store/store.ts'
import { Claims, type LimitOf } from './claims.ts'
import { Holdings, renewalMs } from './holdings.ts'

/** How long a released unit waits for another HTTP request that reports it (ms). */
const SEND_DELAY_MS = 250

/** How long one request waits at most to send messages (ms): the platform may end it without notice. */
const MAX_WAIT_MS = 5000

/** Messages in one call. */
const MAX_PER_CALL = 50

/** Messages in one HTTP request: beside a decision, and without one. The rest waits for the next HTTP request. */
const MAX_BESIDE_DECISION = 100
const MAX_PER_REQUEST = 500

/** How many such HTTP requests follow each other, while there are more messages. */
const MAX_REQUESTS_IN_ROW = 40

/** The shortest time between two checks of one request whether units are due for renewal, as a share of the interval. */
const SHORTEST_CHECK_SHARE = 0.1

export interface HoldingsKeeper {
  readonly holdings: Holdings
  /** Claims the units of a request, before it is decided. */
  claim(rules: readonly BoundRule[], limitOf?: LimitOf): Claims
  /** Wraps the store: each request to it also carries the changes that the store has not confirmed. */
  withMessages(store: Store): Store
  /**
   * Renews the claims of a request until it is over.
   * @returns a function that releases them, to be called when the request is over; undefined if the request has no units in flight
   */
  keep(claims: Claims, store: Store, background: Background): (() => void) | undefined
  /** Sends the unconfirmed changes soon, unless another request carries them. */
  sendSoon(store: Store, background: Background): void
}

export interface KeepOptions {
  now(): number
  timer: Timer
  script(): Script
  /** The time to write by (µs). Absent, as always in production: the clock of the store. */
  writeAt?: (() => number) | undefined
  /** Creates the names of holders. Default: random names. */
  newName?: (() => string) | undefined
}

/** Creates the keeper of an isolate's holdings. */
export function createHoldingsKeeper({ now, timer, script, writeAt, newName }: KeepOptions): HoldingsKeeper {
  const holdings = new Holdings(now, newName)
  /** Until when a request waits to send unconfirmed changes (ms). It is extended repeatedly, because the platform may end that request. */
  let sendAwaitedUntil = Number.NEGATIVE_INFINITY
  /** Logged once for each isolate. */
  let hasLoggedExhaustion = false

  const callsFor = ({ isCluster }: Store, messages: readonly Message[]) =>
    (isCluster ? messages.map(message => [message]) : chunked(messages, MAX_PER_CALL)).map(part => ({
      part,
      call: encodeSync(script(), part, writeAt?.()),
    }))

  function readReply(part: readonly Message[], reply: unknown): void {
    if (reply instanceof GatewayError) return
    checkSyncReply(reply)
    holdings.confirm(part)
  }

  /** Sends all messages, in HTTP requests of bounded size, one after the other. If a request fails, the remaining messages are sent later. */
  async function sendAll(
    store: Store,
    next: (most: number) => readonly Message[],
    first = next(MAX_PER_REQUEST),
  ): Promise<void> {
    let sent = 0
    for (let messages = first; messages.length > 0; messages = next(MAX_PER_REQUEST)) {
      const calls = callsFor(store, messages)
      const replies = await store.run(calls.map(({ call }) => call))
      for (const [i, { part }] of calls.entries()) readReply(part, replies[i])
      sent += 1
      if (messages.length < MAX_PER_REQUEST || sent === MAX_REQUESTS_IN_ROW) return
    }
  }

  const sendUnconfirmed = (store: Store) => sendAll(store, most => holdings.unconfirmed(undefined, most))

  function sendSoon(store: Store, background: Background): void {
    if (holdings.unconfirmedSince() === undefined) return
    const wait = sendAwaitedUntil - now()
    if (wait > 0 && wait <= SEND_DELAY_MS) return
    background(sendWhenDue(store))
  }

  /** Sends the unconfirmed changes when the oldest of them has waited for SEND_DELAY_MS. */
  async function sendWhenDue(store: Store): Promise<void> {
    const startedAt = now()
    const dueAt = () =>
      Math.min((holdings.unconfirmedSince() ?? startedAt) + SEND_DELAY_MS, startedAt + MAX_WAIT_MS)
    for (let wait = SEND_DELAY_MS; wait > 0; wait = dueAt() - now()) {
      const ms = Math.min(wait, SEND_DELAY_MS)
      sendAwaitedUntil = now() + ms
      await new Promise<void>(resolve => timer(ms, resolve))
    }
    sendAwaitedUntil = Number.NEGATIVE_INFINITY
    await sendUnconfirmed(store)
  }

  function logExhaustion(): void {
    if (hasLoggedExhaustion) return
    hasLoggedExhaustion = true
    const detail =
      'The platform allows a request in flight no more calls (50 with Workers Free), so it has stopped to renew units in flight. Other requests of the isolate renew them. Without any, the units are free after their ttl.'
    console.warn(JSON.stringify({ level: 'warn', event: 'renewals-stopped', detail }))
  }

  return {
    holdings,
    sendSoon,

    withMessages: store => ({
      ...(store.isCluster !== undefined && { isCluster: store.isCluster }),
      ping: () => store.ping(),
      async run(calls) {
        const messages = holdings.unconfirmed(new Set(calls.flatMap(keysOf)), MAX_BESIDE_DECISION)
        if (messages.length === 0) return await store.run(calls)
        const beside = callsFor(store, messages)
        const replies = await store.run([...calls, ...beside.map(({ call }) => call)])
        // An invalid reply to one message must not discard the other replies.
        for (const [i, { part }] of beside.entries())
          ignoringErrors(() => readReply(part, replies[calls.length + i]))
        return replies.slice(0, calls.length)
      },
    }),

    claim: (rules, limitOf) => new Claims(rules, holdings, limitOf),

    keep({ inFlight: claims }, store, background) {
      if (claims.length === 0) return undefined
      /**
       * Whichever request is awake renews what is due, of all requests. So this one checks when its own units are due, and usually finds
       * that another one has renewed them.
       */
      const intervalMs = Math.min(...claims.map(({ rule }) => renewalMs({ ttl: rule.rule.quota.period })))
      function checkInMs(): number {
        const wait = Math.min(...claims.map(claim => holdings.msUntilRenewal(claim)))
        return Math.min(Math.max(wait, SHORTEST_CHECK_SHARE * intervalMs), intervalMs)
      }
      /** False: this request may make no more calls. It still shows that its claims are alive, so that other requests renew them. */
      let canSend = true
      let isOver = false
      let cancelCheck = () => {}
      let end = () => {}
      function checkLater(): void {
        if (!isOver) cancelCheck = timer(checkInMs(), check, true)
      }
      /** Most checks find nothing to send. With many streams they are most of the work, so they create no promises. */
      function check(): void {
        for (const claim of claims) holdings.renew(claim)
        const messages = canSend ? holdings.renewalsDue(MAX_PER_REQUEST) : []
        if (messages.length === 0) sendTheRest()
        else {
          const sent = sendAll(store, most => holdings.renewalsDue(most), messages).catch(error => {
            // The messages are unconfirmed changes, and are sent again.
            if (!isExhausted(error)) return
            canSend = false
            logExhaustion()
          })
          background(sent.then(sendTheRest))
        }
      }
      function sendTheRest(): void {
        if (canSend) sendSoon(store, background)
        checkLater()
      }
      checkLater()
      // Keeps the timers of this request alive.
      background(
        new Promise<void>(resolve => {
          end = resolve
        }),
      )
      return () => {
        isOver = true
        cancelCheck()
        end()
        const isUrgent = claims.map(claim => holdings.release(claim)).some(Boolean)
        if (isUrgent) background(sendUnconfirmed(store))
        else sendSoon(store, background)
      }
    },
  }
}

const isExhausted = (error: unknown) =>
  error instanceof GatewayError && error.code === 'ERR_STORE_CALLS_EXHAUSTED'

const keysOf = (call: StoreCall) => ('keys' in call ? call.keys : [call.key])

function ignoringErrors(work: () => void): void {
  try {
    work()
  } catch {
    // Changes that are not confirmed are sent again.
  }
}
