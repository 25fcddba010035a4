/** How long decisions take from here; on request under a load of the user's choice, which costs money. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../../config/compile.ts'
import { decisionCost } from '../../ops/decision-cost.ts'
import { dollarsOf, PRICES } from '../../ops/prices.ts'
import { type Finding, findings, limit, ok, unknown } from './checks.ts'
import { decide, decisionsUnder } from './decisions.ts'
import { type Bed, KEY_SECONDS } from './examined-store.ts'

const TIMES = 40

/** Percentiles by nearest rank. @param times ms */
function latencyOf(times: readonly number[]) {
  const sorted = times.toSorted((a, b) => a - b)
  const at = (share: number) => Math.round((sorted[Math.ceil(share * sorted.length) - 1] ?? 0) * 10) / 10
  const measured = { p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) }
  return { text: `p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, p99 ${at(0.99)} ms`, measured }
}

/** A finding about latency. p99 is compared with the deadline of decisions. */
function judge(text: string, config: Config, measured: Record<string, number> & { p99_ms: number }): Finding {
  const { ok, limit } = findings(measured)
  if (measured.p99_ms <= config.storeDeadlineMs) return ok`${text}.`
  return limit`${text}: above store.deadline (${config.storeDeadlineMs} ms). → Run this near the database, set its region in [placement] of wrangler.toml, or raise store.deadline.`
}

export async function checkLatency({ send, decisions, config, writeRecords }: Bed): Promise<Finding> {
  const timeOf = async (run: () => Promise<unknown>) => {
    const startedAt = performance.now()
    await run()
    return performance.now() - startedAt
  }
  const ping = () => send([['PING']])
  const first = Math.round(await timeOf(ping))
  const [decision] = decisionsUnder(config, 'latency')
  await writeRecords([decision ?? []].flat())
  const one = () => (decision ? decide(decisions, decision.evaluation, 'peek') : ping())
  const times: number[] = []
  for (let i = 0; i <= TIMES; i++) times.push(await timeOf(one))
  const { text, measured } = latencyOf(times.slice(1))
  const finding = `A decision takes ${text} from here, and the first request ${first} ms`
  return judge(finding, config, { ...measured, first_ms: first })
}

const READS = 10

/** Decisions write, so they are right. Live switches and administration read, perhaps from a replica. */
export async function checkReads({ send, key }: Bed): Promise<Finding> {
  let stale = 0
  for (let i = 0; i < READS; i++) {
    const [written] = await send([['SETEX', key('written'), KEY_SECONDS, String(i)]])
    if (written?.error)
      return unknown`Reads could not be tried, because writes fail. → Fix what the check \`permissions\` names.`
    const [answer] = await send([['GET', key('written')]])
    if (answer?.result !== String(i)) stale += 1
  }
  return stale > 0
    ? limit`Of ${READS} reads, ${stale} did not see the write before: a replica that lags answers reads. → Remove the read regions of the database. Until then, live switches and new keys take effect late.`
    : ok`A read sees the write before it.`
}

export interface Load {
  perSecond: number
  seconds: number
}

/** Callers that take turns, so that most are admitted. */
const CALLERS = 50
/** Of all decisions. */
const MANY_ERRORS = 0.01

const decisionsOfLoad = (config: Config) =>
  Array.from({ length: CALLERS }, (_, i) => decisionsUnder(config, `load${i}`))
    .flat()
    .map(decision => {
      const { admitted, refused } = decisionCost(decision.evaluation, config.plans[0], config.cluster)
      return { ...decision, ifAdmitted: admitted?.most ?? 0, ifRefused: refused.most }
    })

const dollarsText = (commands: number) => `$${Math.max(0.01, dollarsOf(commands)).toFixed(2)}`

/** What a load costs at most, in commands that Upstash bills, with those that make and remove its keys: a rule has at most three. */
export function costOfLoad(config: Config, { perSecond, seconds }: Load): string {
  const all = decisionsOfLoad(config)
  const count = perSecond * seconds
  const most = Math.max(0, ...all.map(({ ifAdmitted, ifRefused }) => Math.max(ifAdmitted, ifRefused)))
  const ofKeys = all.flatMap(({ records, evaluation }) => [3 * records.length, 6 * evaluation.rules.length])
  const commands = count * most + ofKeys.reduce((sum, each) => sum + each, 0)
  return `${count} decisions in ${seconds} s take at most ${commands} commands: ${dollarsText(commands)} at Upstash, pay as you go (prices of ${PRICES.date}).`
}

export async function checkLoad(
  { decisions, config, writeRecords, isStopped }: Bed,
  { perSecond, seconds }: Load,
): Promise<Finding> {
  const all = decisionsOfLoad(config)
  await writeRecords(all)
  const times: number[] = []
  const counts = { admitted: 0, refused: 0, errors: 0, commands: 0 }
  /** Measured from the time at which it was due, so that a slow answer does not hide the ones behind it. */
  const one = async ({ evaluation, ifAdmitted, ifRefused }: (typeof all)[number], dueAt: number) => {
    const { status } = await decide(decisions, evaluation)
    times.push(performance.now() - dueAt)
    counts[status === 'admitted' ? 'admitted' : 'refused'] += 1
    counts.commands += status === 'admitted' ? ifAdmitted : ifRefused
  }
  const running: Promise<void>[] = []
  const startedAt = performance.now()
  for (let i = 0; all.length > 0 && i < perSecond * seconds && !isStopped(); i++) {
    const dueAt = startedAt + (i * 1000) / perSecond
    if (dueAt > performance.now()) await sleep(dueAt - performance.now())
    running.push(one(all[i % all.length]!, dueAt).catch(() => void counts.errors++))
  }
  await Promise.all(running)

  const { admitted, refused, errors, commands } = counts
  const { text, measured: latency } = latencyOf(times)
  const measured = { ...latency, ...counts, usd: dollarsOf(commands) }
  const finding = `At ${perSecond} a second: ${admitted} admitted, ${refused} refused, ${errors} failed; ${text}; ${commands} commands, ${dollarsText(commands)}`
  if (errors === 0) return judge(finding, config, measured)
  const { fault, limit } = findings(measured)
  const tag = errors > MANY_ERRORS * running.length ? fault : limit
  return tag`${finding}. → Look at the limits of the plan (commands a second, connections), and at the network between.`
}
