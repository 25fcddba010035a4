/**
 * A fixed short sequence of requests by several callers while one store call in it, or every one, fails in one way, and
 * then as many as it takes until the store decides again.
 */
import type { Armed, When } from '../support/fault-proxy.ts'
import { anonymous, askAs, type Caller, consumerOf, isDecided, type Reply, stranger } from './callers.ts'
import { type Judged, judge } from './judge.ts'
import type { Lane } from './lane.ts'
import { isSlownessMark, LIMIT, type Mode, PATIENCE_MS, RECOVERY_MS } from './policy.ts'

/** A way to fail, put where it belongs. */
export interface Anomaly {
  name: string
  /** What is asked may have been done, though nobody heard of it. */
  arrives?: true
  /** One of those that `npm test` tries. */
  isTypical?: true
  /** It is no failure, and must not be taken for one. */
  isHarmless?: true
  /** After an answer that asks for patience the store is asked again later than after others. */
  isPatient?: true
  arm(lane: Lane, when: When): Armed
}

/** Which calls fail: the n-th, or all of them. */
export type Which = number | 'every'

export interface Finding extends Judged {
  /** From the last fault to the first decision in the store, ms. */
  backAfter: number
  /** Whether any call failed: with a large n none does. */
  hasHit: boolean
}

const ROUNDS = LIMIT + 1

export async function play(lane: Lane, anomaly: Anomaly, mode: Mode, which: Which): Promise<Finding> {
  await lane.ready()
  const callers = [await consumerOf(lane), anonymous(lane), await consumerOf(lane), stranger(lane)]
  lane.origin.received.length = 0
  const armed = anomaly.arm(lane, n => which === 'every' || n === which)
  try {
    for (let round = 0; round < ROUNDS; round++) {
      for (const caller of callers) {
        await armed.before?.()
        await askAs(lane, caller, mode)
      }
    }
  } finally {
    await armed.disarm()
  }
  const forwarded = lane.origin.received.length
  const backWithin = anomaly.isPatient ? PATIENCE_MS : RECOVERY_MS
  const after = await untilDecided(lane, mode, backWithin)

  const judged = await judge(lane, [...callers, ...after], { mode, arrives: anomaly.arrives ?? false })
  const mistakes = [...judged.mistakes]
  const replies = callers.flatMap(({ replies }) => replies)
  const admitted = replies.filter(({ status }) => status === 200).length
  if (forwarded !== admitted) mistakes.push(`${admitted} were admitted, ${forwarded} forwarded`)
  const hasHit = armed.spoiled() > 0
  const backAfter = hasHit ? backSince(armed.lastAt(), [...callers, ...after]) : 0
  if (backAfter > backWithin) mistakes.push(`the store was asked again after ${Math.round(backAfter)} ms`)
  if (anomaly.isHarmless && isTakenForFailure(replies)) {
    mistakes.push('taken for a failure')
  }
  return { ...judged, mistakes, backAfter, hasHit }
}

/** On a busy machine a slow reply can be too slow and open the breaker: the fault is not to blame for that. */
export function isTakenForFailure(replies: readonly Reply[]): boolean {
  return replies.some(({ mark }) => mark !== undefined && !isSlownessMark(mark))
}

/** Asks, as another caller each time, until a decision is made in the store again. */
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

/** @param at of the last fault, by performance.now() */
export function backSince(at: number, callers: readonly Caller[]): number {
  const first = callers
    .flatMap(({ replies }) => replies)
    .filter((reply: Reply) => isDecided(reply) && reply.at - reply.ms > at)
    .sort((a, b) => a.at - b.at)[0]
  return first ? first.at - at : Number.POSITIVE_INFINITY
}
