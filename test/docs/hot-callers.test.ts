/** docs/hot-callers.md and the leases in docs/internals/simulations.md: configs, numbers, tables and pictures are those of the code. */
import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import { makePictures } from '../../docs/programs/hot-callers/make-pictures.ts'
import { PAGE as SIMULATIONS, withFigures } from '../../docs/programs/hot-callers/make-table.ts'
import { tripsOverRate } from '../../docs/programs/hot-callers/simulation.ts'
import { CHANGES, TRAFFIC, TRIP_MS } from '../../docs/programs/hot-callers/staleness.ts'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { canBeLeased } from '../../src/config/compile-rule.ts'
import { defineConfig } from '../../src/config/define.ts'
import { createAnswers } from '../../src/limiter/answers/answers.ts'
import { createLeases } from '../../src/limiter/answers/leases.ts'
import { LEASE_DIVISOR } from '../../src/script/lease.ts'
import { ScriptModel } from '../../src/script/model.ts'
import type { RuleSet } from '../../src/script/rule-set-shape.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { rulesOf } from '../support/engines.ts'
import { knownAnswers, knownRequest } from '../support/known-request.ts'
import { runLeaseFleet } from '../support/lease-fleet.ts'
import { readPage } from '../support/pages.ts'

const FOLDER = new URL('../../docs/pictures/', import.meta.url)
const page = readPage('docs/hot-callers.md')
const simulations = readFileSync(SIMULATIONS, 'utf8')
const ACME = consumerStateKey('acme')
const RULE_SET = { plans: ['free'], leases: true } as unknown as RuleSet

describe('the configs', () => {
  const [whole, rules] = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!)

  it('are valid, and have the leases that the page names', () => {
    const config = new Function(
      'defineConfig',
      whole!.replace(/^import .*\n/gm, '').replace('export default', 'return'),
    )(defineConfig)
    expect(checkedConfig(config).rules.map(({ lease }) => lease?.forMs)).toEqual([250, 250])
    const other = new Function(`return { origin: 'https://api.example.com', ${rules} }`)()
    expect(checkedConfig(other).rules.map(({ lease }) => lease?.forMs)).toEqual([250, undefined])
  })

  it('have the defaults that the page names', () => {
    const { lease: _, ...rule } = ruleOf('gcra')
    const config = checkedConfig({ origin: 'route', rules: [rule as RuleInput] })
    expect(config.refusals).toEqual({ rememberForMs: 1000 })
    expect(config.tripLimit).toMatchObject({ maxRequests: 32, maxWaitMs: 1000 })
    expect(config.rules[0]!.lease).toBeUndefined()
    expect([LEASE_DIVISOR, page.includes('a sixteenth')]).toEqual([16, true])
  })

  it('can have leases for the algorithms that the page names', () => {
    const yes = page.matchAll(/^\| (`[a-z`, -]+) \| yes/gm)
    const named = [...yes].flatMap(([, cell]) => [...cell!.matchAll(/`(.+?)`/g)].map(([, name]) => name!))
    const can = Object.entries(ALL_ALGORITHMS.countings).flatMap(([name, counting]) =>
      canBeLeased({ algorithm: name } as RuleInput, counting!) ? [name] : [],
    )
    expect(named.sort()).toEqual(can.sort())
  })
})

describe('the figures', () => {
  let figures: string
  beforeAll(async () => {
    figures = await withFigures(simulations)
  }, 120_000)

  it('are those of the simulation (npm run plots)', () => {
    expect(figures === simulations).toBe(true)
  })

  it('never show a limit that the store has exceeded, or more in a window than the bound', () => {
    const rows = [...figures.matchAll(/^\| .* \| (\d\.\d{3}) \| (\d+) \| (\d+) \| (\d+) \| [\d.]+% \|$/gm)]
    expect(rows.length).toBeGreaterThan(15)
    for (const [row, , overspent, excess, bound] of rows) {
      expect([row, overspent]).toEqual([row, '0'])
      expect(Number(excess), row).toBeLessThanOrEqual(Number(bound))
    }
  })

  it('show that a change counts from the end of the lease on, or from the first trip after rememberFor on', () => {
    // The tables are made only if this holds in each run.
    const [, table] = /<!-- table: staleness -->\n(.*?)<!-- end -->/s.exec(figures)!
    const rows = table!.trim().split('\n').slice(2)
    expect(rows.length).toBe(2 * Object.keys(CHANGES).length)
    for (const [i, row] of rows.entries()) {
      const times = [...row.matchAll(/ (\d+) ms \|/g)].slice(0, TRAFFIC.length).map(([, ms]) => Number(ms))
      const isAboutRefusals = row.includes('rememberFor')
      const isLeased = i % 2 === 1
      // The change does not count immediately, so the runs prove something.
      if (isAboutRefusals || isLeased) expect(Math.max(...times), row).toBeGreaterThan(100)
      else expect(times, row).toEqual(TRAFFIC.map(() => 0))
      if (!isAboutRefusals) expect(Math.max(...times), row).toBeLessThanOrEqual(250 + TRIP_MS)
    }
  })

  it('are those that the text names', async () => {
    const hot = /1,000 a second, one isolate \| none .*\n\| \| 250ms \| (\S+)/.exec(figures)!
    expect(Number(hot[1])).toBeLessThan(0.015)
    expect(page).toContain('up to 99 of 100 trips')
    const points = new Map((await tripsOverRate(50, '250ms')).map(point => [point.perSecond, point]))
    const [at500, at1000] = [500, 1000].map(rate => points.get(rate)!.tripsPerRequest.toFixed(2))
    for (const text of [page, simulations])
      expect(text.replaceAll(/\s+/g, ' ')).toContain(
        `${at500} trips per request at 500 requests a second and ${at1000} at 1,000`,
      )
  })
})

