/** The pictures of docs/load-shedding.md. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { makePictures } from '../../docs/load-shedding/make-pictures.ts'

const FOLDER = new URL('../../docs/load-shedding/', import.meta.url)

it('are what the simulation says', () => {
  const pictures = makePictures()
  const files = readdirSync(FOLDER).filter(file => file.endsWith('.svg'))
  expect(files.sort()).toEqual([...pictures.keys()].sort())
  for (const [file, svg] of pictures) {
    const isSame = readFileSync(new URL(file, FOLDER), 'utf8') === svg
    expect(isSame, `${file} is another: npm run plots`).toBe(true)
    expect(svg.length, file).toBeLessThan(40_000)
    expect(svg, file).not.toMatch(/<script|<style|https?:(?!\/\/www\.w3\.org\/)/)
  }
})
