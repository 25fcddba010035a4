/**
 * Callers with leases, while calls to the store fail: the units of each request that the store has admitted are spent in it, and when the
 * store is gone, no lease is used for longer than it lasts.
 */
import { checkedConfig } from '../../src/config/check/check.ts'
import { peekCaller } from '../../src/ops/limits.ts'
import type { Armed } from '../support/fault-proxy.ts'
import { anonymous, askAs, type Caller, consumerOf, isDecided, passed, type Reply } from './callers.ts'
import type { Lane } from './lane.ts'
import config from './leases.config.ts'
import {
  COSTLY,
  DEADLINE_MS,
  LATE_MS,
  LEASE_ALGORITHMS,
  LEASE_LIMIT,
  LEASE_MS,
  type LeaseAlgorithm,
  leaseRuleName,
  type Mode,
  mistakeIn,
  QUOTA_RECOVERY_MS,
  RECOVERY_MS,
} from './modes.ts'
import { type Anomaly, isTreatedAsFailure, untilDecided } from './scenario.ts'

/** Requests of each caller before the faults. They fit into the time of one lease if the machine is not busy. */
const BEFORE = 60

/** Requests of each caller while one call fails, between the faults, while all calls fail, and after the faults. */
const DURING_ONE = 15
const BETWEEN = 40
const DURING_ALL = 5
const AFTER = 5

/** Trips per request of callers that get leases, if each of them has sent enough requests per second. */
const MAX_TRIPS = 0.9
const ENOUGH_PER_SECOND = 20

/** Requests of each caller right before all calls fail, until most of them make no trip. */
const LAST = 5
const MAX_LAST_ROUNDS = 10

/** A lease that has served a request is valid for at least this time (ms): it is renewed when this much is left. */
const STILL_VALID_MS = LEASE_MS / 4

/**
 * An isolate counts a lease from the moment at which it calls the store, which is before the call arrives there. Only the clocks of this
 * process and of the Worker can differ a little.
 */
const CLOCKS_DIFFER_MS = 50

/** The pause between requests of a caller that waits for the end of its lease. */
const PAUSE_MS = 120

/** An isolate that gets no more requests gives its units back within this time, unless trips fail. */
const GIVEN_BACK_MS = 500

/** The algorithm of the caller that begins with a costly request, so that it reaches its limit. */
const NEAR_LIMIT: LeaseAlgorithm = 'sliding-window'

export interface LeasedCaller extends Caller {
  path: string
  algorithm: LeaseAlgorithm
  /** Units of its first request beyond the one that every request costs. */
  extra: number
}

export interface LeaseFinding {
  mistakes: readonly string[]
  /** Present if the store was gone for longer than a lease. */
  gone?: {
    /** Requests that were sent after the store was gone, and that were admitted without `Sluice-Degraded`. */
    fromLeases: number
    /** The longest time from the failure of the store to such a request (ms). */
    lastAfter: number
    /** Whether the machine was fast enough: there were leases, and every caller has used its own before it could end. */
    hadLeases: boolean
  }
}

async function leasedCaller(lane: Lane, mode: Mode, algorithm: LeaseAlgorithm): Promise<LeasedCaller> {
  const caller = LEASE_ALGORITHMS[algorithm] === 'consumer' ? await consumerOf(lane) : anonymous(lane)
  return { ...caller, algorithm, path: `/leased/${mode}/${algorithm}/${lane.name()}/`, extra: 0 }
}

export const leasedCallers = (lane: Lane, mode: Mode): Promise<LeasedCaller[]> =>
  Promise.all(
    (Object.keys(LEASE_ALGORITHMS) as LeaseAlgorithm[]).map(algorithm => leasedCaller(lane, mode, algorithm)),
  )

/** Sends requests until the callers have leases. One of them spends most of its limit first. @returns mistakes */
export async function beginLeases(
  lane: Lane,
  callers: readonly LeasedCaller[],
  mode: Mode,
): Promise<string[]> {
  lane.origin.received.length = 0
  for (const caller of callers) {
    if (caller.algorithm !== NEAR_LIMIT) continue
    const { status, mark } = await askAs(lane, caller, mode, `${caller.path}costly`)
    if (status === 200 && mark === undefined) caller.extra = COSTLY - 1
  }
  lane.store.count()
  const startedAt = performance.now()
  await sendAll(lane, callers, mode, BEFORE)
  const trips = lane.store.count()
  const requests = callers.length * BEFORE
  const isEnough = (BEFORE / (performance.now() - startedAt)) * 1000 >= ENOUGH_PER_SECOND
  return isEnough && trips > MAX_TRIPS * requests
    ? [`${requests} requests took ${trips} trips, so few had a lease`]
    : []
}

