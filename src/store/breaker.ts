/**
 * Stops an isolate from waiting for a store that fails (the circuit breaker of M. Nygard, Release It!): a dead store
 * costs the requests in flight one deadline, and those after them nothing. All of it is plain data, so it outlives the
 * request; each isolate has its own.
 *
 * It opens on the first call that takes too long, which has cost somebody the deadline, and on several quick failures
 * in a row. While it is open every call fails at once, and whether the store is back is found out in the background,
 * at once and then every so often: by a probe of its own, so that nobody waits for it. Since the first probe takes one
 * trip, a single call that was lost on the way closes the gates for no longer than that.
 */
import { GatewayError } from '../errors.ts'
import type { Store } from './store.ts'

export interface BreakerSettings {
  /** Failures in a row that open it. */
  failures: number
  /** Slow calls in a row that open it. */
  slowCalls: number
  /** A call that takes as long is slow; so is one that reaches the deadline, whatever this says. */
  slowAfterMs: number
  /** Between probes while it is open. */
  retryAfterMs: number
}

/** The store is found to be gone, or back. */
export type StoreChange = { isOpen: true; cause: GatewayError } | { isOpen: false; afterMs: number }

/** What a breaker needs of its surroundings; what is absent is as on any platform. */
export interface BreakerSurroundings {
  now?: () => number
  onChange?: (change: StoreChange) => void
}

export interface GuardedStore extends Store {
  isOpen(): boolean
  /** Whether it is time to find out if the store is back. */
  isProbeDue(): boolean
  /** Finds it out; resolves when it is known. To be run where no request waits for it. */
  probe(): Promise<void>
}

/** Of an account that has used up what it pays for: asking more often changes nothing. */
const QUOTA_RETRY_MS = 30_000

/**
 * After so long without a word from the store nobody knows anything: the next call goes through to it, as the probe. An
 * isolate that few come to would else refuse the first of them over an outage that is long past.
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
  { now = Date.now, onChange = () => {} }: BreakerSurroundings = {},
): GuardedStore {
  const { failures, slowCalls, slowAfterMs, retryAfterMs } = settings ?? NEVER
  let failed = 0
  let slow = 0
  /** Set while it is open. */
  let open: { cause: GatewayError; since: number; heardAt: number; probeAt: number } | undefined
  /** How often it has closed. */
  let era = 0

  const isSlow = (startedAt: number) => now() - startedAt >= slowAfterMs

  function settled(startedAt: number, failure: GatewayError | undefined): void {
    failed = failure ? failed + 1 : 0
    slow = failure?.code === 'ERR_STORE_TIMEOUT' || isSlow(startedAt) ? slow + 1 : 0
    const isUsedUp = settings && failure?.code === 'ERR_STORE_QUOTA'
    if (failed >= failures || slow >= slowCalls || isUsedUp) openFor(failure ?? TOO_SLOW)
  }

  function openFor(cause: GatewayError): void {
    // A single word of it may have been a moment's throttling; who hears it twice has used up what there is.
    const isQuota = cause.code === 'ERR_STORE_QUOTA'
    const again = isQuota && open?.cause.code === cause.code ? QUOTA_RETRY_MS : retryAfterMs
    const wait = open || isQuota ? again : 0
    const since = open?.since ?? now()
    if (!open) onChange({ isOpen: true, cause })
    open = { cause, since, heardAt: now(), probeAt: now() + wait }
  }

  function close(): void {
    if (open) onChange({ isOpen: false, afterMs: now() - open.since })
    open = undefined
    failed = 0
    slow = 0
    era += 1
  }

  /** What it costs to find out whether the store is back. Lost ones (the platform may end their request) are followed by others. */
  async function attempt<T>(
    run: () => Promise<T>,
    failureIn: (result: T) => GatewayError | undefined,
  ): Promise<T> {
    if (open) open.probeAt = now() + retryAfterMs
    const startedAt = now()
    try {
      const result = await run()
      const failure = failureIn(result) ?? (isSlow(startedAt) ? TOO_SLOW : undefined)
      if (!failure) close()
      else if (open) openFor(failure)
      return result
    } catch (error) {
      if (open) openFor(error instanceof GatewayError ? error : open.cause)
      throw error
    }
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
        throw new GatewayError('ERR_STORE_BREAKER_OPEN', `The store was not asked. Before: ${message}`)
      }
      const startedAt = now()
      const startedIn = era
      // What was begun before it opened says nothing about now.
      const isOfNow = () => !open && era === startedIn
      try {
        const replies = await store.run(calls)
        if (isOfNow()) settled(startedAt, failureIn(replies))
        return replies
      } catch (error) {
        if (isOfNow() && error instanceof GatewayError) settled(startedAt, error)
        throw error
      }
    },
  }
}

const TOO_SLOW = new GatewayError('ERR_STORE_TIMEOUT', 'The store was slow.')

const NEVER: BreakerSettings = {
  failures: Number.POSITIVE_INFINITY,
  slowCalls: Number.POSITIVE_INFINITY,
  slowAfterMs: Number.POSITIVE_INFINITY,
  retryAfterMs: 0,
}
