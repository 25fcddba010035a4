/**
 * What each algorithm means, in another style than the models. There is no state, only the list of what was admitted,
 * and one question about it: would this cost be admitted at t? All that a reply tells is searched for with that
 * question. Slow on purpose, and exact: BigInt wherever there is a product or a fraction.
 */
import type { AlgorithmName } from '../../src/algorithms/index.ts'
import type { Rule } from '../../src/config/compile.ts'
import type { BoundRule, Evaluation, Outcome } from '../../src/script/evaluation.ts'
import { windowOf } from './windows.ts'

/** When (µs), and how many units. */
export interface Admission {
  at: number
  cost: number
}

type Admissions = readonly Admission[]

interface Definition {
  /** Would this cost be admitted at t, given what was admitted until then? */
  admits(list: Admissions, t: number, cost: number): boolean
  /** µs until what is admitted at t may depart. */
  delay?(list: Admissions, t: number): number
}

const definitions: Partial<Record<AlgorithmName, (rule: Rule) => Definition>> = {
  /** No more than the limit with the same window. */
  'fixed-window': rule => ({
    admits: (list, t, cost) => {
      const window = windowOf(rule, t)
      return unitsOf(list.filter(({ at }) => windowOf(rule, at) === window)) + cost <= rule.limit
    },
  }),

  /** Without word of an ending, units are in flight until a period after the last of them, to the millisecond. */
  concurrency: ({ limit, period }) => ({
    admits: (list, t, cost) => {
      let [units, until] = [cost, t]
      for (const admission of list.toReversed()) {
        if (Math.floor((admission.at + period) / 1000) * 1000 <= until) break
        units += admission.cost
        until = admission.at
      }
      return units <= limit
    },
  }),

  /** No more than the limit later than a period ago. */
  'sliding-log': ({ limit, period }) => ({
    admits: (list, t, cost) => unitsOf(list.filter(({ at }) => at > t - period)) + cost <= limit,
  }),

  /** This window, and the share of the one before that the last period covers, in steps begun. */
  'sliding-window': rule => ({
    admits: (list, t, cost) => {
      const { limit, period } = rule
      const step = rule.quota.step!
      const window = windowOf(rule, t)
      const unitsIn = (index: number) => unitsOf(list.filter(({ at }) => windowOf(rule, at) === index))
      // More than the limit was spent before the limit was lowered, and weighs no more than it.
      const previous = BigInt(Math.min(unitsIn(window - 1), limit))
      const covered = BigInt(Math.ceil(((window + 1) * period - t) / step))
      const steps = BigInt(period / step)
      return BigInt(unitsIn(window) + cost) * steps + previous * covered <= BigInt(limit) * steps
    },
  }),

  /** Never more than the burst and what the rate gives meanwhile, in each stretch that ends now. */
  gcra: ({ limit, period, quota: { burst } }) => ({
    admits: (list, t, cost) => {
      let units = cost
      if (units > burst) return false
      return list.toReversed().every(admission => {
        units += admission.cost
        return BigInt(units - burst) * BigInt(period) <= BigInt(t - admission.at) * BigInt(limit)
      })
    },
  }),

  /** Tokens of `period` drops each, of which `limit` fall in a microsecond, until the bucket is full. */
  'token-bucket': ({ limit, period, quota: { burst } }) => ({
    admits: (list, t, cost) => {
      const full = BigInt(burst) * BigInt(period)
      let [drops, filledAt] = [full, 0]
      const fillUntil = (at: number) => {
        drops += BigInt(at - filledAt) * BigInt(limit)
        if (drops > full) drops = full
        filledAt = at
      }
      for (const { at, cost: taken } of list) {
        fillUntil(at)
        drops -= BigInt(taken) * BigInt(period)
      }
      fillUntil(t)
      return drops >= BigInt(cost) * BigInt(period)
    },
  }),

  /** Each unit has the outlet to itself for period / limit, one after the other, and is in the bucket until then. */
  'leaky-bucket': ({ limit, period, quota: { burst } }) => {
    // Times are told in parts of a microsecond, `limit` to one.
    const slot = BigInt(period)
    const partsOf = (at: number) => BigInt(at) * BigInt(limit)
    /** When the outlet is free again after each request, and for how many units it was taken. */
    const taken = (list: Admissions) => {
      let free = 0n
      return list.map(({ at, cost }) => {
        free = (free > partsOf(at) ? free : partsOf(at)) + BigInt(cost) * slot
        return { free, units: BigInt(cost) }
      })
    }
    return {
      admits: (list, t, cost) => {
        const still = taken(list).map(({ free, units }) => {
          const slotsLeft = ceilDiv(free - partsOf(t), slot)
          return slotsLeft < 0n ? 0n : slotsLeft < units ? slotsLeft : units
        })
        return still.reduce((sum, units) => sum + units, BigInt(cost)) <= BigInt(burst)
      },
      delay: (list, t) => {
        const left = (taken(list).at(-1)?.free ?? 0n) - partsOf(t)
        return left > 0n ? Number(ceilDiv(left, BigInt(limit))) : 0
      },
    }
  },
}

