/** README.md and docs/performance.md have the figures of bench/results.md. */
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { expect, it } from 'vitest'
import {
  drawByRules,
  PAGES,
  PICTURE,
  readResults,
  withTables,
} from '../../docs/performance/make-performance.ts'

it.each(PAGES.map(url => [basename(url.pathname), url] as const))(
  '%s has the figures of the last benchmark (npm run performance)',
  (_, url) => {
    const page = readFileSync(url, 'utf8')
    expect(page).toContain('<!-- table: ')
    expect(page === withTables(page, readResults())).toBe(true)
  },
)

it('the picture has the figures of the last benchmark (npm run performance)', () => {
  expect(readFileSync(PICTURE, 'utf8') === drawByRules(readResults())).toBe(true)
})
