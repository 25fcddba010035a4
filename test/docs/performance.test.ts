/** docs/performance.md has the figures of bench/results.md. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import {
  drawByRules,
  PAGE,
  PICTURE,
  readResults,
  withTables,
} from '../../docs/performance/make-performance.ts'

it('the page and its picture have the figures of the last benchmark (npm run performance)', () => {
  const page = readFileSync(PAGE, 'utf8')
  expect(page === withTables(page, readResults())).toBe(true)
  expect(readFileSync(PICTURE, 'utf8') === drawByRules(readResults())).toBe(true)
})
