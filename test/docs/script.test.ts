/** docs/internals/script.md shows the script that the rules of bench/rules.ts make. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { PAGE, scriptText, withScript } from '../../docs/programs/reference/make-script-page.ts'

const page = readFileSync(PAGE, 'utf8')

it('the page has the script as it is now (npm run reference)', () => {
  expect(page === withScript(page, scriptText())).toBe(true)
})

it('the page has all lines of the script, in the same order', () => {
  const shown = [...page.matchAll(/```lua\n(.*?)\n```/gs)].flatMap(([, code]) => code!.split('\n'))
  const script = scriptText().trimEnd().split('\n')
  expect(shown.map(line => line.trim()).filter(Boolean)).toEqual(
    script.map(line => line.trim()).filter(Boolean),
  )
})