/** For b above 0. */
const ceilDiv = (a: bigint, b: bigint) => (a > 0n ? (a + b - 1n) / b : a / b)

function unitsOf(list: Admissions): number {
  return list.reduce((sum, { cost }) => sum + cost, 0)
}

/** A new algorithm has none until what it admits is written down, without a look at its twins. */
export const hasDefinition = (algorithm: AlgorithmName) => algorithm in definitions

/** What one rule would reply, found by asking its definition. The clock only goes forward. */
export class Reference {
  readonly rule: Rule
  readonly #definition: Definition
  readonly #budget: number
  #list: Admission[]

  constructor(rule: Rule, list: Admissions = []) {
    this.rule = rule
    const define = definitions[rule.algorithm]
    if (!define) throw new Error(`${rule.algorithm} has no definition here.`)
    this.#definition = define(rule)
    this.#budget = rule.quota.burst
    this.#list = [...list]
  }

  get list(): Admissions {
    return this.#list
  }

  /**
   * The smallest wait after which this cost is admitted, if nobody spends meanwhile; -1: not even by an idle rule.
   *
   * By bisection, as what once is admitted stays so: of what was spent, time only takes away. Windows end, entries
   * pass, the covered share shrinks (and a window that becomes the previous one weighs what it did), backlogs drain.
   */
  retryAfter(t: number, cost: number): number {
    const admits = (wait: number) => this.#definition.admits(this.#list, t + wait, cost)
    // A peek takes nothing, so nothing can be in its way.
    if (cost === 0) return 0
    if (!this.#definition.admits([], t, cost)) return -1
    if (admits(0)) return 0
    let [refused, admitted] = [0, 1]
    while (!admits(admitted)) [refused, admitted] = [admitted, 2 * admitted]
    while (admitted - refused > 1) {
      const middle = Math.floor((refused + admitted) / 2)
      if (admits(middle)) admitted = middle
      else refused = middle
    }
    return admitted
  }

  /** The largest cost that would be admitted now: where a cost is, a smaller one is too. */
  remaining(t: number): number {
    let [admitted, refused] = [0, this.#budget + 1]
    while (refused - admitted > 1) {
      const middle = Math.floor((admitted + refused) / 2)
      if (this.#definition.admits(this.#list, t, middle)) admitted = middle
      else refused = middle
    }
    return admitted
  }

  /**
   * The whole budget is back when all of it could be spent at once. That is also when a backlog has drained (`gcra`,
   * `leaky-bucket`), the bucket is full, the newest entry has passed, and neither window weighs anything.
   */
  resetAfter(t: number): number {
    return this.retryAfter(t, this.#budget)
  }

  /** @returns the delay until departure */
  spend(t: number, cost: number): number {
    const delay = this.#definition.delay?.(this.#list, t) ?? 0
    // Where the whole budget is there nothing of the past counts, nor will it ever: time only takes away.
    if (this.resetAfter(t) === 0) this.#list = []
    this.#list.push({ at: t, cost })
    return delay
  }
}

/** The decision over several rules: all of what each would admit is spent, or nothing. */
export class ReferenceLimiter {
  /** By key and tag: what is one record in the store. */
  readonly #lists = new Map<string, Admissions>()

  evaluate({ rules, now }: Pick<Evaluation, 'rules'> & { now: number }): Outcome {
    const asked = rules.map(counted => {
      const reference = this.of(counted)
      return { ...counted, reference, retryAfter: reference.retryAfter(now, counted.cost) }
    })
    const admitted = asked.every(({ mode, retryAfter }) => mode === 'shadow' || retryAfter === 0)
    const verdicts = asked.map(({ rule, key, mode, cost, reference, retryAfter }) => {
      const allowed = retryAfter === 0
      const delay = admitted && allowed && cost > 0 ? reference.spend(now, cost) : 0
      this.#lists.set(nameOf(key, rule), reference.list)
      const [remaining, resetAfter] = [reference.remaining(now), reference.resetAfter(now)]
      return { rule, mode, allowed, remaining, resetAfter, retryAfter, delay }
    })
    return { status: admitted ? 'admitted' : 'refused', plan: '', at: now, verdicts }
  }

  /** Takes units off what was admitted at t: as if it had been asked for without them. */
  giveBack({ rule, key }: Pick<BoundRule, 'rule' | 'key'>, t: number, units: number): void {
    let back = units
    const kept = this.of({ rule, key }).list.map(({ at, cost }) => {
      const taken = at === t ? Math.min(back, cost) : 0
      back -= taken
      return { at, cost: cost - taken }
    })
    this.#lists.set(nameOf(key, rule), kept)
  }

  /** How a rule stands for the one it is counted for. */
  of({ rule, key }: Pick<BoundRule, 'rule' | 'key'>): Reference {
    return new Reference(rule, this.#lists.get(nameOf(key, rule)))
  }
}

const nameOf = (key: string, rule: Rule) => `${key} ${rule.tag}`
