/**
 * Stops an isolate from waiting for a store that fails (the circuit breaker of M. Nygard, Release It!): a dead store
 * costs the requests in flight one deadline, and those after them nothing. All of it is plain data, so it outlives the
 * request; each isolate has its own.
 *
 * It opens on the first call that takes too long, which has cost a request the deadline, and on several quick failures
 * in a row. While it is open every call fails at once, and a probe in the background finds out whether the store is back:
 * at once and then every so often, so that no request waits for it. A call that took too long may have been lost on the way, so
 * it only suggests an outage: a reported failure confirms it, or two probes in which the store was too slow. Time in which the
 * isolate itself was late (lag.ts) does not count, and calls that fail because of it (ERR_STORE_OVERLOAD) say nothing about the
 * store.
 */
import type { BreakerSettings } from '../config/compile-breaker.ts'
import { GatewayError } from '../errors.ts'
import { isolateLag, type LagMeter } from './lag.ts'
import type { Store } from './store.ts'

/** The store is found to be gone, or back. */
export type StoreChange = { isOpen: true; cause: GatewayError } | { isOpen: false; afterMs: number }

/** What a breaker needs from its platform; the defaults suit every platform. */
export interface BreakerSurroundings {
  /** ms since the epoch */
  now: () => number
  lag?: LagMeter
  onChange?: (change: StoreChange) => void
}

export interface GuardedStore extends Store {
  isOpen(): boolean
  /**
   * The store has really failed: it has reported a failure, or probes have confirmed what a slow call suggested. Without a
   * breaker there are no probes, and every failure counts as real.
   */
  isOutageConfirmed(): boolean
  /** Whether it is time to check if the store is back. */
  isProbeDue(): boolean
  /** Checks whether the store is back; resolves when it is known. To be run where no request waits for it. */
  probe(): Promise<void>
}

/** For an account that has reached the limits of its plan: probing more often changes nothing. */
const QUOTA_RETRY_MS = 30_000

/** A probe says nothing about the store if the isolate was late for more than this part of `slowAfterMs`. */
const MOST_LATE = 0.2

/** So many slow probes confirm a suspected outage: a single one can be lost on the way, too. */
const SLOW_PROBES = 2

/**
 * When the store has not been called for so long, its state is unknown: the next call goes through to it, as the probe. An
 * isolate with few requests would otherwise refuse the first of them over an outage that is long past.
 */
const STALE_MS = 10_000

/**
 * @param probe asks the store for something that decisions need; rejects when it cannot
 * @param settings absent: it never opens
 */
