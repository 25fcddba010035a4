/** How long decisions take from here; on request under a load of the user's choice, which costs money at Upstash. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../../config/compile.ts'
import { decisionCost } from '../../ops/decision-cost.ts'
import { dollarsOf, PRICES } from '../../ops/prices.ts'
import { type Finding, findings, limit, ok, unknown } from './checks.ts'
import { type Decision, decide, decisionsUnder, writeRecords } from './decisions.ts'
import type { Bed } from './examined-store.ts'
import { KEY_SECONDS } from './key-space.ts'

/** A finding about latency, by nearest rank: p99 is compared with the deadline of decisions. @param times ms */
function judge(
  times: readonly number[],
  { storeDeadlineMs }: Config,
  textWith: (latency: string) => string,
  measured?: Finding['measured'],
): Finding {
  const sorted = times.toSorted((a, b) => a - b)
  const [p50, p95, p99] = [0.5, 0.95, 0.99].map(
    share => Math.round((sorted[Math.ceil(share * sorted.length) - 1] ?? 0) * 10) / 10,
  ) as [number, number, number]
  const found = findings({ p50_ms: p50, p95_ms: p95, p99_ms: p99, ...measured })
  const text = textWith(`p50 ${p50} ms, p95 ${p95} ms, p99 ${p99} ms`)
  if (p99 <= storeDeadlineMs) return found.ok`${text}.`
  return found.limit`${text}: above store.deadline (${storeDeadlineMs} ms). → Run this near the database, set its region in [placement] of wrangler.toml, or raise store.deadline.`
}

/** At most so many decisions, for at most so long. */
const [TIMES, TIMES_MS] = [40, 10_000]

export async function checkLatency(bed: Bed): Promise<Finding> {
  const [decision] = decisionsUnder(bed.config, 'latency')
  await writeRecords(bed, [decision ?? []].flat())
  const times: number[] = []
  const endsAt = performance.now() + TIMES_MS
  while (times.length < TIMES && performance.now() < endsAt) {
    const startedAt = performance.now()
    await (decision ? decide(bed.decisions, decision, 'peek') : bed.decisions.ping())
    times.push(performance.now() - startedAt)
  }
  return judge(times, bed.config, latency => `A decision takes ${latency} from here`)
}

const READS = 10

/** Decisions write, so they are right. Live switches and administration read, perhaps from a replica. */
export async function checkReads({ send, space }: Bed): Promise<Finding> {
  const key = space.key('written')
  let stale = 0
  for (let i = 0; i < READS; i++) {
    const [written] = await send([['SETEX', key, KEY_SECONDS, i]])
    if (written?.error)
      return unknown`Reads could not be tried, because writes fail. → Fix what the check \`permissions\` names.`
    const [answer] = await send([['GET', key]])
    if (answer?.result !== String(i)) stale += 1
  }
  if (stale === 0) return ok`A read sees the write before it.`
  return limit`Of ${READS} reads, ${stale} did not see the write before: a replica that lags answers reads. → Remove the read regions of the database. Until then, live switches and new keys take effect late.`
}

export interface Load {
  perSecond: number
  seconds: number
  /** Whether commands have a price, as at Upstash. */
  isBilled: boolean
}

/** Callers that take turns, so that most are admitted. */
const CALLERS = 50
/** Of all decisions. */
const MANY_ERRORS = 0.01
/** Decisions that wait for the store. More of them would only wait for each other, so they count as failed. */
const MOST_RUNNING = 1000

const decisionsOfLoad = (config: Config) =>
  Array.from({ length: CALLERS }, (_, i) => decisionsUnder(config, `load${i}`)).flat()

/** The most commands that a decision takes, as Upstash bills them. */
function commandsOf(decision: Decision, { plans, cluster }: Config) {
  const { admitted, refused } = decisionCost(decision, plans[0], cluster)
  return { admitted: admitted?.most ?? 0, refused: refused.most }
}

const dollarsText = (commands: number) => `$${Math.max(0.01, dollarsOf(commands)).toFixed(2)}`

/** What a load costs at most, in commands, with those that make and remove its keys: a rule has at most three. */
export function costOfLoad(config: Config, { perSecond, seconds, isBilled }: Load): string {
  const all = decisionsOfLoad(config)
  const count = perSecond * seconds
  const most = Math.max(0, ...all.flatMap(decision => Object.values(commandsOf(decision, config))))
  const ofKeys = all.map(({ records, rules }) => 3 * records.length + 6 * rules.length)
  const commands = count * most + ofKeys.reduce((sum, each) => sum + each, 0)
  const price = isBilled
    ? `: ${dollarsText(commands)} at Upstash, pay as you go (prices of ${PRICES.date}).`
    : ', which have no price at a Redis of your own.'
  return `${count} decisions in ${seconds} s take at most ${commands} commands${price}`
}

export async function checkLoad(
  bed: Bed,
  { perSecond, seconds, isBilled }: Load,
  isStopped: () => boolean,
): Promise<Finding> {
  const all = decisionsOfLoad(bed.config).map(decision => ({
    decision,
    commands: commandsOf(decision, bed.config),
  }))
  await writeRecords(
    bed,
    all.map(({ decision }) => decision),
  )
  const times: number[] = []
  const counts = { admitted: 0, refused: 0, errors: 0, commands: 0 }
  /** Measured from the time at which it was due, so that a slow answer does not hide the ones behind it. */
  const one = async ({ decision, commands }: (typeof all)[number], dueAt: number) => {
    const status = (await decide(bed.decisions, decision)).status === 'admitted' ? 'admitted' : 'refused'
    times.push(performance.now() - dueAt)
    counts[status] += 1
    counts.commands += commands[status]
  }
  const running = new Set<Promise<unknown>>()
  const startedAt = performance.now()
  for (let i = 0; all.length > 0 && i < perSecond * seconds && !isStopped(); i++) {
    const dueAt = startedAt + (i * 1000) / perSecond
    const wait = dueAt - performance.now()
    if (wait > 0) await sleep(wait)
    if (running.size >= MOST_RUNNING) {
      counts.errors += 1
      continue
    }
    const decided = one(all[i % all.length]!, dueAt).catch(() => void counts.errors++)
    running.add(decided)
    decided.then(() => running.delete(decided))
  }
  await Promise.all(running)

  const { admitted, refused, errors, commands } = counts
  const price = isBilled ? `, ${dollarsText(commands)}` : ''
  const textWith = (latency: string) =>
    `At ${perSecond} a second: ${admitted} admitted, ${refused} refused, ${errors} failed; ${latency}; ${commands} commands${price}`
  const found = judge(times, bed.config, textWith, {
    ...counts,
    ...(isBilled && { usd: dollarsOf(commands) }),
  })
  if (errors === 0) return found
  const verdict = errors > MANY_ERRORS * (admitted + refused + errors) ? 'fault' : 'limit'
  const fix = 'Look at the limits of the plan (commands a second, connections), and at the network between.'
  return { ...found, verdict, fix }
}
