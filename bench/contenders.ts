/** The three contenders, each as a function of the caller: Sluice, six calls of @upstash/ratelimit, and a single PING. */

import { Ratelimit } from '@upstash/ratelimit'
import { checkedConfig } from '../src/config/check/check.ts'
import { toDecision } from '../src/limiter/decision.ts'
import { ALL_PARTS } from '../src/set-ups/http/all-parts.ts'
import { createIdentifier } from '../src/set-ups/http/identify.ts'
import { createMatch } from '../src/set-ups/http/match.ts'
import { evaluateInStore, evaluationOf } from './evaluate.ts'
import { type Scale, type SixLimits, scaled, sixRules, WINDOWS } from './rules.ts'
import type { Caller, Identity } from './test-bed.ts'
import type { Transport } from './transport.ts'

/** @returns whether the request is admitted; `mixed` if some limits were spent and others refused */
export type Contender<C extends Identity = Caller> = (caller: C) => Promise<'allowed' | 'refused' | 'mixed'>

/** The steps of the gateway (src/set-ups/gateway/app.ts) up to the decision, including the digest of the key. */
export function sluice({ store }: Transport, scale: Scale, limits: SixLimits = 'as shipped'): Contender {
  const config = checkedConfig({
    origin: 'https://api.example.com',
    plans: ['free', 'pro'],
    rules: sixRules(scale, limits),
  })
  const match = createMatch(config, ALL_PARTS.createMatchByRequest)
  const { identify } = createIdentifier(config, ALL_PARTS)

  return async ({ request }) => {
    const matched = match(request)
    const caller = await identify(request, matched)
    const decision =
      caller.refusal ??
      toDecision(await evaluateInStore(store, await evaluationOf(request, caller, matched, config)))
    if (decision.kind === 'denied') return 'refused'
    if (decision.kind !== 'allowed' || decision.verdicts.length !== 6) {
      throw new Error(`Sluice did not evaluate six limits: ${JSON.stringify(decision)}`)
    }
    return 'allowed'
  }
}

/** The algorithms that both sides have, by their name in Sluice. Like is compared with like. */
export const CALLS = { 'sliding-window': 'slidingWindow', 'fixed-window': 'fixedWindow' } as const

export type Comparable = keyof typeof CALLS

interface SixCallsOptions {
  limits: Comparable
  /** One after another as in the documentation of the package, or all at once. */
  order: 'in turn' | 'at once'
  /** The cache of refused identifiers, on by default. */
  cache?: boolean
}

/** Six limits of @upstash/ratelimit, with its defaults and those of its client. No API key is checked. */
export function sixCalls(
  { redis }: Transport,
  scale: Scale,
  { limits, order, cache = true }: SixCallsOptions,
): Contender {
  const limiters = WINDOWS.map(
    ({ period, limit }) =>
      new Ratelimit({
        redis,
        limiter: Ratelimit[CALLS[limits]](scaled(limit, scale), period),
        prefix: `rl:${period}`,
        ...(cache ? {} : { ephemeralCache: false }),
      }),
  )

  return async ({ consumer, address }) => {
    const calls = [consumer, address].flatMap(id => limiters.map(limiter => () => limiter.limit(id)))
    return outcomeOf(order === 'at once' ? await Promise.all(calls.map(call => call())) : await inTurn(calls))
  }
}

/** Combines several answers of @upstash/ratelimit. */
export function outcomeOf(answers: readonly Awaited<ReturnType<Ratelimit['limit']>>[]) {
  if (answers.some(({ reason }) => reason === 'timeout')) throw new Error('@upstash/ratelimit timed out')
  const passed = answers.filter(({ success }) => success).length
  return passed === answers.length ? 'allowed' : passed === 0 ? 'refused' : 'mixed'
}

/** A PING by the client that Sluice uses, with the same settings. */
export function ping({ store }: Transport): Contender {
  return async () => {
    await store.ping()
    return 'allowed'
  }
}

class UnexpectedAnswer extends Error {}

/** Makes one decision about each caller. @throws UnexpectedAnswer if an answer is not the expected one */
export async function eachOnce<C extends Identity>(
  contender: Contender<C>,
  callers: readonly C[],
  expected: 'allowed' | 'refused',
): Promise<void> {
  for (const caller of callers) {
    const answer = await contender(caller)
    if (answer !== expected) throw new UnexpectedAnswer(`A request that should be ${expected} was ${answer}.`)
  }
}

/**
 * Runs a measurement that must fit into one second, because then a new window of the limits begins. If an answer is not the expected one,
 * the measurement took too long, as can happen while other processes use the machine. It is then repeated with new callers.
 */
export async function withinSecond<T>(measure: () => Promise<T>, left = 20): Promise<T> {
  try {
    return await measure()
  } catch (error) {
    if (!(error instanceof UnexpectedAnswer) || left === 0) throw error
    return await withinSecond(measure, left - 1)
  }
}

export async function inTurn<T>(calls: readonly (() => Promise<T>)[]): Promise<T[]> {
  const answers: T[] = []
  for (const call of calls) answers.push(await call())
  return answers
}
