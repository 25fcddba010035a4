/** docs/load-shedding.md and its part of docs/internals/simulations.md: configs, numbers and pictures are those of the code. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { makePictures } from '../../docs/programs/load-shedding/make-pictures.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import { limitForClass } from '../../src/config/compile-shedding.ts'
import { defineConfig } from '../../src/config/define.ts'
import type { PressureSettings } from '../../src/shedding/pressure.ts'
import { runLevel } from '../simulation/fleet-level.ts'
import {
  CLASSES,
  FULL_PACE,
  runDeadSignal,
  runFastRise,
  runHalfGone,
  runSteady,
  runThreefold,
  SEED,
  successOf,
  turnsOf,
  worstHalfMinute,
} from '../simulation/scenarios.ts'
import { readPage } from '../support/pages.ts'
import { PRESSURE_SETTINGS } from '../support/shedding-settings.ts'

const FOLDER = new URL('../../docs/pictures/', import.meta.url)

const PAGE = readPage('docs/load-shedding.md')
const SIMULATIONS = readPage('docs/internals/simulations.md')

describe('the configs', () => {
  const [whole, rules] = [...PAGE.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!)
  const config = new Function(
    'defineConfig',
    whole!.replace(/^import .*\n/gm, '').replace('export default', 'return'),
  )(defineConfig)

  it('are valid, and have the levels that the page names', () => {
    const levels = checkedConfig(config).rules.filter(({ isSystemLimit }) => isSystemLimit)
    expect(levels.map(({ name, limit, mode }) => [name, limit, mode])).toEqual([
      ['fleet-usage', 400, 'shadow'],
      ['fleet-usage-writes', 320, 'shadow'],
    ])
    const [, writes] = levels
    const limits = [1, 2, 3].map(rank => limitForClass(writes!, 320, { rank }))
    expect(PAGE.replaceAll(/\s+/g, ' ')).toContain(
      `admitted up to ${limits[0]} in flight, \`reads\` up to ${limits[1]}, \`test\` up to ${limits[2]}.`,
    )
    const reserved = { critical: 0.2, writes: 0.1 }
    const fleetUsage = { ...config.shedding.fleetUsage, reserved }
    const other = checkedConfig({ ...config, shedding: { ...config.shedding, fleetUsage } })
    expect(other.rules.at(-1)).toMatchObject({ name: 'fleet-usage-reads', limit: 280 })
  })

  it('have a limit that follows the origin', () => {
    const made = new Function(`return { origin: 'https://api.example.com', ${rules} }`)()
    expect(checkedConfig(made).adaptive).toEqual({
      ...{ method: 'gradient', min: 10, max: 1000, initial: 40, tolerance: 2 },
    })
  })

  it('have the defaults that the page names', () => {
    const { workerUtilization } = checkedConfig(config).shedding!
    expect(workerUtilization).toMatchObject({ high: 0.8, low: 0.7, afterMs: 28_000, withinMs: 120_000 })
    for (const text of ['`high` (0.8)', '`low` (0.7)', 'pressure of 28 s', 'At 148 s', 'nothing for 30 s'])
      expect(PAGE).toContain(text)
  })
})

describe('the success of critical requests with worker utilization alone', () => {
  const percentOf = (share: number) => `${Number((100 * share).toFixed(1))} %`
  const rowOf = (title: string) =>
    SIMULATIONS.split('\n')
      .find(line => line.startsWith(`| ${title}`))!
      .split(' | ')
      .slice(1)
      .map(cell => cell.replace(/ \|$/, ''))
  const critical = CLASSES.indexOf('critical')

  it('is that of the simulation', () => {
    const rises = [1, 60, 120, 180, 240, 300].map(seconds => runFastRise(seconds, false))
    const runs = [...rises, runDeadSignal()].map(({ seconds }) => seconds)
    expect(rowOf('in the worst half-minute')).toEqual(
      runs.map(run => percentOf(worstHalfMinute(run, critical))),
    )
    const worst = runs.slice(0, -2).map(run => Math.round(100 * worstHalfMinute(run, critical)))
    expect(PAGE.replaceAll(/\s+/g, ' ')).toContain(
      `only ${Math.min(...worst)} to ${Math.max(...worst)} % of its calls in the worst half-minute`,
    )
    expect(rowOf('in the whole run (6 to 15 minutes)')).toEqual(
      runs.map(run => percentOf(successOf(run, critical))),
    )
    const minutes = runs.map(({ length }) => Math.round(length / 60))
    expect([Math.min(...minutes), Math.max(...minutes)]).toEqual([6, 15])
  })

  it('is a little lower in one run with another random seed', () => {
    const { seconds } = runFastRise(300, false, 5)
    expect(SIMULATIONS).toContain(
      `only ${(100 * worstHalfMinute(seconds, critical)).toFixed(1)} % succeeded in the worst half-minute`,
    )
  })
})

it('the table of the two paces is that of the simulation', () => {
  const percentOf = (share: number) => `${Number((100 * share).toFixed(1))} %`
  const runs = [(settings: PressureSettings) => runThreefold(false, SEED, settings), runHalfGone, runSteady]
  const cells = runs.flatMap(run =>
    [PRESSURE_SETTINGS, FULL_PACE].map(settings => {
      const { seconds, turns } = run(settings)
      const successes = CLASSES.map((_, i) => percentOf(successOf(seconds, i)))
      const most = Math.max(...turns.flatMap(ofClass => [...ofClass]))
      return [settings.pace, ...successes, turnsOf(seconds), most].join(' | ')
    }),
  )
  const section = SIMULATIONS.split('### The two paces')[1]!.split('\n## ')[0]!
  const rows = section.split('\n').filter(line => / (?:proportional|full) \|/.test(line))
  expect(rows.map(row => row.split(' | ').slice(1).join(' | ').replace(/ \|$/, ''))).toEqual(cells)
})

it('the table of a full fleet is that of the simulation', () => {
  const percentOf = (share: number) => Number((100 * share).toFixed(1))
  const section = SIMULATIONS.split('## Fleet usage')[1]!.split('\n## ')[0]!
  const rows = section.split('\n').filter(line => /^\| [\d.]+ /.test(line))
  const cells = [0.8, 0.95, 1.2, 1.6].map(load =>
    [false, true].flatMap(hasRoom => {
      const { admitted, used } = runLevel(320, load, hasRoom)
      return [`${admitted.map(percentOf).join(' / ')} %`, `${percentOf(used)} %`]
    }),
  )
  expect(rows.map(row => row.slice(2, -2).split(' | ').slice(1))).toEqual(cells)
})

it('the pictures are those that the simulation makes', () => {
  const pictures = makePictures()
  for (const [file, svg] of pictures) {
    const isSame = readFileSync(new URL(file, FOLDER), 'utf8') === svg
    expect(isSame, `${file} is another: npm run plots`).toBe(true)
    expect(svg.length, file).toBeLessThan(40_000)
    expect(svg, file).not.toMatch(/<script|https?:(?!\/\/www\.w3\.org\/)/)
  }
})
