/**
 * The decision of main.lua over plain memory, with the TypeScript models. It is the script's specification in
 * the parity tests, and replays traffic without a store. Lua twin: src/lua/main.lua, same steps in the same order.
 */
import type { State } from '../algorithms/algorithm.ts'
import { algorithms } from '../algorithms/index.ts'
import type { Rule } from '../config/compile-rule.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import {
  isBlocked,
  type Override,
  type OverrideNumbers,
  parseConsumer,
  parseCredential,
} from '../store/records.ts'
import type { CountedRule } from './count.ts'
import { type Counted, countInMemory } from './memory.ts'
import { type Evaluation, type Outcome, type Who, withAgreement } from './wire.ts'

export class Model {
  /** What the store would hold: rule records by state key and tag. */
  readonly #states = new Map<string, Map<string, State>>()
  /** Records of credentials and consumers, and pointers, by key. */
  readonly #records = new Map<string, string>()

  setRecord(key: string, text: string): void {
    this.#records.set(key, text)
  }

  evaluate({ rules, who, plans, now, spentAt }: Evaluation & { now: number }): Outcome {
    if (who?.kind === 'lookup') {
      const consumer = this.#records.get(who.pointerKey)
      const status = consumer === undefined ? 'unknown-credential' : 'admitted'
      return { status, plan: '', at: 0, verdicts: [], ...(consumer !== undefined && { consumer }) }
    }
    const caller = this.#identify(who, now)
    const { isBad = false, isOut = false, consumer, overrides = [] } = caller ?? {}
    // A plan that the config does not know counts as the default plan.
    const plan = !caller || isBad ? '' : plans.includes(caller.plan) ? caller.plan : plans[0]!

    const applying = rules
      .filter(({ rule: { on, match } }) =>
        on === 'auth-failure' ? true : !isBad && !isOut && (match.plans?.includes(plan) ?? true),
      )
      .flatMap(counted => overridden(counted, overrides, now))
    const asked = applying.map(({ counted, told }) => {
      const { key } = counted
      const named = consumer === undefined ? key : key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`)
      const isPeek = !isBad && counted.rule.on === 'auth-failure'
      return { counted: { ...counted, key: named }, told, isPeek }
    })
    // A blocked consumer spends nothing.
    const { admitted, verdicts } = countInMemory(algorithms, this.#states, asked, now, spentAt)
    if (admitted && isOut) return { status: 'blocked', plan: '', at: now, verdicts: [] }

    const status = !admitted ? 'refused' : isBad ? 'unknown-credential' : 'admitted'
    return { status, plan, at: now, verdicts: withAgreement(verdicts), ...(consumer && { consumer }) }
  }

  #identify(who: Exclude<Who, { kind: 'lookup' }> | undefined, now: number): Caller | undefined {
    if (!who) return undefined
    if (who.kind === 'failed') return BAD
    const consumer = who.kind === 'pointer' ? this.#records.get(who.pointerKey) : undefined
    if (who.kind === 'pointer' && consumer === undefined) return BAD
    const named = (key: string) =>
      consumer === undefined ? key : key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`)
    const record = parseConsumer(this.#records.get(named(who.consumerKey)) ?? '')
    const { plan, overrides } = record
    const isOut = isBlocked(record, now)
    const learnt = consumer === undefined ? {} : { consumer }
    if (who.kind === 'token') return { plan: who.plan || (plan ?? ''), isOut, overrides }
    const credential = parseCredential(this.#records.get(named(who.credentialKey)) ?? '')
    if (!credential) return { ...BAD, ...learnt }
    return { plan: credential.plan ?? plan ?? '', isOut, overrides, ...learnt }
  }
}

interface Caller {
  isBad?: boolean
  plan: string
  /** Blocked, and its time has not passed. */
  isOut: boolean
  overrides: readonly Override[]
  /** Learnt of the store. */
  consumer?: string
}

const BAD: Caller = { isBad: true, plan: '', isOut: false, overrides: [] }

/** A rule as this consumer has it: to count by, and as it is told. Nothing where it is off for them. */
function overridden(counted: CountedRule, overrides: readonly Override[], now: number): Counted[] {
  const { rule, cost } = counted
  const override = rule.takesOverrides && overrides.find(({ family }) => family === rule.family)
  if (!override || (override.until !== undefined && override.until <= now)) return [{ counted, told: rule }]
  const { numbers } = override
  const { mode = counted.mode } = counted.staysShadow ? {} : override
  const own = numbers ? withNumbers(rule, numbers) : rule
  if (cost < 0) return [{ counted: { ...counted, rule: own }, told: rule }]
  if (mode === 'off') return []
  const { limit = rule.limit, burst = rule.quota.burst } = numbers ?? {}
  return [
    { counted: { ...counted, mode, rule: own }, told: { ...rule, limit, quota: { ...rule.quota, burst } } },
  ]
}

function withNumbers(
  rule: Rule,
  { tag, limit, burst, quotaLimit, quotaPeriod, third }: OverrideNumbers,
): Rule {
  const step = rule.algorithm === 'sliding-window' && third !== undefined ? { step: third } : {}
  return {
    ...rule,
    tag,
    limit,
    quota: { ...rule.quota, limit: quotaLimit, period: quotaPeriod, burst, ...step },
  }
}
