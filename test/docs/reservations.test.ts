/** The table and the picture about reservations are those that the simulation makes, and the page says what they show. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import {
  drawPicture,
  PAGE,
  PICTURE,
  runAll,
  withFigures,
} from '../../docs/programs/reservations/make-figures.ts'

it('the figures are those of the simulation', { timeout: 120_000 }, () => {
  const rows = runAll()
  const page = readFileSync(PAGE, 'utf8')
  expect(page === withFigures(page, rows), 'npm run plots').toBe(true)
  expect(readFileSync(PICTURE, 'utf8') === drawPicture(rows), 'npm run plots').toBe(true)
  for (const { way, trace, needless, overspend } of rows) {
    if (way !== 'estimate from the request') continue
    expect(needless, trace).toBeLessThan(0.011)
    expect(overspend, trace).toBeLessThan(0.005)
  }
})
