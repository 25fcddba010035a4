/** docs/published.md: its figures are those of bench/practice.md, and its commands run parts of the benchmark. */
import { expect, it } from 'vitest'
import { readPage } from '../support/pages.ts'

const [, figures] = readPage('docs/published.md').split('## Figures')
const PRACTICE = readPage('bench/practice.md')
const ROWS = figures!
  .split('\n')
  .filter(line => /^\| [A-Z]/.test(line))
  .map(line => line.slice(2, -2).split(' | '))

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
