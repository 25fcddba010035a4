/**
 * Sends a short fixed sequence of requests by several callers, while one store call or all of them fail in one way. Then sends further
 * requests, until the store decides again.
 */
import type { Armed, When } from '../support/fault-proxy.ts'
import {
  anonymous,
  askAs,
  type Caller,
  consumerOf,
  forgerOf,
  isDecided,
  type Reply,
  signedConsumerOf,
  withUnknownKey,
} from './callers.ts'
import { type Judged, judge } from './judge.ts'
import type { Lane } from './lane.ts'
import { isSlownessMark, LIMIT, type Mode, QUOTA_RECOVERY_MS, RECOVERY_MS } from './modes.ts'

/** A fault that can be injected into a lane. */
export interface Anomaly {
  name: string
  /** A call that fails may have been executed. */
  arrives?: true
  /** Also part of `npm run test:all`. */
  isTypical?: true
  /** Not a failure, and must not be treated as one. */
  isHarmless?: true
  /** Calls are answered later than the deadline. An isolate that is late itself accepts the answer. */
  answersLate?: true
  /** The store goes on to decide. */
  decides?: true
  /** The store reports that its Upstash plan is used up, so the Worker tries again later than after other faults. */
  isQuotaFault?: true
  arm(lane: Lane, when: When): Armed
}

/** Which calls fail: the n-th, or all of them. */
export type Which = number | 'every'

export interface Finding extends Judged {
  /** Time from the last fault to the first decision of the store (ms). */
  backAfter: number
  /** Whether any call failed. If n is above the number of calls, none does. */
  hasHit: boolean
}

const ROUNDS = LIMIT + 1

export async function play(lane: Lane, anomaly: Anomaly, mode: Mode, which: Which): Promise<Finding> {
  await lane.ready()
  const [plain, signed] = [await consumerOf(lane), await signedConsumerOf(lane)]
  const callers = [plain, anonymous(lane), signed, withUnknownKey(lane)]
  const forger = await forgerOf(lane)
  lane.origin.received.length = 0
  const armed = anomaly.arm(lane, n => which === 'every' || n === which)
  try {
    for (let round = 0; round < ROUNDS; round++) {
      for (const caller of callers) {
        await armed.before?.()
        await askAs(lane, caller, mode)
        // Its guesses travel with the next trip.
        await askAs(lane, forger, mode)
      }
    }
  } finally {
    await armed.disarm()
  }
  const forwarded = lane.origin.received.length
  const backWithin = anomaly.isQuotaFault ? QUOTA_RECOVERY_MS : RECOVERY_MS
  const after = await untilDecided(lane, mode, backWithin)

  const judged = await judge(lane, [...callers, ...after], { mode, arrives: anomaly.arrives ?? false })
  const mistakes = [...judged.mistakes]
  if (forger.replies.some(({ status }) => status !== 401)) mistakes.push('a forged key did not get a 401')
  const replies = callers.flatMap(({ replies }) => replies)
  const admitted = replies.filter(({ status }) => status === 200).length
  if (forwarded !== admitted) mistakes.push(`${admitted} were admitted, ${forwarded} forwarded`)
  const hasHit = armed.spoiled() > 0
  const backAfter = hasHit ? backSince(armed.lastAt(), [...callers, ...after]) : 0
  if (backAfter > backWithin) mistakes.push(`the store was asked again after ${Math.round(backAfter)} ms`)
  if (anomaly.isHarmless && isTreatedAsFailure(replies)) {
    mistakes.push('treated as a failure')
  }
  return { ...judged, mistakes, backAfter, hasHit }
}

/** Whether a reply was degraded for another reason than slowness, which on a busy machine can occur without a fault. */
export function isTreatedAsFailure(replies: readonly Reply[]): boolean {
  return replies.some(({ mark }) => mark !== undefined && !isSlownessMark(mark))
}

/** Sends requests of new callers until the store decides one of them. */
export async function untilDecided(lane: Lane, mode: Mode, within = RECOVERY_MS): Promise<Caller[]> {
  const callers: Caller[] = []
  const until = performance.now() + 2 * within
  while (performance.now() < until) {
    const caller = anonymous(lane)
    callers.push(caller)
    if (isDecided(await askAs(lane, caller, mode))) break
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  return callers
}

/** Time until the first decision of the store (ms). @param at time of the last fault, by performance.now() */
export function backSince(at: number, callers: readonly Caller[]): number {
  const first = callers
    .flatMap(({ replies }) => replies)
    .filter((reply: Reply) => isDecided(reply) && reply.at - reply.ms > at)
    .sort((a, b) => a.at - b.at)[0]
  return first ? first.at - at : Number.POSITIVE_INFINITY
}
