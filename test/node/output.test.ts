/** What commands print: no text of another server controls the terminal. */
import { afterEach, expect, it, vi } from 'vitest'
import { print, wrapped } from '../../src/node/cli/output.ts'

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

it('a terminal breaks no word: sentences have breaks between words, tables and commands to paste have none', () => {
  const sentence = `acme is refused by \`month\` (3 per 300 days) since 14:02 UTC; admitted again in 12 s`
  const table = 'RULE   MODE     LIMIT                              ADMITS NOW  REMAINING'
  const command = '    npx sluicegate keys create --consumer acme --label a-long-label-of-this-key'
  const screen = { isTTY: true, columns: 60 }
  expect(wrapped([sentence, '', table, command].join('\n'), screen).split('\n')).toEqual([
    'acme is refused by `month` (3 per 300 days) since 14:02 UTC;',
    'admitted again in 12 s',
    ...['', table, command],
  ])
  const colored = wrapped(`\u001b[31m${'red '.repeat(15)}\u001b[39mplain`, screen)
  expect(colored.split('\n')).toEqual([`\u001b[31m${'red '.repeat(14)}red`, '\u001b[39mplain'])
  expect(wrapped(sentence, { isTTY: false, columns: 60 })).toBe(sentence)
  for (const columns of [0, undefined])
    expect(wrapped(sentence, { isTTY: true, columns } as never)).toBe(sentence)
})

it('the mistakes of a config keep their indent', () => {
  const mistake =
    '  sluice.config.ts:7: rules[0].limit: is not a number. Write a whole number above 0, as in limit: 100.'
  expect(wrapped(mistake, { isTTY: true, columns: 60 }).split('\n')).toEqual([
    '  sluice.config.ts:7: rules[0].limit: is not a number. Write',
    'a whole number above 0, as in limit: 100.',
  ])
})
