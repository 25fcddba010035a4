/**
 * Runs every fault at every place: each call of the scenario fails in turn, then all of them, in each mode. `npm run
 * test:anomalies` runs everything and writes the results into docs/internals/reliability.md. `npm run test:all` runs a selection.
 */
import { afterAll, describe, expect, it } from 'vitest'
import { writeTable } from '../../docs/programs/reliability/tables.ts'
import { unitsStillHeld } from './judge.ts'
import type { Lane, Lanes } from './lane.ts'
import { type LeaseFinding, playLeases } from './leases.ts'
import { MODES, type Mode } from './modes.ts'
import { type Anomaly, type Finding, play, type Which } from './scenario.ts'

export const IS_WHOLE = process.env.ANOMALIES === 'all'

/** Of a case, with the time in which it waits for a lane behind all others (ms). */
export const CASE_TIMEOUT_MS = 900_000

/** More calls than any scenario makes. If a scenario has no n-th call, higher numbers are left out. */
const MAX_CALLS = 40

/** The places in `npm run test:all`: a call at which some keys are known already, and all calls. */
const FEW: readonly Which[] = [3, 'every']

/** The modes for callers with leases. Their scenario has hundreds of requests. */
const LEASE_MODES: readonly Mode[] = IS_WHOLE ? MODES : ['closed']

/** The lanes of both Workers. */
export interface AllLanes {
  ordinary: Lanes
  leases: Lanes
}

/** Describes one test for each fault, which is run at every place. */
export function describeMatrix(
  title: string,
  table: string,
  anomalies: readonly Anomaly[],
  lanes: () => AllLanes,
): void {
  describeByMode(title, table, anomalies, lanes, inAllPlaces, playLeases)
}

/**
 * Describes one test for each case, which is run in each mode. The title says how many cases are left out.
 *
 * @param findWithLeases does the same with callers that have leases
 */
export function describeByMode<Case extends { name: string; isTypical?: true }>(
  title: string,
  table: string,
  cases: readonly Case[],
  lanes: () => AllLanes,
  find: (lane: Lane, each: Case, mode: Mode) => Promise<Finding>,
  findWithLeases: (lane: Lane, each: Case, mode: Mode) => Promise<LeaseFinding>,
): void {
  const chosen = IS_WHOLE ? cases : cases.filter(({ isTypical }) => isTypical)
  const left = cases.length - chosen.length
  const found = new Map<string, Record<Mode, Finding>>()
  const foundWithLeases = new Map<string, readonly LeaseFinding[]>()

  describe(left > 0 ? `${title} (npm run test:anomalies: ${left} more ways)` : title, {
    concurrent: true,
  }, () => {
    it.each(chosen)('$name', { timeout: CASE_TIMEOUT_MS }, async each => {
      const leased = Promise.all(
        LEASE_MODES.map(async mode => {
          const finding = await lanes().leases.use(lane => findWithLeases(lane, each, mode))
          const mistakes = finding.mistakes.map(mistake => `${mode}, with leases, ${mistake}`)
          return { ...finding, mistakes }
        }),
      )
      const byMode = await Promise.all(
        MODES.map(async mode => {
          const finding = await lanes().ordinary.use(async lane => {
            const found = await find(lane, each, mode)
            return {
              ...found,
              mistakes: [...found.mistakes, ...(await unitsStillHeld(lane, found.callers, mode))],
            }
          })
          return [mode, finding] as const
        }),
      )
      const mistakes = byMode.flatMap(([mode, { mistakes }]) =>
        mistakes.map(mistake => `${mode}, ${mistake}`),
      )
      const withLeases = await leased
      expect([...mistakes, ...withLeases.flatMap(({ mistakes }) => mistakes)]).toEqual([])
      foundWithLeases.set(each.name, withLeases)
      found.set(each.name, Object.fromEntries<Finding>(byMode) as Record<Mode, Finding>)
    })
  })

  afterAll(() => {
    const gone = [...foundWithLeases.values()].flatMap(each => each.flatMap(({ gone }) => gone ?? []))
    // On a busy machine, a lease can end before the fault begins, or the store grants no lease at all.
    const leased = gone.filter(({ hadLeases }) => hadLeases)
    const served = leased.filter(({ fromLeases }) => fromLeases > 0).length
    expect(served, 'outages in which leases served requests').toBeGreaterThanOrEqual(leased.length / 4)
    // A run with failures or omitted cases does not change the page.
    if (!IS_WHOLE || found.size < cases.length) return
    const rows = cases.map(({ name }) => rowOf(name, found.get(name)!, foundWithLeases.get(name)!))
    writeTable(table, { head: HEAD, rows })
  })
}

async function inAllPlaces(lane: Lane, anomaly: Anomaly, mode: Mode): Promise<Finding> {
  const findings: Finding[] = []
  let isBeyond = false
  for (const which of placesOf(anomaly)) {
    if (isBeyond && which !== 'every') continue
    const finding = await play(lane, anomaly, mode, which)
    isBeyond = !finding.hasHit
    findings.push({ ...finding, mistakes: finding.mistakes.map(mistake => `call ${which}: ${mistake}`) })
  }
  return worstOf(findings)
}

function placesOf({ isQuotaFault }: Anomaly): readonly Which[] {
  // Only one place: the first failure stops all calls, and the isolate sends the next request to the store half a minute later.
  if (isQuotaFault) return ['every']
  return IS_WHOLE ? [...Array.from({ length: MAX_CALLS }, (_, i) => i + 1), 'every'] : FEW
}

function worstOf(findings: readonly Finding[]): Finding {
  const most = (value: (finding: Finding) => number) => Math.max(...findings.map(value))
  return {
    degraded: findings.flatMap(({ degraded }) => degraded),
    slowest: most(({ slowest }) => slowest),
    excess: most(({ excess }) => excess),
    backAfter: most(({ backAfter }) => backAfter),
    mistakes: findings.flatMap(({ mistakes }) => mistakes),
    callers: findings.flatMap(({ callers }) => callers),
    hasHit: findings.some(({ hasHit }) => hasHit),
  }
}

const HEAD = [
  'the store …',
  '`Sluice-Degraded`',
  ...MODES.map(mode => `\`${mode}\``),
  'slowest reply',
  `above the limits (${MODES.join(' / ')})`,
  'back after',
  `from leases (${MODES.join(' / ')})`,
  'last after',
]

function rowOf(name: string, byMode: Record<Mode, Finding>, withLeases: readonly LeaseFinding[]): string[] {
  const gone = withLeases.flatMap(({ gone }) => gone ?? [])
  const fromLeases = gone.map(({ fromLeases }) => fromLeases).join(' / ')
  const lastAfter = Math.max(...gone.map(({ lastAfter }) => lastAfter))
  const findings = MODES.map(mode => byMode[mode])
  const worst = worstOf(findings)
  const causes = worst.degraded.map(({ mark }) => `\`${mark}\``)
  return [
    name,
    listed(causes),
    ...findings.map(({ degraded }) => listed(degraded.map(({ status }) => String(status)))),
    `${Math.round(worst.slowest)} ms`,
    findings.map(({ excess }) => excess).join(' / '),
    `${Math.round(worst.backAfter)} ms`,
    ...(gone.length === MODES.length ? [fromLeases, `${Math.round(lastAfter)} ms`] : ['-', '-']),
  ]
}

const listed = (texts: readonly string[]) => [...new Set(texts)].sort().join(', ') || 'none'