/** Sends requests until most of them make no trip. @returns when the last of them began; undefined if there are too few leases */
async function untilLeased(
  lane: Lane,
  callers: readonly LeasedCaller[],
  mode: Mode,
): Promise<number | undefined> {
  for (let round = 0; round < MAX_LAST_ROUNDS; round++) {
    const startedAt = performance.now()
    lane.store.count()
    await sendAll(lane, callers, mode, LAST)
    if (lane.store.count() <= (callers.length * LAST) / 2) return startedAt
  }
  return undefined
}

/** Sends requests of callers with leases while one call fails, and later while all calls fail. */
export async function playLeases(lane: Lane, anomaly: Anomaly, mode: Mode): Promise<LeaseFinding> {
  await lane.ready()
  const startedAt = performance.now()
  const abandonedBefore = lane.store.abandoned()
  const callers = await leasedCallers(lane, mode)
  await untilDecided(lane, mode)
  const mistakes = await beginLeases(lane, callers, mode)

  // Not with a quota fault: after a single one, the Worker waits for half a minute before it asks the store again.
  if (!anomaly.isQuotaFault) {
    const armed = anomaly.arm(lane, n => n === 1)
    await sendAll(lane, callers, mode, DURING_ONE, oneAfterTheOther(armed)).finally(armed.disarm)
    await untilDecided(lane, mode)
    await sendAll(lane, callers, mode, BETWEEN)
  }

  const leasedAt = await untilLeased(lane, callers, mode)
  const armed = anomaly.arm(lane, () => true)
  const before = oneAfterTheOther(armed)
  await before()
  const goneAt = performance.now()
  const lastCallAt = Math.min(goneAt, lane.store.lastAt())
  try {
    await sendAll(lane, callers, mode, DURING_ALL, before)
    while (performance.now() < goneAt + LEASE_MS + 2 * DEADLINE_MS) {
      await sendAll(lane, callers, mode, 1, before)
      await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
    }
  } finally {
    await armed.disarm()
  }
  const untilBack = callers.map(({ replies }) => [...replies])
  const during = callers.flatMap(({ replies }) => replies).filter(({ at, ms }) => at - ms >= goneAt)
  await untilDecided(lane, mode, anomaly.isQuotaFault ? QUOTA_RECOVERY_MS : RECOVERY_MS)
  await sendAll(lane, callers, mode, AFTER)

  const isUndisturbed = anomaly.isHarmless ?? false
  mistakes.push(...(await judgeLeases(lane, callers, mode, { isUndisturbed, startedAt, abandonedBefore })))
  if (anomaly.decides) return { mistakes }
  const leased = passed(during).filter(isDecided)
  const lastAfter = Math.max(0, ...leased.map(({ at, ms }) => at - ms - goneAt))
  const longest = Math.max(...untilBack.map(replies => longestLease(replies, anomaly, goneAt, lastCallAt)))
  if (longest > LEASE_MS + CLOCKS_DIFFER_MS)
    mistakes.push(
      `a lease served a request ${Math.round(longest)} ms after the last call that may have begun it`,
    )
  const firstAt = Math.max(...untilBack.map(replies => replies.find(({ at }) => at >= goneAt)!.at))
  const hadLeases = leasedAt !== undefined && firstAt < leasedAt + STILL_VALID_MS
  return { mistakes, gone: { fromLeases: leased.length, lastAfter, hadLeases } }
}

/**
 * The longest time from the last call to the store that can have granted a lease, to a request that a lease has served (ms). With a fault
 * that only delays answers, a reply that took longer than the deadline may have come from the store: the deadline does not count the time
 * in which the isolate is late. Such a reply begins a new lease.
 * @param replies of one caller, until the store was back
 * @param lastCallAt when the last call has reached the store before it was gone
 */
