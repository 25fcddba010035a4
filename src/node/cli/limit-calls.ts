/** Calls of a limit by name for a command, by the store. limit-calls-by-api.ts: by the HTTP API of a gateway. */
import { setTimeout as sleep } from 'node:timers/promises'
import { SYSTEM_CLOCK } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { limitOf } from '../../ops/limits.ts'
import type { CostOptions } from '../../set-ups/limits/arguments.ts'
import type { LimitDecision } from '../../set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../set-ups/limits/limiter-on-store.ts'
import { createReceipts } from '../../set-ups/rpc/receipt.ts'
import type { RuleResult } from '../../set-ups/rule-result.ts'
import type { Store } from '../../store/store.ts'
import { createSwitchBoard } from '../../switches/live.ts'

/** What is to be taken. */
export interface LimitCall extends CostOptions {
  limit: string
  by: Readonly<Record<string, string>>
}

export interface DecisionDocument {
  limit: string
  allowed: boolean
  delayMs: number
  /** -1: never. */
  retryAfterMs: number
  pausedUntil?: string
  rules: readonly RuleResult[]
  /** Of a refund: the rules that give nothing back, because a deployment has changed or removed them since. */
  changedRules?: readonly string[]
  degraded?: string
  /** For `limits refund`. Absent: nothing was spent. */
  receipt?: unknown
}

export interface LimitCalls {
  /** Decides once, and spends. */
  take(call: LimitCall): Promise<DecisionDocument>
  /** Waits for its turn, and holds units in flight until `release`. @param timeoutMs can be infinite */
  acquire(call: LimitCall, timeoutMs: number): Promise<DecisionDocument>
  refund(limit: string, receipt: unknown, cost?: number): Promise<Omit<DecisionDocument, 'receipt'>>
  /** Ends what `acquire` holds, and sends what is left to send. */
  release(): Promise<void>
}

/** How long a command waits at its end for the store (ms). */
const MAX_END_MS = 3000

/** Waits for the end of a command's calls, but not for ever. */
export async function atMost(ending: Promise<unknown>): Promise<void> {
  const timeout = new AbortController()
  const { signal } = timeout
  await Promise.race([ending, sleep(MAX_END_MS, undefined, { signal }).catch(() => {})])
  timeout.abort()
}

/** @param onLost called when a trip to the store has failed */
export function callsByStore(
  { decisions }: Pick<AdminStore, 'decisions'>,
  config: Config,
  onLost: () => void,
): LimitCalls {
  const store: Store = {
    ...decisions,
    run: (...args) =>
      decisions.run(...args).catch(error => {
        onLost()
        throw error
      }),
  }
  const tasks: Promise<unknown>[] = []
  // A command has time to wait for a slow store.
  const { breaker: _, ...patient } = config
  const limiter = createLimiterOnStore(patient, store, {
    board: createSwitchBoard(SYSTEM_CLOCK),
    variables: process.env,
    waitUntil: task => void tasks.push(task),
  })
  const receipts = createReceipts(config.limits)
  let held: LimitDecision | undefined

  const documentOf = (decision: LimitDecision): DecisionDocument => {
    const { limit, allowed, delayMs, retryAfterMs, pausedUntil, rules, changedRules, degraded } = decision
    return {
      ...{ limit, allowed, delayMs, retryAfterMs, rules },
      ...(pausedUntil !== undefined && { pausedUntil: new Date(pausedUntil).toISOString() }),
      ...(changedRules && { changedRules }),
      ...(degraded && { degraded }),
    }
  }
  const withReceipt = (decision: LimitDecision): DecisionDocument => ({
    ...documentOf(decision),
    ...(decision.allowed && { receipt: receipts.receiptOf(decision) }),
  })

  return {
    take: ({ limit, by, ...costs }) =>
      withUsageErrors(async () => {
        if (limitOf(config, limit).some(countsInFlight)) throw cannotTake(limit)
        return withReceipt(await limiter.limit(limit, by, costs))
      }),

    acquire: ({ limit, by, ...costs }, timeoutMs) =>
      withUsageErrors(async () => {
        limitOf(config, limit)
        held = await limiter.acquire(limit, by, { ...costs, timeoutMs })
        return withReceipt(held)
      }),

    refund: (limit, receipt, cost) =>
      withUsageErrors(async () => {
        limitOf(config, limit)
        const decision = receipts.decisionOf(receipt)
        if (decision.limit !== limit)
          throw new AdminError('usage', `The receipt is of another limit: '${decision.limit}'.`)
        const refunded = await limiter.refund(decision, cost === undefined ? {} : { cost })
        if (refunded.degraded)
          throw new AdminError('store', `The store has not confirmed this (${refunded.degraded}). Try again.`)
        return documentOf(refunded)
      }),

    async release() {
      held?.release()
      await atMost(Promise.all([limiter.close(), Promise.allSettled(tasks)]))
    },
  }
}

export const cannotTake = (limit: string) =>
  new AdminError(
    'usage',
    `The limit '${limit}' counts units in flight, which end with the work. Use limits acquire ${limit} -- <command>.`,
  )

/** Turns a TypeError of the limiter into an AdminError `usage` with the same message. */
async function withUsageErrors<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call()
  } catch (error) {
    throw error instanceof TypeError ? new AdminError('usage', error.message) : error
  }
}
