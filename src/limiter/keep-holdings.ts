/**
 * When the store receives what this isolate holds: with each decision about the identity. Units that are free again go with the next
 * HTTP request about anything, after a quarter of a second without one, or at once where the limit is nearly used up. What is held
 * for long is sent again three times within the ttl.
 */
import type { Background } from '../background.ts'
import type { Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { BoundRule } from '../script/evaluation.ts'
import { decodeSync, encodeSync, type Message } from '../script/sync.ts'
import type { Script, Store, StoreCall } from '../store/store.ts'
import { Claims } from './claims.ts'
import { Holdings, renewalMs } from './holdings.ts'

/** How long the store may take units for used that are free again (ms). */
const UNCONFIRMED_MS = 250

/** No request waits longer to send what others have not (ms): the platform may end it without notice. */
const LONGEST_WAIT_MS = 5000

/** Messages in one call. */
const MOST_MESSAGES = 50

export interface KeptHoldings {
  readonly holdings: Holdings
  /** Claims what a request costs, before it is decided. */
  claim(rules: readonly BoundRule[]): Claims
  /** The store; each request to it also carries what it has not confirmed. */
  withMessages(store: Store): Store
  /**
   * Renews what a request has in flight.
   * @returns to be called when the request is over; undefined where nothing of it is in flight
   */
  keep(claims: Claims, store: Store, background: Background): (() => void) | undefined
  /** Sends soon what the store has not confirmed, if no other request does. */
  sendSoon(store: Store, background: Background): void
}

export interface KeepOptions {
  now(): number
  timer: Timer
  script(): Script
  /** µs to write by; absent: the clock of the store, as always in production. */
  writeAt?: (() => number) | undefined
  newName?: (() => string) | undefined
}

/** One for an isolate. */
export function createHoldings({ now, timer, script, writeAt, newName }: KeepOptions): KeptHoldings {
  const holdings = new Holdings(now, newName)
  /** Until when some request waits to send what is not confirmed (ms). The platform may end it before. */
  let waitsUntil = Number.NEGATIVE_INFINITY

  const callsFor = ({ isCluster }: Store, messages: readonly Message[]) =>
    (isCluster ? messages.map(message => [message]) : chunked(messages, MOST_MESSAGES)).map(part => ({
      part,
      call: encodeSync(script(), part, writeAt?.()),
    }))

  function received(part: readonly Message[], reply: unknown): void {
    if (reply instanceof GatewayError) return
    decodeSync(reply, part)
    holdings.confirm(part)
  }

  async function send(store: Store, messages: readonly Message[]): Promise<void> {
    if (messages.length === 0) return
    const calls = callsFor(store, messages)
    const replies = await store.run(calls.map(({ call }) => call))
    for (const [i, { part }] of calls.entries()) received(part, replies[i])
  }

  function sendSoon(store: Store, background: Background): void {
    const wait = waitsUntil - now()
    if (wait > 0 && wait <= UNCONFIRMED_MS) return
    background(sendWhenDue(store))
  }

  /** What ended meanwhile is left to the next decision, unless none comes for as long. */
  async function sendWhenDue(store: Store): Promise<void> {
    const startedAt = now()
    const dueAt = () =>
      Math.min((holdings.unconfirmedSince ?? startedAt) + UNCONFIRMED_MS, startedAt + LONGEST_WAIT_MS)
    for (let wait = UNCONFIRMED_MS; wait > 0; wait = dueAt() - now()) {
      const ms = Math.min(wait, UNCONFIRMED_MS)
      waitsUntil = now() + ms
      await new Promise<void>(resolve => timer(ms, resolve))
    }
    waitsUntil = Number.NEGATIVE_INFINITY
    await send(store, holdings.unconfirmed())
  }

  return {
    holdings,
    sendSoon,

    withMessages: store => ({
      ...(store.isCluster !== undefined && { isCluster: store.isCluster }),
      ping: () => store.ping(),
      async run(calls) {
        const own = new Set(calls.flatMap(keysOf))
        const messages = holdings.unconfirmed(own)
        if (messages.length === 0) return await store.run(calls)
        const beside = callsFor(store, messages)
        const replies = await store.run([...calls, ...beside.map(({ call }) => call)])
        // A reply that is wrong here must not spoil the others.
        const [first, rest] = [replies.slice(0, calls.length), replies.slice(calls.length)]
        for (const [i, { part }] of beside.entries()) ignoringErrors(() => received(part, rest[i]))
        return first
      },
    }),

    claim: rules => new Claims(rules, holdings),

    keep({ inFlight: claims }, store, background) {
      if (claims.length === 0) return undefined
      const everyMs = Math.min(...claims.map(({ rule }) => renewalMs({ ttl: rule.rule.quota.period })))
      let stop = () => {}
      const over = new Promise<'over'>(resolve => {
        stop = () => resolve('over')
      })
      async function renew(): Promise<void> {
        for (;;) {
          let cancel = () => {}
          const elapsed = new Promise<'elapsed'>(resolve => {
            cancel = timer(everyMs, () => resolve('elapsed'), true)
          })
          const what = await Promise.race([over, elapsed])
          cancel()
          if (what === 'over') return
          for (const claim of claims) holdings.renew(claim)
          // The next one may succeed.
          await send(store, holdings.due()).catch(() => {})
        }
      }
      background(renew())
      return () => {
        stop()
        const isUrgent = claims.map(claim => holdings.release(claim)).some(Boolean)
        if (isUrgent) background(send(store, holdings.unconfirmed()))
        else sendSoon(store, background)
      }
    },
  }
}

const keysOf = (call: StoreCall) => ('keys' in call ? call.keys : [call.key])

function ignoringErrors(work: () => void): void {
  try {
    work()
  } catch {
    // What is not confirmed is sent again.
  }
}

function chunked<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, i) => list.slice(i * size, (i + 1) * size))
}
