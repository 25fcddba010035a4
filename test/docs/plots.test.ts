/**
 * The pictures of docs/algorithms.md are made with the script. This test makes them with the model, and compares them. test/algorithms and
 * test/limiter compare the model with the script.
 */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { makePlots } from '../../docs/programs/plots/make-plots.ts'
import { ModelEngine } from '../support/engines.ts'

const FOLDER = new URL('../../docs/pictures/', import.meta.url)

it('the pictures show the decisions of the algorithms', async () => {
  const plots = await makePlots(new ModelEngine().evaluate)
  for (const [file, svg] of plots) {
    const isSame = readFileSync(new URL(file, FOLDER), 'utf8') === svg
    expect(isSame, `${file} is another: npm run plots`).toBe(true)
    expect(svg.length, file).toBeLessThan(60_000)
    expect(svg, file).not.toMatch(/<script|https?:(?!\/\/www\.w3\.org\/)/)
  }
})
