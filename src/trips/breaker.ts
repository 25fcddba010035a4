/**
 * The circuit breaker (M. Nygard, "Release It!"): stops an isolate from waiting for a store that fails. docs/failure.md says when it opens
 * and closes. Each isolate has its own breaker. Its state is plain data, so it can outlive a request.
 *
 * A trip that times out may have been lost on the way, so it only suggests an outage. Any other failure confirms it, and so do two probes
 * that time out. Time in which the isolate itself was late (lag.ts) does not count. ERR_STORE_OVERLOAD (the isolate was late) and
 * ERR_STORE_CALLS_EXHAUSTED (the platform allows the client's request no more calls) say nothing about the store.
 */
import type { BreakerSettings } from '../config/compile-breaker.ts'
import { GatewayError } from '../errors.ts'
import { isolateLag, type LagMeter } from '../store/lag.ts'
import type { Store } from '../store/store.ts'
import { failureIn } from './carry.ts'
import { createTurn, isWithin } from './turn.ts'

/** The breaker has opened, or it has closed after so many ms. */
export type StoreChange = { isOpen: true; cause: GatewayError } | { isOpen: false; afterMs: number }

/** What the breaker needs from its platform. */
interface BreakerPlatform {
  /** ms since the epoch */
  now: () => number
  lag?: LagMeter
  onChange?: ((change: StoreChange) => void) | undefined
}

export interface StoreWithBreaker extends Store {
  isOpen(): boolean
  /**
   * Whether the store has failed for sure: not by timeouts alone, or probes have confirmed them. Without a breaker there are no probes, so
   * every failure counts.
   */
  isOutageConfirmed(): boolean
  /** Whether it is time to probe the store. */
  isProbeDue(): boolean
  /** Probes the store, and closes the breaker if the store is back. To be run in the background. Never throws. */
  probe(): Promise<void>
}

/** The interval of probes if the account has reached the limits of its plan. More frequent probes would not help. */
const QUOTA_RETRY_MS = 30_000

/** A probe without an answer does not count if the isolate was late for more than this share of `slowAfterMs`. */
const MAX_LATE_SHARE = 0.2

/** How many probes without an answer confirm an outage. A single one may also have been lost on the way. */
const LOST_PROBES_TO_CONFIRM = 2

/**
 * If the store was not called for this long (ms), its state is unknown, and the next decision is sent as a probe. Otherwise an
 * isolate with few requests would decide the first of them without the store, because of an outage that ended long ago.
 */
const STALE_MS = 10_000

/**
 * Wraps the store with a breaker.
 * @param settings absent: the breaker never opens
 * @param probeStore makes a trip like those of decisions; rejects if it fails
 */