function longestLease(
  replies: readonly Reply[],
  { answersLate }: Anomaly,
  goneAt: number,
  lastCallAt: number,
): number {
  let grantedAt = lastCallAt
  let longest = 0
  for (const reply of passed(replies)) {
    const { at, ms } = reply
    if (at < goneAt || !isDecided(reply)) continue
    if (answersLate && ms >= DEADLINE_MS) grantedAt = at
    else longest = Math.max(longest, at - ms - grantedAt)
  }
  return longest
}

/** Checks the callers when all their requests have ended. */
export async function judgeLeases(
  lane: Lane,
  callers: readonly LeasedCaller[],
  mode: Mode,
  { isUndisturbed = false, losses = 0, unreplicated = 0, startedAt = 0, abandonedBefore = 0 } = {},
): Promise<string[]> {
  const replies = callers.flatMap(({ replies }) => replies)
  const mistakes = replies.flatMap(
    reply => mistakeIn(reply, { mode, isUnknown: !reply.wasKnown, isForgotten: losses > 0 }) ?? [],
  )
  const slowest = Math.max(0, ...replies.map(({ ms }) => ms))
  if (slowest > DEADLINE_MS + LATE_MS) mistakes.push(`a reply took ${Math.round(slowest)} ms`)
  if (isUndisturbed && isTreatedAsFailure(replies)) mistakes.push('treated as a failure')

  await new Promise(resolve => setTimeout(resolve, GIVEN_BACK_MS))
  // Whether no call was lost because the machine was late. A lost call may have spent units for a lease that does not exist.
  const wasInTime =
    slowest < DEADLINE_MS &&
    lane.store.abandoned() === abandonedBefore &&
    lane.lateness.longestSince(startedAt) < DEADLINE_MS / 2
  let lost = 0
  for (const caller of callers) {
    const { algorithm, path, extra, replies } = caller
    const admitted = passed(replies)
    const forwarded = lane.origin.received.filter(({ url }) => url.startsWith(path)).length
    if (forwarded !== admitted.length)
      mistakes.push(`${algorithm}: ${admitted.length} were admitted, ${forwarded} forwarded`)
    const decided = admitted.filter(isDecided).length + extra
    if (decided > LEASE_LIMIT * (1 + losses))
      mistakes.push(`${algorithm}: the store admitted ${decided} of ${LEASE_LIMIT}`)
    // Of a store that has lost its data, nothing more is known.
    if (losses > 0) continue
    const isExact = isUndisturbed && wasInTime && replies.every(isDecided)
    const spent = await spentUnits(lane, caller, mode, isExact ? decided : undefined)
    lost += Math.max(0, decided - spent)
    if (isExact && spent !== decided) mistakes.push(`${algorithm}: ${spent} are spent for ${decided} units`)
  }
  if (lost > unreplicated) mistakes.push(`${lost} were admitted by the store that are not spent in it`)
  return mistakes
}

const checked = checkedConfig(config)

/** The units that the store has counted. @param expected if set, waits until it is reached, as leased units come back */
async function spentUnits(
  { admin }: Lane,
  { algorithm, owner }: LeasedCaller,
  mode: Mode,
  expected: number | undefined,
): Promise<number> {
  const until = performance.now() + LATE_MS
  for (;;) {
    const { standings } = await peekCaller(admin, checked, owner!)
    const { remaining } = standings.find(({ rule }) => rule.name === leaseRuleName(mode, algorithm))!
    const spent = LEASE_LIMIT - remaining
    if (expected === undefined || spent === expected || performance.now() > until) return spent
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

/** Sends requests of all callers at the same time. The requests of one caller follow each other. */
async function sendAll(
  lane: Lane,
  callers: readonly LeasedCaller[],
  mode: Mode,
  requests: number,
  before = async () => {},
): Promise<void> {
  const send = async (caller: LeasedCaller) => {
    for (let i = 0; i < requests; i++) {
      await before()
      await askAs(lane, caller, mode)
    }
  }
  await Promise.all(callers.map(send))
}

/** Runs `before` for one request after the other: it may open or close the proxy's listening socket, which two must not do at once. */
function oneAfterTheOther({ before }: Armed): () => Promise<void> {
  let last = Promise.resolve()
  return () => {
    last = last.then(before)
    return last
  }
}
