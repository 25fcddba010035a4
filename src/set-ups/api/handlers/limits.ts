/** Limits by name. A refusal is a result, with status 200. Reservations are in reservations.ts, and units in flight in held-units.ts. */
import type { LimitRule } from '../../../config/compile.ts'
import { countsInFlight } from '../../../config/compile-rule.ts'
import type { CallGuard } from '../../../limiter/call-guard.ts'
import type { AdminStore } from '../../../ops/admin-store-shape.ts'
import { entryFor } from '../../../ops/audited.ts'
import { auditedCall } from '../../../ops/audited-call.ts'
import type { Entry } from '../../../ops/change.ts'
import { targetOf } from '../../../ops/limits.ts'
import { scopesForLimit } from '../../../scopes.ts'
import {
  type CostOptions,
  checkCost,
  checkCosts,
  checkIdentity,
  checkRule,
  type LimitIdentity,
} from '../../limits/arguments.ts'
import type { Held } from '../../limits/held.ts'
import type { LimitDecision, Limiter, LimitPause } from '../../limits/limiter-shape.ts'
import { pausedKey } from '../../limits/pausing.ts'
import { mustHaveAny } from '../authenticate.ts'
import { decideBody, identityBody, pauseBody, peekBody, refundBody, resetBody } from '../limit-schemas.ts'
import { ApiError, invalidInput } from '../problems.ts'
import { adminRoute, type Call, limitRoute, type Route, type Services } from '../route.ts'

interface Costs extends CostOptions {
  identity?: LimitIdentity
}

const decisionRoutes = [
  limitRoute({
    path: 'limits/{name}',
    body: decideBody,
    async run(call, services) {
      const name = checkCall(call, services)
      const { waitMs, hold, identity = {}, ...options } = call.body
      // Without `holding`, no limit of the config counts units in flight, so there is nothing to hold.
      const limiter = (hold && call.limiter.holding) || call.limiter
      const decision =
        waitMs === undefined
          ? await limiter.limit(name, identity, options)
          : await limiter.acquire(name, identity, { ...options, timeoutMs: waitMs, signal: call.gone() })
      return replyOf(decision, services)
    },
  }),
  limitRoute({
    path: 'limits/{name}/peek',
    body: peekBody,
    async run(call, services) {
      const name = checkCall(call, services)
      const { identity = {}, ...options } = call.body
      return documentOf(await call.limiter.peek(name, identity, options), services)
    },
  }),
  limitRoute({
    path: 'limits/{name}/refund',
    body: refundBody,
    async run(call, services) {
      const { receipt, cost } = call.body
      const rules = rulesOf(call, services)
      const name = call.params.name!
      const decision = at('/receipt', () => services.limits.receipts.decisionOf(receipt, name))
      if (cost !== undefined) at('/cost', () => checkCost(name, cost, rules, decision.costs))
      const refunded = await call.limiter.refund(decision, cost === undefined ? {} : { cost })
      mustBeMade(refunded)
      return { ...documentOf(refunded, services), receipt }
    },
  }),
]

const resetRoute = adminRoute({
  method: 'POST',
  path: 'limits/{name}/reset',
  scopes: ['limits:reset'],
  body: resetBody,
  async run(call, services) {
    const rules = rulesOf(call, services)
    const name = call.params.name!
    at('/identity', () => checkIdentity(name, call.body.identity ?? {}, rules))
    const { identity = {}, rule, numbers } = call.body
    if (rule !== undefined) at('/rule', () => checkRule(name, rule, rules))
    if (numbers) mustHaveAny(call.token, ['limits:numbers'], 'numbers')
    const names = rules.map(each => each.name).filter(each => rule === undefined || each === rule)
    const guard = auditing(call.store, {
      ...{ action: 'limits.reset', target: targetOf(name, identity), before: { rules: names } },
    })
    const chosen = rules.filter(each => names.includes(each.name))
    at('/numbers', () => services.limits.giveNumbers(name, chosen, numbers))
    const options = { ...(rule !== undefined && { rule }), ...(numbers && { numbers }) }
    const made = await services.limits.limiterFor(guard).reset(name, identity, options)
    mustBeMade(made, 'Repeat the request.')
    return documentOf(made, services)
  },
})

/** A token that can use a limit can pause it. */
const scopesOfPause = ({ name }: Call['params']) => scopesForLimit(name!)

