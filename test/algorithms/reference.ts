/**
 * An independent definition of each algorithm. It has no state, only the list of admitted requests, and answers one question: would
 * this cost be admitted at t? Every value of a reply is found by a search with this question. It is slow on purpose, and exact: products
 * and fractions use BigInt.
 */
import type { AlgorithmName } from '../../src/algorithms/index.ts'
import type { Rule } from '../../src/config/compile.ts'
import type { BoundRule, Evaluation, Outcome } from '../../src/script/evaluation.ts'
import { windowOf, windowsFromRequests } from './windows.ts'

/** An admitted request. */
export interface Admission {
  /** µs */
  at: number
  /** Units. */
  cost: number
}

type Admissions = readonly Admission[]

interface Definition {
  /** Whether this cost would be admitted at t after these admissions. */
  admits(list: Admissions, t: number, cost: number): boolean
  /** µs until a request that is admitted at t may depart. */
  delay?(list: Admissions, t: number): number
}

const definitions: Partial<Record<AlgorithmName, (rule: Rule) => Definition>> = {
  /** At most the limit in the same window. */
  'fixed-window': rule => ({
    admits: (list, t, cost) => {
      if (rule.quota.startsWithRequest) {
        const window = windowsFromRequests(rule.period, [...list, { at: t, cost }]).at(-1)!
        return unitsOf(window) <= rule.limit
      }
      const window = windowOf(rule, t)
      return unitsOf(list.filter(({ at }) => windowOf(rule, at) === window)) + cost <= rule.limit
    },
  }),

  /** If no end of a request is reported, all units stay in flight until a period after the latest admission, rounded down to ms. */
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

  /** At most the limit within the last period. */
  'sliding-log': ({ limit, period }) => ({
    admits: (list, t, cost) => unitsOf(list.filter(({ at }) => at > t - period)) + cost <= limit,
  }),

  /** The units of this window, plus the share of the previous one that the last period covers, rounded up to steps. */
  'sliding-window': rule => ({
    admits: (list, t, cost) => {
      const { limit, period } = rule
      const step = rule.quota.step!
      const window = windowOf(rule, t)
      const unitsIn = (index: number) => unitsOf(list.filter(({ at }) => windowOf(rule, at) === index))
      // A count above the limit was spent before the limit was lowered, and counts as the limit.
      const previous = BigInt(Math.min(unitsIn(window - 1), limit))
      const covered = BigInt(Math.ceil(((window + 1) * period - t) / step))
      const steps = BigInt(period / step)
      return BigInt(unitsIn(window) + cost) * steps + previous * covered <= BigInt(limit) * steps
    },
  }),

  /** In each interval that ends at t, at most the burst plus the units of the rate during the interval. */
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

  /** A token consists of `period` drops. Each microsecond adds `limit` drops, until the bucket is full. */
  'token-bucket': ({ limit, period, quota: { burst } }) => ({
    admits: (list, t, cost) => {
      const full = BigInt(burst) * BigInt(period)
      let [drops, filledAt] = [full, 0]
      const fillUntil = (at: number) => {
        drops += BigInt(at - filledAt) * BigInt(limit)
        if (drops > full) drops = full
        filledAt = at
      }
      for (const { at, cost: spent } of list) {
        fillUntil(at)
        drops -= BigInt(spent) * BigInt(period)
      }
      fillUntil(t)
      return drops >= BigInt(cost) * BigInt(period)
    },
  }),

  /** Units leave through an outlet, one after the other. Each occupies it for period / limit, and is in the bucket until that time ends. */
  'leaky-bucket': ({ limit, period, quota: { burst } }) => {
    // Times are in units of 1 / limit microseconds.
    const slot = BigInt(period)
    const partsOf = (at: number) => BigInt(at) * BigInt(limit)
    /** For each request, when the outlet is free again after it, and its units. */
    const occupations = (list: Admissions) => {
      let free = 0n
      return list.map(({ at, cost }) => {
        free = (free > partsOf(at) ? free : partsOf(at)) + BigInt(cost) * slot
        return { free, units: BigInt(cost) }
      })
    }
    return {
      admits: (list, t, cost) => {
        const inBucket = occupations(list).map(({ free, units }) => {
          const slotsLeft = ceilDiv(free - partsOf(t), slot)
          return slotsLeft < 0n ? 0n : slotsLeft < units ? slotsLeft : units
        })
        return inBucket.reduce((sum, units) => sum + units, BigInt(cost)) <= BigInt(burst)
      },
      delay: (list, t) => {
        const left = (occupations(list).at(-1)?.free ?? 0n) - partsOf(t)
        return left > 0n ? Number(ceilDiv(left, BigInt(limit))) : 0
      },
    }
  },
}

