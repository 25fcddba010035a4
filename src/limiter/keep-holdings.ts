/**
 * When the store receives what this isolate holds: with each decision about the identity. Units that are free again go with the next
 * HTTP request about anything, after a quarter of a second without one, or at once where the limit is nearly used up. What is held
 * for long is sent again three times within the ttl.
 */
import type { MessageAnswer } from '../algorithms/concurrency.ts'
import type { Background } from '../background.ts'
import type { Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { BoundRule } from '../script/evaluation.ts'
import { decodeSync, encodeSync, type Message } from '../script/sync.ts'
import type { Script, Store, StoreCall } from '../store/store.ts'
import { Claims, type LimitOf } from './claims.ts'
import { type Claim, Holdings, renewalMs } from './holdings.ts'
import { type CreateStock, NO_STOCK } from './in-advance.ts'

/** How long the store may take units for used that are free again (ms). */
const UNCONFIRMED_MS = 250

/** No request waits longer to send what others have not (ms): the platform may end it without notice. */
const LONGEST_WAIT_MS = 5000

/** How often it is checked whether units that are held in advance are still used (ms). */
const WATCH_MS = 250

/** Messages in one call. */
const MOST_MESSAGES = 50

export interface KeptHoldings {
  readonly holdings: Holdings
  /** Claims what a request costs, before it is decided. */
  claim(rules: readonly BoundRule[], limitOf?: LimitOf): Claims
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
  /** Absent: no units are held in advance. */
  createStock?: CreateStock | undefined
}

/** One for an isolate. */
export function createHoldings({
  now,
  timer,
  script,
  writeAt,
  newName,
  createStock,
}: KeepOptions): KeptHoldings {
  const holdings = new Holdings(now, newName)
  const stock = createStock?.(holdings, now) ?? NO_STOCK
  /** Until when some request waits to send what is not confirmed (ms). The platform may end it before. */
  let waitsUntil = Number.NEGATIVE_INFINITY
  /** The same of a request that waits to give units back that were held in advance. */
  let watchesUntil = Number.NEGATIVE_INFINITY

  const callsFor = ({ isCluster }: Store, messages: readonly Message[]) =>
    (isCluster ? messages.map(message => [message]) : chunked(messages, MOST_MESSAGES)).map(part => ({
      part,
      call: encodeSync(script(), part, writeAt?.()),
    }))

  function received(part: readonly Message[], reply: unknown): MessageAnswer[] {
    if (reply instanceof GatewayError) return []
    const answers = decodeSync(reply, part)
    holdings.confirm(part)
    return answers
  }

  async function send(store: Store, messages: readonly Message[]): Promise<void> {
    if (messages.length === 0) return
    const calls = callsFor(store, messages)
    const replies = await store.run(calls.map(({ call }) => call))
    for (const [i, { part }] of calls.entries()) received(part, replies[i])
  }

  function sendSoon(store: Store, background: Background): void {
    watchSoon(store, background)
    sendUnconfirmedSoon(store, background)
  }

  function sendUnconfirmedSoon(store: Store, background: Background): void {
    if (holdings.unconfirmedSince(stock.waiting) === undefined) return
    const wait = waitsUntil - now()
    if (wait > 0 && wait <= UNCONFIRMED_MS) return
    background(sendWhenDue(store))
  }

  /** What ended meanwhile is left to the next decision, unless none comes for as long. */
  async function sendWhenDue(store: Store): Promise<void> {
    const startedAt = now()
    const dueAt = () =>
      Math.min(
        (holdings.unconfirmedSince(stock.waiting) ?? startedAt) + UNCONFIRMED_MS,
        startedAt + LONGEST_WAIT_MS,
      )
    for (let wait = UNCONFIRMED_MS; wait > 0; wait = dueAt() - now()) {
      const ms = Math.min(wait, UNCONFIRMED_MS)
      waitsUntil = now() + ms
      await new Promise<void>(resolve => timer(ms, resolve))
    }
    waitsUntil = Number.NEGATIVE_INFINITY
    await send(store, holdings.unconfirmed(stock.waiting))
  }

  function watchSoon(store: Store, background: Background): void {
    const wait = watchesUntil - now()
    if ((wait > 0 && wait <= WATCH_MS) || !stock.isInUse) return
    background(watch(store, background))
  }

  /** Until requests have ceased, and everything that was held in advance is given back. */
  async function watch(store: Store, background: Background): Promise<void> {
    for (let isInUse = true; isInUse; isInUse = stock.giveBackIdle()) {
      watchesUntil = now() + WATCH_MS
      await new Promise<void>(resolve => timer(WATCH_MS, resolve))
      sendUnconfirmedSoon(store, background)
    }
    watchesUntil = Number.NEGATIVE_INFINITY
    await send(store, holdings.unconfirmed())
  }

  /** @returns whether it is to be reported at once */
  const end = (claim: Claim) => !stock.putBack(claim) && holdings.release(claim) && !stock.mayWait(claim)

  return {
    holdings,
    sendSoon,

    withMessages: store => ({
      ...(store.isCluster !== undefined && { isCluster: store.isCluster }),
      ping: () => store.ping(),
      async run(calls) {
        const questions = stock.questions()
        const except = [...calls.flatMap(keysOf), ...questions.map(({ key }) => key), ...stock.waiting]
        const messages = [...questions, ...holdings.unconfirmed(new Set(except))]
        if (messages.length === 0) return await store.run(calls)
        const beside = callsFor(store, messages)
        const isAnswered = new Set<Message>()
        try {
          const replies = await store.run([...calls, ...beside.map(({ call }) => call)])
          // A reply that is wrong here must not spoil the others.
          for (const [i, { part }] of beside.entries())
            ignoringErrors(() => {
              for (const [at, answer] of received(part, replies[calls.length + i]).entries()) {
                isAnswered.add(part[at]!)
                stock.answer(part[at]!, answer)
              }
            })
          return replies.slice(0, calls.length)
        } finally {
          for (const question of questions) if (!isAnswered.has(question)) stock.answer(question, undefined)
        }
      },
    }),

    claim: (rules, limitOf) => new Claims(rules, holdings, stock, limitOf),

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
        const isUrgent = claims.map(end).some(Boolean)
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