export function withBreaker(
  store: Store,
  settings: BreakerSettings | undefined,
  probeStore: () => Promise<void>,
  { now, lag = isolateLag, onChange = () => {} }: BreakerPlatform,
): StoreWithBreaker {
  if (!settings) return { ...store, ...NEVER_OPEN }
  const { failures, slowCalls, slowAfterMs, retryAfterMs } = settings
  let failuresInRow = 0
  let slowCallsInRow = 0
  /** Set while the breaker is open. */
  let open: { cause: GatewayError; isConfirmed: boolean; since: number; checkedAt: number } | undefined
  /** Taken until the next probe is due. */
  const untilProbe = createTurn(now)
  /** Probes without an answer since the breaker opened. */
  let lostProbes = 0
  let timesClosed = 0

  const start = () => ({ at: now(), lagAtStart: lag.total(), timesClosed })
  type Start = ReturnType<typeof start>
  const lateMsSince = ({ lagAtStart }: Start) => lag.total() - lagAtStart
  const isSlow = (started: Start) => now() - started.at - lateMsSince(started) >= slowAfterMs

  /** Runs calls, and records how they have ended. */
  async function observe(run: () => Promise<unknown[]>, record: typeof recordResult): Promise<unknown[]> {
    const started = start()
    try {
      const replies = await run()
      record(started, failureIn(store, replies))
      return replies
    } catch (error) {
      record(started, error)
      throw error
    }
  }

  function recordResult(started: Start, failure: unknown): void {
    // The result of a call that started before the breaker opened or closed is outdated.
    if (open || timesClosed !== started.timesClosed || saysNothing(failure)) return
    if (failure !== undefined && !(failure instanceof GatewayError)) return
    failuresInRow = failure ? failuresInRow + 1 : 0
    slowCallsInRow = isTimeout(failure) || isSlow(started) ? slowCallsInRow + 1 : 0
    const isQuotaUsedUp = failure?.code === 'ERR_STORE_QUOTA'
    if (failuresInRow >= failures || slowCallsInRow >= slowCalls || isQuotaUsedUp)
      openOrStayOpen(failure ?? TOO_SLOW, failure !== undefined && !isTimeout(failure))
  }

  /** Makes a trip that shows whether the store is back. It sets the time of the next probe first, because the platform may end this request. */
  function runAsProbe(run: () => Promise<unknown[]>): Promise<unknown[]> {
    untilProbe.take(retryAfterMs)
    return observe(run, recordProbe)
  }

  function recordProbe(started: Start, failure: unknown): void {
    if (!failure && !isSlow(started)) close()
    if (!open || saysNothing(failure)) return
    if (isTimeout(failure) && lateMsSince(started) <= MAX_LATE_SHARE * slowAfterMs) lostProbes += 1
    const isLost = isTimeout(failure) && lostProbes < LOST_PROBES_TO_CONFIRM
    // A slow answer is still an answer, so it does not confirm an outage.
    if (!failure) openOrStayOpen(TOO_SLOW, false)
    else openOrStayOpen(failure instanceof GatewayError ? failure : open.cause, !isLost)
  }

  function openOrStayOpen(cause: GatewayError, isConfirmed: boolean): void {
    // The first quota error may be brief throttling. A second one in a row means that the quota is used up.
    const isQuota = cause.code === 'ERR_STORE_QUOTA'
    const retryMs = isQuota && open?.cause.code === cause.code ? QUOTA_RETRY_MS : retryAfterMs
    if (!open) onChange({ isOpen: true, cause })
    untilProbe.take(open || isQuota ? retryMs : 0)
    const since = open?.since ?? now()
    open = { cause, since, checkedAt: now(), isConfirmed: isConfirmed || open?.isConfirmed === true }
  }

  function close(): void {
    if (open) onChange({ isOpen: false, afterMs: now() - open.since })
    open = undefined
    failuresInRow = 0
    slowCallsInRow = 0
    lostProbes = 0
    timesClosed += 1
  }

  const isProbeDue = () => open !== undefined && !untilProbe.isTaken()
  const isStale = () => isProbeDue() && !isWithin(STALE_MS, open!.checkedAt, now())

  return {
    ...store,

    isOpen: () => open !== undefined,
    isOutageConfirmed: () => open?.isConfirmed === true,
    isProbeDue,
    async probe() {
      await runAsProbe(async () => {
        await probeStore()
        return []
      }).catch(() => {})
    },

    async run(calls) {
      const run = () => store.run(calls)
      if (isStale()) return await runAsProbe(run)
      if (!open) return await observe(run, recordResult)
      const { message } = open.cause
      throw new GatewayError(
        'ERR_STORE_BREAKER_OPEN',
        `The store was not called, because it failed before: ${message}`,
      )
    },
  }
}

const isTimeout = (error: unknown) => error instanceof GatewayError && error.code === 'ERR_STORE_TIMEOUT'

const saysNothing = (error: unknown) =>
  error instanceof GatewayError &&
  (error.code === 'ERR_STORE_OVERLOAD' || error.code === 'ERR_STORE_CALLS_EXHAUSTED')

const TOO_SLOW = new GatewayError('ERR_STORE_TIMEOUT', 'The store was slow.')

const NEVER_OPEN = {
  isOpen: () => false,
  isOutageConfirmed: () => true,
  isProbeDue: () => false,
  probe: async () => {},
}