const pauseRoutes = [
  adminRoute({
    method: 'POST',
    path: 'limits/{name}/pause',
    scopes: scopesOfPause,
    body: pauseBody,
    async run(call, services) {
      const { identity = {}, forMs, retryAfter } = call.body
      const name = checkPause(call, services, identity)
      if ((forMs === undefined) === (retryAfter === undefined))
        throw invalidInput('', 'Use one of these: forMs, or retryAfter.')
      const length = forMs === undefined ? { retryAfter: retryAfter! } : { forMs }
      return replyToPause(await pausing(call, services).pause(name, identity, length))
    },
  }),
  adminRoute({
    method: 'POST',
    path: 'limits/{name}/resume',
    scopes: scopesOfPause,
    body: identityBody,
    async run(call, services) {
      const { identity = {} } = call.body
      const name = checkPause(call, services, identity)
      return replyToPause(await pausing(call, services).resume(name, identity))
    },
  }),
]

/** @returns the name of the limit @throws ApiError */
function checkPause(call: Call, services: Services, identity: LimitIdentity): string {
  const rules = rulesOf(call, services)
  const name = call.params.name!
  at('/identity', () => pausedKey(name, identity, rules))
  return name
}

/** The limiter, whose pauses have the token as their author. */
const pausing = ({ store }: { store: AdminStore }, { limits }: Services): Limiter =>
  limits.limiterFor(undefined, (key, facts) => entryFor(store, key, facts))

function replyToPause({ limit, retryAfterMs, pausedUntil, degraded }: LimitPause) {
  mustBeMade({ degraded }, 'Repeat the request.')
  const paused = pausedUntil !== undefined
  return { limit, paused, retryAfterMs, ...(paused && { pausedUntil: isoOf(pausedUntil) }) }
}

const isoOf = (ms: number) => new Date(ms).toISOString()

/** Puts the entry of the audit trail into the run of a script. */
const auditing = (admin: AdminStore, entry: Entry): CallGuard => ({
  isFresh: () => true,
  on: store => ({
    ...store,
    run: async (calls, listener) =>
      await store.run(
        await Promise.all(calls.map(call => ('script' in call ? auditedCall(admin, call, entry) : call))),
        listener,
      ),
  }),
  passFailure() {},
})

export const limitsRoutes: readonly Route[] = [...decisionRoutes, resetRoute, ...pauseRoutes]

/** @throws ApiError for an unknown limit */
export function rulesOf({ params }: Call, { config: { limits } }: Services): readonly LimitRule[] {
  const rules = limits.get(params.name!)
  if (rules) return rules
  const names = [...limits.keys()].join(', ') || 'none'
  throw new ApiError('not-found', `The config has no such limit. Limits: ${names}.`)
}

/** @returns the name of the limit @throws ApiError for arguments that the limiter would not accept */
export function checkCall(call: Call<Costs>, services: Services): string {
  const name = call.params.name!
  const rules = rulesOf(call, services)
  const { identity = {}, numbers, ...options } = call.body
  at('/identity', () => checkIdentity(name, identity, rules))
  at('/numbers', () => services.limits.giveNumbers(name, rules, numbers))
  at('', () => checkCosts(name, options, rules))
  return name
}

/** @throws ApiError for a TypeError of the limiter, which says what is wrong */
export function at<T>(pointer: string, check: () => T): T {
  try {
    return check()
  } catch (error) {
    throw error instanceof TypeError ? invalidInput(pointer, error.message) : error
  }
}

export function replyOf(decision: LimitDecision & Partial<Held>, services: Services) {
  // The end of the caller's work is unknown, so nothing stays in flight that the receipt does not hold. A reservation stays.
  decision.release()
  const { renewWithinMs } = decision
  const receipt = services.limits.receipts.receiptOf(decision)
  return { ...documentOf(decision, services), ...(renewWithinMs && { renewWithinMs }), receipt }
}

/** The decision as the service binding returns it (rpc/service.ts), without its receipt, and times as ISO 8601. */
export function documentOf(decision: LimitDecision, { config: { limits } }: Services) {
  const { limit, allowed, delayMs, retryAfterMs, pausedUntil, changedRules, degraded } = decision
  const inFlight = new Set(
    limits
      .get(limit)!
      .filter(countsInFlight)
      .map(({ name }) => name),
  )
  const rules = decision.rules.map(rule => (inFlight.has(rule.name) ? { ...rule, inFlight: true } : rule))
  return {
    ...{ success: allowed, limit, allowed, delayMs, retryAfterMs, rules },
    ...(pausedUntil !== undefined && { pausedUntil: isoOf(pausedUntil) }),
    ...(changedRules && { changedRules }),
    ...(degraded && { degraded }),
  }
}

/** @throws ApiError for a change that the store has not confirmed */
export function mustBeMade(
  { degraded }: { degraded?: LimitDecision['degraded'] | undefined },
  fix = 'Repeat the request: it has an effect only once.',
): void {
  if (degraded === undefined) return
  throw new ApiError('store-unavailable', `The store has not confirmed this (${degraded}). ${fix}`, {
    headers: { 'retry-after': '1' },
    extra: { change: 'unknown' },
  })
}
