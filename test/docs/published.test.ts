/** docs/published.md: each practice names a test, its figures are those of bench/practice.md, and its commands run parts of the benchmark. */
import { existsSync } from 'node:fs'
import { expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { limitForClass } from '../../src/config/compile-shedding.ts'
import { readPage } from '../support/pages.ts'

const [practices, figures] = readPage('docs/published.md').split('## Figures')
const PRACTICE = readPage('bench/practice.md')
const ROWS = figures!
  .split('\n')
  .filter(line => /^\| [A-Z]/.test(line))
  .map(line => line.slice(2, -2).split(' | '))

const PRACTICES = practices!
  .split('\n')
  .filter(line => /^\| (?!-|source)/.test(line) && !line.startsWith('|---'))

it.each(PRACTICES)('has a test for it: %s', row => {
  const [, file] = /\(\[test\]\(\.\.\/(test\/\S+\.test\.ts)\)\) \|$/.exec(row) ?? []
  expect(file && existsSync(new URL(`../../${file}`, import.meta.url))).toBe(true)
})

it('says how far each of four classes fills a capacity of 100', () => {
  const classes = ['critical', 'writes', 'reads', 'test'].map(name => ({
    name,
    ...(name !== 'reads' && { match: { path: `/${name}` } }),
  }))
  const importance = classes.map(({ name }) => name)
  const { shedding, rules } = checkedConfig({
    origin: 'route',
    shedding: { classes, importance, fleetUsage: { capacity: 100 } },
  })
  const limits = shedding!.classes.map(trafficClass => [
    trafficClass.name,
    Math.min(
      ...rules
        .filter(({ match }) => trafficClass.rank >= match.fromRank!)
        .map(rule => limitForClass(rule, rule.limit, trafficClass)),
    ),
  ])
  expect(Object.fromEntries(limits)).toEqual({ critical: 100, writes: 80, reads: 78, test: 76 })
  expect(practices).toContain('stop at 80, 78 and 76')
})

it.each(ROWS)('%s: the figures of Sluice are measured', (_, here) => {
  const numbers = here!.match(/\d[\d.,]*(?: (?:%|s|ms|of \d+)|)/g) ?? []
  expect(numbers.length).toBeGreaterThan(0)
  const measured = PRACTICE.replaceAll('%', ' %')
  for (const number of numbers) expect(measured).toContain(number.replace(/[.,]$/, ''))
})

it('has a command for each figure', () => {
  const parts = ROWS.flatMap(([, , commands]) =>
    [...commands!.matchAll(/`'(.*?)'`/g)].map(([, part]) => part!),
  )
  expect(parts.length).toBeGreaterThanOrEqual(5)
  for (const part of parts) expect(PRACTICE).toContain(`npm run bench:practice -- --only '${part}'`)
})
