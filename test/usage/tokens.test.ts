import { describe, expect, it } from 'vitest'
import { MAX_AMOUNT, NO_TOKENS, weigh } from '../../src/usage/tokens.ts'

const tokens = { input: 100, output: 30, cached: 7, cacheWrite: 3 }

describe('the amount of a unit', () => {
  it('is the sum of all tokens without weights', () => {
    expect(weigh(tokens)).toBe(140)
  })

  it('weighs cached and written tokens like those of the prompt, unless it says otherwise', () => {
    expect(weigh(tokens, { input: 2, output: 5 })).toBe(2 * 110 + 5 * 30)
    expect(weigh(tokens, { input: 2, output: 5, cached: 0, cacheWrite: 1 })).toBe(200 + 150 + 3)
  })

  it('is exact with decimal weights, where floating point is not, and rounds only the sum up', () => {
    expect(3 * 0.1).toBeGreaterThan(0.3)
    expect(weigh({ ...NO_TOKENS, input: 30 }, { input: 0.1 })).toBe(3)
    expect(weigh({ ...NO_TOKENS, input: 31 }, { input: 0.1 })).toBe(4)
    expect(weigh({ input: 1, output: 1, cached: 1, cacheWrite: 1 }, { input: 0.25, output: 0.25 })).toBe(1)
    expect(weigh({ ...NO_TOKENS, cached: 1 }, { cached: 0.000001 })).toBe(1)
    expect(weigh(NO_TOKENS, { input: 0.1 })).toBe(0)
  })

  it('has an upper bound, which products above 2^53 reach', () => {
    expect(weigh({ ...NO_TOKENS, output: 1e9 }, { output: 1e6 })).toBe(MAX_AMOUNT)
  })
})
