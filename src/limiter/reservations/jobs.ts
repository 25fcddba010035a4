/**
 * Jobs: responses and batches that a model works on after the reply to their creation. The creation costs its estimate, because what it will cost
 * is not known yet. The store keeps how it was counted, under the id of the job and in the keys of its caller. When a later reply says what the
 * job has cost, that replaces the estimate, once.
 *
 * A job whose cost no reply says keeps its estimate, also with `onUnsettled: 'release'`: its caller could get what the model has made in other
 * ways. It is kept for longer than the API keeps responses.
 *
 *     value    { at, plan?, consumerKey?, rules: [[name, tag, mode, key, units, numbers of an override or ''], …] } as JSON
 */
import type { Background } from '../../background.ts'
import type { Timer } from '../../clock.ts'
import type { Rule } from '../../config/compile-rule.ts'
import { Lru } from '../../lru.ts'
import { restoreScript } from '../../script/built-scripts.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import type { Engine } from '../engine-shape.ts'
import { type PreparedCall, prepareLookUp, prepareSettle } from '../prepared-call.ts'
import { settlementOf } from './outbox.ts'
import { type ActualOf, amountsOf, type Reservation } from './reservation.ts'

/** OpenAI keeps responses for 30 days. */
const KEEP_SECONDS = 31 * 86_400

/** A call that has failed is repeated after these times (ms). A Worker ends 30 s after its reply. */
const REPEAT_AFTER_MS = [2000, 8000]

/** Jobs of which this isolate knows that their cost is settled. */
const MAX_SETTLED = 5000

/** A test compares the digests with the text. */
export const keepScript = /* @__PURE__ */ restoreScript({
  text: "redis.call('SETEX', KEYS[1], ARGV[1], ARGV[2])",
  sha1: {
    keyLocking: '987c1f5e28e680ed2d6778daf4dfc4da13c04507',
    plain: '4460f729426227e4365bcf57562c2d4adc31562d',
  },
})

export interface Jobs {
  /** Keeps a job, whose creation is settled as `actualOf` says. @param key of `jobKey` */
  keep(
    key: string,
    reservation: Reservation,
    actualOf: ActualOf | undefined,
    background: Background,
  ): Promise<void>
  /** Settles a job whose cost is known, unless that was done before, by any isolate. */
  settle(key: string, actualOf: ActualOf, background: Background): Promise<void>
}

interface JobsOptions {
  engine: Pick<Engine, 'change'>
  ruleSet: RuleSet
  /** Of the config. */
  rules: readonly Rule[]
  timer: Timer
  /** The time of this machine (ms). */
  wallClock(): number
}

interface Kept extends Pick<Reservation, 'plan' | 'consumerKey'> {
  at: number
  rules: [
    name: string,
    tag: string,
    mode: Reservation['rules'][number]['mode'],
    key: string,
    units: number,
    written: string,
  ][]
}

/** Creates the jobs of an isolate. */
export function createJobs({ engine, ruleSet, rules, timer, wallClock }: JobsOptions): Jobs {
  const settled = new Lru<true>({ size: MAX_SETTLED })

  /** @returns undefined: the store has failed each time */
  async function attempt<Result>(
    { call, decode }: PreparedCall<Result>,
    background: Background,
  ): Promise<Result | undefined> {
    const prepared = { call, decode: (reply: unknown) => ({ at: 0, result: decode(reply) }) }
    for (const ms of [...REPEAT_AFTER_MS, undefined]) {
      const changed = await engine.change('refund', prepared, background)
      if ('result' in changed) return changed.result
      if (ms !== undefined) await new Promise<void>(resolve => timer(ms, resolve, true))
    }
    return undefined
  }

  /** A rule with other numbers may count in another record, so its tag is compared. The estimate of a rule without a match stays. */
  function reservationOf(text: string): Reservation {
    const { at, plan, consumerKey, rules: kept } = JSON.parse(text) as Kept
    const reserved = kept.flatMap(([name, tag, mode, key, units, written]) => {
      const rule = rules.find(rule => rule.name === name && rule.tag === tag && rule.settlement)
      return rule ? [{ rule, mode, key, reserved: units, ...(written && { written }) }] : []
    })
    return { id: 'job', ruleSet, rules: reserved, consumerKey, plan, spentAt: at }
  }

  return {
    async keep(key, reservation, actualOf, background) {
      const { spentAt: at, plan, consumerKey } = reservation
      const units = amountsOf(reservation, actualOf).map(({ actual }) => actual)
      const kept: Kept = {
        ...{ at, plan, consumerKey },
        rules: reservation.rules.map(({ rule, mode, key, written = '' }, i) => [
          ...([rule.name, rule.tag] as const),
          ...([mode, key, units[i]!, written] as const),
        ]),
      }
      const args = [String(KEEP_SECONDS), JSON.stringify(kept)]
      await attempt({ call: { script: keepScript(), keys: [key], args }, decode: () => true }, background)
    },

    async settle(key, actualOf, background) {
      if (settled.get(key)) return
      const text = await attempt(prepareLookUp(key), background)
      if (text === undefined) return
      const reservation = reservationOf(text)
      const amounts = amountsOf(reservation, actualOf)
      const settlement = settlementOf(reservation, { amounts, jobKey: key }, wallClock())
      if (reservation.rules.length > 0 && !(await attempt(prepareSettle(settlement), background))) return
      settled.set(key, true)
    },
  }
}