export function withBreaker(
  store: Store,
  settings: BreakerSettings | undefined,
  probe: (store: Store) => Promise<void>,
  { now, lag = isolateLag, onChange = () => {} }: BreakerSurroundings,
): GuardedStore {
  const { failures, slowCalls, slowAfterMs, retryAfterMs } = settings ?? NEVER
  let failed = 0
  let slow = 0
  /** Set while it is open. */
  let open:
    | { cause: GatewayError; isConfirmed: boolean; since: number; heardAt: number; probeAt: number }
    | undefined
  /** Slow probes since it opened. */
  let slowProbes = 0
  /** How often it has closed. */
  let era = 0

  interface Start {
    at: number
    lateMs: number
  }
  const start = (): Start => ({ at: now(), lateMs: lag.total() })
  const isSlow = ({ at, lateMs }: Start) => now() - at - (lag.total() - lateMs) >= slowAfterMs

  function settled(started: Start, failure: GatewayError | undefined): void {
    if (isOverload(failure)) return
    failed = failure ? failed + 1 : 0
    slow = isTimeout(failure) || isSlow(started) ? slow + 1 : 0
    const isUsedUp = settings && failure?.code === 'ERR_STORE_QUOTA'
    if (failed >= failures || slow >= slowCalls || isUsedUp) {
      openFor(failure ?? TOO_SLOW, { isConfirmed: failure !== undefined && !isTimeout(failure) })
    }
  }

  function openFor(cause: GatewayError, { isConfirmed }: { isConfirmed: boolean }): void {
    // A single such error may be brief throttling; the second one means that the quota is used up.
    const isQuota = cause.code === 'ERR_STORE_QUOTA'
    const again = isQuota && open?.cause.code === cause.code ? QUOTA_RETRY_MS : retryAfterMs
    const wait = open || isQuota ? again : 0
    const since = open?.since ?? now()
    if (!open) onChange({ isOpen: true, cause })
    open = {
      ...{ cause, since, heardAt: now(), probeAt: now() + wait },
      isConfirmed: isConfirmed || open?.isConfirmed === true,
    }
  }

  function close(): void {
    if (open) onChange({ isOpen: false, afterMs: now() - open.since })
    open = undefined
    failed = 0
    slow = 0
    slowProbes = 0
    era += 1
  }

  /** One try to find out whether the store is back. If it is lost (the platform may end its request), another one follows. */
  async function attempt<T>(
    run: () => Promise<T>,
    failureIn: (result: T) => GatewayError | undefined,
  ): Promise<T> {
    if (open) open.probeAt = now() + retryAfterMs
    const started = start()
    try {
      const result = await run()
      const failure = failureIn(result)
      if (failure) failedAgain(failure, started)
      else if (!isSlow(started)) close()
      // A slow answer is an answer: it confirms no outage.
      else if (open) openFor(TOO_SLOW, { isConfirmed: false })
      return result
    } catch (error) {
      failedAgain(error, started)
      throw error
    }
  }

  function failedAgain(error: unknown, { lateMs }: Start): void {
    if (!open || isOverload(error)) return
    if (isTimeout(error) && lag.total() - lateMs <= MOST_LATE * slowAfterMs) slowProbes += 1
    const isConfirmed = !isTimeout(error) || slowProbes >= SLOW_PROBES
    openFor(error instanceof GatewayError ? error : open.cause, { isConfirmed })
  }

  /** On a cluster one slot that fails is not the store. */
  function failureIn(replies: readonly unknown[]): GatewayError | undefined {
    const errors = replies.filter(reply => reply instanceof GatewayError)
    return store.isCluster && errors.length < replies.length ? undefined : errors[0]
  }

  // A clock that is set back must not keep it open.
  const hasPassed = (time: number) => open !== undefined && (now() >= time || now() < open.heardAt)
  const isStale = () => open !== undefined && hasPassed(open.heardAt + STALE_MS) && hasPassed(open.probeAt)

  return {
    ...(store.isCluster !== undefined && { isCluster: store.isCluster }),
    ping: () => store.ping(),

    isOpen: () => open !== undefined,
    isOutageConfirmed: () => !settings || open?.isConfirmed === true,
    isProbeDue: () => open !== undefined && hasPassed(open.probeAt),
    async probe() {
      await attempt(
        () => probe(store),
        () => undefined,
      ).catch(() => {})
    },

    async run(calls) {
      if (isStale()) return await attempt(() => store.run(calls), failureIn)
      if (open) {
        const { message } = open.cause
        throw new GatewayError(
          'ERR_STORE_BREAKER_OPEN',
          `The store was not called, because it failed before: ${message}`,
        )
      }
      const started = start()
      const startedIn = era
      // A call that started before the breaker opened or closed says nothing about the store now.
      const isOfNow = () => !open && era === startedIn
      try {
        const replies = await store.run(calls)
        if (isOfNow()) settled(started, failureIn(replies))
        return replies
      } catch (error) {
        if (isOfNow() && error instanceof GatewayError) settled(started, error)
        throw error
      }
    },
  }
}

const isTimeout = (error: unknown) => error instanceof GatewayError && error.code === 'ERR_STORE_TIMEOUT'

const isOverload = (error: unknown) => error instanceof GatewayError && error.code === 'ERR_STORE_OVERLOAD'

const TOO_SLOW = new GatewayError('ERR_STORE_TIMEOUT', 'The store was slow.')

const NEVER: BreakerSettings = {
  failures: Number.POSITIVE_INFINITY,
  slowCalls: Number.POSITIVE_INFINITY,
  slowAfterMs: Number.POSITIVE_INFINITY,
  retryAfterMs: 0,
}
