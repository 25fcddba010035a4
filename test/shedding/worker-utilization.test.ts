/** The pressure of a signal with several sources. */
import { describe, expect, it } from 'vitest'
import { pressureController } from '../../src/shedding/pressure.ts'
import { PRESSURE_SETTINGS } from '../support/shedding-settings.ts'

const { initial, next } = pressureController(PRESSURE_SETTINGS)
const LATER = { ...initial, pressureMs: 10_000 }

describe('the pressure of several sources', () => {
  // Thousandths and samples: of the header, of requests in flight, of the pushes.
  it.each<[string, number[], number]>([
    ['the header', [1900, 2, 1000, 2], 10_750],
    ['requests in flight', [1000, 2, 1900, 2], 10_750],
    ['pushes', [1000, 2, 1000, 2, 950, 1], 10_750],
    ['only pushes', [0, 0, 0, 0, 950, 1], 10_750],
  ])('follows the highest mean: %s', (_, sums, pressureMs) =>
    expect(next(LATER, { sums, ms: 1000 }).pressureMs).toBe(pressureMs),
  )

  it('falls when all signals are low, and when no signal arrives', () => {
    expect(next(LATER, { sums: [350, 1, 300, 1, 100, 1], ms: 1000 }).pressureMs).toBe(9500)
    expect(next(LATER, { sums: [0, 0, 0, 0], ms: 1000 }).pressureMs).toBe(9000)
  })
})
