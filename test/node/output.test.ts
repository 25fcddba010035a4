/** What commands print: no text of another server controls the terminal. */
import { afterEach, expect, it, vi } from 'vitest'
import { print } from '../../src/node/cli/output.ts'

afterEach(() => vi.restoreAllMocks())

const printed = (flags: { json?: boolean }, text: string): string => {
  const log = vi.spyOn(console, 'log').mockImplementation(() => {})
  print(flags, { text }, () => text)
  return String(log.mock.calls[0]![0])
}

const HOSTILE = 'a\u001b]0;title\u0007\u001b[2J\u009b1m\u202eb\u2028c\rd'

it('a text for people has its lines and its colors, and no other control character', () => {
  expect(printed({}, `\u001b[31mred\u001b[39m\n${HOSTILE}`)).toBe(
    '\u001b[31mred\u001b[39m\na?]0;title??[2J?1m?b?c?d',
  )
})

it('a document has all of the text, escaped', () => {
  const json = printed({ json: true }, HOSTILE)
  expect(JSON.parse(json)).toEqual({ text: HOSTILE })
  expect(json).toMatch(/^[\n -~]+$/)
})
