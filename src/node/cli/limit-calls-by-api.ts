/** Calls of a limit by name for a command, by the HTTP API of a gateway. */
import { SYSTEM_TIMER, type Timer } from '../../clock.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { RuleResult } from '../../set-ups/rule-result.ts'
import type { ApiClient } from './api-client.ts'
import { atMost, cannotTake, type DecisionDocument, type LimitCall, type LimitCalls } from './limit-calls.ts'

/** A request waits no longer than this (ms): shorter than the deadline of the client. */
const MAX_WAIT_MS = 10_000

/** While a limit is paused, the API is asked again after this time (ms). */
const MAX_PAUSED_MS = 60_000

/** While all units are in flight, the API is asked again after this time (ms): they can become free at any moment. */
const MAX_IN_FLIGHT_MS = 500

interface HeldReceipt {
  limit: string
  /** Units, by rule name. */
  held: Readonly<Record<string, number>>
}

interface ApiDecision extends Omit<DecisionDocument, 'rules'> {
  rules: readonly (RuleResult & { inFlight?: true })[]
  /** Set if units in flight are held. */
  renewWithinMs?: number
}

/**
 * @param onLost called with the cause when a renewal has failed
 * @param timer for the waits between two attempts, which can be longer than a timer of Node
 */
export function callsByApi(
  api: ApiClient,
  onLost: (cause: string) => void = () => {},
  timer: Timer = SYSTEM_TIMER,
): LimitCalls {
  const sleep = (ms: number) => new Promise<void>(resolve => void timer(ms, resolve))
  /** Of the units in flight that the command holds. */
  let receipt: HeldReceipt | undefined
  let renewals: NodeJS.Timeout | undefined
  /** Set while units that ended are taken again. */
  let retaking: Promise<void> | undefined
  let isOver = false

  async function decide({ limit, by, ...costs }: LimitCall, options: object = {}): Promise<ApiDecision> {
    const body = { identity: by, ...costs, ...options }
    return await api.call<ApiDecision>('decide', { params: { name: limit }, body })
  }

  const tell = (verb: 'renew' | 'release') =>
    api.call(verb, { params: { name: receipt!.limit }, body: { receipt } })

  function keep(call: LimitCall, held: ApiDecision): void {
    receipt = held.receipt as HeldReceipt
    renewals = setInterval(() => {
      tell('renew').catch((error: unknown) => {
        // The release has overtaken it.
        if (isOver) return
        if (!(error instanceof AdminError && error.kind === 'refused'))
          return onLost('The API does not answer.')
        retaking ??= retake(call, held)
          .catch(() => onLost('The API does not answer.'))
          .finally(() => {
            retaking = undefined
          })
      })
    }, held.renewWithinMs! / 3)
  }

  /** The units have ended, because the API was away or this machine slept. Takes the same again, if there is room. */
  async function retake(call: LimitCall, { rules }: ApiDecision): Promise<void> {
    const { held } = receipt!
    const { limit, by, numbers } = call
    const cost = Object.fromEntries(rules.map(({ name }) => [name, held[name] ?? 0]))
    const again = await decide({ limit, by, ...(numbers && { numbers }) }, { cost, hold: true })
    if (again.renewWithinMs) receipt = again.receipt as HeldReceipt
    else onLost('The units were not renewed in time.')
  }

  return {
    async take(call) {
      const { limit, by, numbers } = call
      const { rules } = await api.call<ApiDecision>('peek', {
        params: { name: limit },
        body: { identity: by, numbers },
      })
      if (rules.some(({ inFlight }) => inFlight)) throw cannotTake(limit)
      return shown(await decide(call))
    },

    async acquire(call, timeoutMs) {
      const deadline = performance.now() + timeoutMs
      for (;;) {
        const left = Math.max(0, deadline - performance.now())
        const waitMs = Math.floor(Math.min(left, MAX_WAIT_MS))
        const decision = await decide(call, { waitMs, hold: true })
        if (decision.renewWithinMs) keep(call, decision)
        const { allowed, pausedUntil } = decision
        const dueMs = dueAfter(decision)
        if (allowed || dueMs < 0 || dueMs > deadline - performance.now()) return shown(decision)
        await sleep(pausedUntil === undefined ? dueMs : Math.min(dueMs, MAX_PAUSED_MS))
      }
    },

    refund: async (limit, receipt, cost) =>
      shown(await api.call<ApiDecision>('refund', { params: { name: limit }, body: { receipt, cost } })),

    async release() {
      if (!receipt) return
      isOver = true
      clearInterval(renewals)
      const end = () => tell('release')
      // Without a reply, the units are free after their ttl.
      await atMost(
        Promise.resolve(retaking)
          .then(() => end().catch(end))
          .catch(() => {}),
      )
    },
  }
}

/** When it may be worth another try (ms). Negative: never. */
function dueAfter({ retryAfterMs, pausedUntil, rules }: ApiDecision): number {
  const refusing = rules.filter(({ mode, allowed }) => mode === 'enforce' && !allowed)
  const isWaitingForOthers =
    pausedUntil === undefined && refusing.length > 0 && refusing.every(({ inFlight }) => inFlight)
  return isWaitingForOthers ? Math.min(retryAfterMs, MAX_IN_FLIGHT_MS) : retryAfterMs
}

/** The fields that both ways have. */
function shown(decision: ApiDecision): DecisionDocument {
  const { limit, allowed, delayMs, retryAfterMs, pausedUntil, rules, degraded, receipt } = decision
  return {
    ...{ limit, allowed, delayMs, retryAfterMs, rules },
    ...(pausedUntil && { pausedUntil }),
    ...(degraded && { degraded }),
    ...(allowed && { receipt }),
  }
}