/** Division that rounds up, for b above 0. */
const ceilDiv = (a: bigint, b: bigint) => (a > 0n ? (a + b - 1n) / b : a / b)

function unitsOf(list: Admissions): number {
  return list.reduce((sum, { cost }) => sum + cost, 0)
}

/** Whether the algorithm has a definition in this file. A definition must be written without copying the model. */
export const hasDefinition = (algorithm: AlgorithmName) => algorithm in definitions

/** Computes the reply of one rule from its definition. The clock must not go back. */
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
   * The smallest wait after which this cost is admitted, if nothing else is spent. -1: not admitted even without earlier requests.
   *
   * Uses bisection: once a cost would be admitted, it stays so, because time only reduces what counts. Windows end, entries expire, the
   * covered share shrinks (and a window that becomes the previous one has the same weight), backlogs drain.
   */
  retryAfter(t: number, cost: number): number {
    const admits = (wait: number) => this.#definition.admits(this.#list, t + wait, cost)
    // A peek spends nothing, so it is always admitted.
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

  /** The largest cost that would be admitted at t. If a cost is admitted, every smaller one is too. */
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
   * The time until the whole budget could be spent at once. By then, depending on the algorithm, the backlog has drained, the token
   * bucket is full, the newest entry has expired, or no window counts any more.
   */
  resetAfter(t: number): number {
    return this.retryAfter(t, this.#budget)
  }

  /** @returns the delay until departure */
  spend(t: number, cost: number): number {
    const delay = this.#definition.delay?.(this.#list, t) ?? 0
    // If the whole budget is available, no earlier admission counts, and none will: time only reduces what counts.
    if (this.resetAfter(t) === 0) this.#list = []
    this.#list.push({ at: t, cost })
    return delay
  }
}

/** Decides several rules, all or nothing. */
export class ReferenceLimiter {
  /** By key and tag, which identify a record in the store. */
  readonly #lists = new Map<string, Admissions>()

  evaluate({ rules, now }: Pick<Evaluation, 'rules'> & { now: number }): Outcome {
    const checked = rules.map(boundRule => {
      const reference = this.of(boundRule)
      return { ...boundRule, reference, retryAfter: reference.retryAfter(now, boundRule.cost) }
    })
    const admitted = checked.every(({ mode, retryAfter }) => mode === 'shadow' || retryAfter === 0)
    const verdicts = checked.map(({ rule, key, mode, cost, reference, retryAfter }) => {
      const allowed = retryAfter === 0
      const delay = admitted && allowed && cost > 0 ? reference.spend(now, cost) : 0
      this.#lists.set(nameOf(key, rule), reference.list)
      const [remaining, resetAfter] = [reference.remaining(now), reference.resetAfter(now)]
      return { rule, mode, allowed, remaining, resetAfter, retryAfter, delay }
    })
    return { status: admitted ? 'admitted' : 'refused', plan: '', at: now, verdicts }
  }

  /** Removes units from the admissions at t, as if the request had cost less. */
  giveBack({ rule, key }: Pick<BoundRule, 'rule' | 'key'>, t: number, units: number): void {
    let back = units
    const kept = this.of({ rule, key }).list.map(({ at, cost }) => {
      const removed = at === t ? Math.min(back, cost) : 0
      back -= removed
      return { at, cost: cost - removed }
    })
    this.#lists.set(nameOf(key, rule), kept)
  }

  /** The reference of a rule for a key. */
  of({ rule, key }: Pick<BoundRule, 'rule' | 'key'>): Reference {
    return new Reference(rule, this.#lists.get(nameOf(key, rule)))
  }
}

const nameOf = (key: string, rule: Rule) => `${key} ${rule.tag}`
