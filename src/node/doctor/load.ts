/** How long decisions take from here; on request under a load of the user's choice, which costs money at Upstash. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../../config/compile.ts'
import { decisionCost } from '../../ops/decision-cost.ts'
import { dollarsOf, PRICES } from '../../ops/prices.ts'
import type { Bed } from './checks.ts'
import { decide, decisionsUnder } from './decisions.ts'
import { fault, firstOf, isLate, limit, ok } from './findings.ts'

export interface Load {
  perSecond: number
  seconds: number
  /** Whether commands have a price, as at Upstash. */
  isBilled: boolean
}

/** By callers that take turns, so that most are admitted. `commands`: the most that a decision takes, as Upstash bills them. */
const decisionsOfLoad = (config: Config) =>
  Array.from({ length: 50 }, (_, i) => decisionsUnder(config, `load${i}`))
    .flat()
    .map(decision => {
      const { admitted, refused } = decisionCost(decision, config.plans[0], config.cluster)
      return { decision, commands: { admitted: admitted?.most ?? 0, refused: refused.most } }
    })

const dollarsText = (commands: number) => `$${Math.max(0.01, dollarsOf(commands)).toFixed(2)}`

/** What a load costs at most, in commands, with those that remove its keys: a rule has at most three. */
export function costOfLoad(config: Config, { perSecond, seconds, isBilled }: Load): string {
  const all = decisionsOfLoad(config)
  const most = Math.max(0, ...all.flatMap(({ commands }) => Object.values(commands)))
  const ofKeys = all.reduce((sum, { decision }) => sum + 6 * decision.rules.length, 0)
  const commands = perSecond * seconds * most + ofKeys
  const price = `: ${dollarsText(commands)} at Upstash, pay as you go (prices of ${PRICES.date})`
  return `${perSecond * seconds} decisions in ${seconds} s take at most ${commands} commands${isBilled ? price : ''}.`
}

/** Of all decisions. */
const MANY_ERRORS = 0.01

/** By nearest rank; p99 is compared with the deadline of decisions. @param load absent: 40 decisions one after the other, for at most 10 s */
export async function checkLatency({ config, decisions }: Bed, isStopped: () => boolean, load?: Load) {
  const all = decisionsOfLoad(config)
  const times: number[] = []
  const counts = { admitted: 0, refused: 0, errors: 0, commands: 0 }
  let lateError: unknown
  /** @param dueAt measured from here, so that a slow answer does not hide the ones behind it */
  const decideOne = async ({ decision, commands }: (typeof all)[number], dueAt: number) => {
    const status = (await decide(decisions, decision)).status === 'admitted' ? 'admitted' : 'refused'
    times.push(performance.now() - dueAt)
    counts[status] += 1
    counts.commands += commands[status]
  }
  const noteError = (error: Error) => {
    counts.errors += 1
    lateError ??= isLate(error) ? error : undefined
  }
  const running: Promise<unknown>[] = []
  const startedAt = performance.now()
  const msSince = () => performance.now() - startedAt
  const [most, mostMs] = load ? [load.perSecond * load.seconds, Number.POSITIVE_INFINITY] : [40, 10_000]
  for (let i = 0; i < most && msSince() < mostMs && all.length > 0 && !isStopped() && !lateError; i++) {
    const dueMs = load ? (i * 1000) / load.perSecond : msSince()
    if (dueMs > msSince()) await sleep(dueMs - msSince())
    running.push(decideOne(all[i % all.length]!, startedAt + dueMs).catch(noteError))
    if (!load) await running.at(-1)
  }
  await Promise.all(running)
  if (lateError) throw lateError

  times.sort((a, b) => a - b)
  const at = (share: number) => Math.round((times[Math.ceil(share * times.length) - 1] ?? 0) * 10) / 10
  const [p50_ms, p95_ms, p99_ms] = [at(0.5), at(0.95), at(0.99)]
  const { admitted, refused, errors, commands } = counts
  const usd = load?.isBilled ? dollarsOf(commands) : undefined
  const text = `${running.length} decisions ${load ? `at ${load.perSecond} a second` : 'one after the other'}: ${admitted} admitted, ${refused} refused, ${errors} failed; p50 ${p50_ms} ms, p95 ${p95_ms} ms, p99 ${p99_ms} ms; ${commands} commands${usd === undefined ? '' : `, ${dollarsText(commands)}`}`
  const look = 'Look at the limits of the plan (commands a second, connections), and at the network between.'
  const found = firstOf(
    fault`${errors > MANY_ERRORS * running.length}: ${text}. → ${look}`,
    limit`${errors > 0}: ${text}. → ${look}`,
    limit`${p99_ms > config.storeDeadlineMs}: ${text}. The p99 is above store.deadline (${config.storeDeadlineMs} ms). → Run this near the database, set its region in [placement] of wrangler.toml, or raise store.deadline.`,
    ok`${text}.`,
  )
  return { ...found, measured: { p50_ms, p95_ms, p99_ms, ...counts, ...(usd !== undefined && { usd }) } }
}