// The simulation takes ten seconds of a core, and as many times longer as the machine is shared.
it('the pictures are those that the simulation makes', { timeout: 600_000 }, async () => {
  const pictures = await makePictures()
  for (const [file, svg] of pictures) {
    const isSame = readFileSync(new URL(file, FOLDER), 'utf8') === svg
    expect(isSame, `${file} is another: npm run plots`).toBe(true)
    expect(svg.length, file).toBeLessThan(40_000)
    expect(svg, file).not.toMatch(/<script|https?:(?!\/\/www\.w3\.org\/)/)
  }
})

describe('the statements of the page about leases', () => {
  it('leases save less if a trip takes longer than the lease', async () => {
    const trips = async (tripMs: number) => {
      const plan = { isolates: 1, perSecond: 200, seconds: 10, tripMs }
      const { trips, requests } = await runLeaseFleet({ ...plan, rules: [ruleOf('fixed-window', 24_000)] })
      return (trips / requests).toFixed(2)
    }
    const found = [await trips(6), await trips(120), await trips(300)]
    expect(simulations.replaceAll(/\s+/g, ' ')).toContain(
      `${found[0]} trips per request when a trip takes 6 ms, ${found[1]} at 120 ms, ${found[2]} at 300 ms`,
    )
  })

  it('if a caller slows down, the isolate gives back its unused units after the next answer of the store', () => {
    let nowMs = 1e12
    const model = new ScriptModel()
    const known = knownAnswers(() => nowMs)
    const answers = createAnswers(
      known,
      undefined,
      createLeases(known, { timer: () => () => {}, log: () => true }),
    )
    const rules = rulesOf(ruleOf('fixed-window', 100_000))
    const demanded = () => ({ ruleSet: RULE_SET, rules: rules.map(rule => bound(rule, ACME, 1, nowMs)) })
    const ask = () => {
      const answer = answers.forRequest(knownRequest(demanded()))
      if (answer.decideBeforeTrip()) return
      answer.endTrip(model.decide({ ...demanded(), wantedRequests: answer.beginTrip(), now: nowMs * 1e3 }))
    }
    for (let i = 0; i < 2000; i++, nowMs += 1) ask()
    for (let i = 0; i < 8; i++, nowMs += 100) ask()
    const next = answers.forRequest(knownRequest(demanded()))
    expect(next.decideAfterWait()).toBeUndefined()
    expect(simulations.replaceAll(/\s+/g, ' ')).toContain(
      'holds more units than it needs in the time of two leases, the isolate gives all of them back',
    )
  })

  it('units that were leased before a reset are given back after it', () => {
    const model = new ScriptModel()
    const rules = rulesOf(ruleOf('fixed-window', 160)).map(rule => bound(rule, ACME, 1))
    const now = 1e15
    const { granted } = model.decide({ ruleSet: RULE_SET, rules, wantedRequests: 10, now })
    model.reset({ rules, now: now + 1 })
    const of = (cost: number) => ({
      ruleSet: RULE_SET,
      rules: rules.map(rule => ({ ...rule, cost })),
      now: now + 2,
    })
    const { remaining } = model.decide(of(50)).verdicts[0]!
    model.refund({
      rules: rules.map(rule => ({ ...rule, units: granted! - 1, spent: granted! })),
      ...{ spentAt: now, now: now + 3 },
    })
    expect(model.decide(of(0), 'peek').verdicts[0]!.remaining - remaining).toBe(granted! - 1)
  })
})

function ruleOf(algorithm: 'gcra' | 'fixed-window', limit = 100): RuleInput {
  return { name: 'a', by: 'consumer', algorithm, limit, period: '1m', lease: { for: '250ms' } }
}
