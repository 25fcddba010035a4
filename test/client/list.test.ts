/** The client's own parser reads lists of strings as the package `structured-headers` does, and rejects what that rejects. */
import * as fc from 'fast-check'
import { isInnerList, parseList, serializeList, Token } from 'structured-headers'
import { expect, it } from 'vitest'
import { parseList as parseOurs } from '../../src/client/list.ts'
import { randomCases } from '../selection.ts'
import { expectShare, forEvery } from '../support/property.ts'

/** A field as `Headers` has it: without spaces at its ends. */
const readOurs = (field: string) => parseOurs(field.replace(/^[ \t]+|[ \t]+$/g, ''))

/** What the package reads, in the form of our parser; none for what is not a list of strings. */
function reference(field: string) {
  try {
    const list = parseList(field.trim())
    return list.map(item => {
      const [name, parameters] = item
      if (isInnerList(item) || typeof name !== 'string') throw new Error('not a string')
      return { name, parameters: new Map([...parameters].map(([key, value]) => [key, plain(value)])) }
    })
  } catch {
    return []
  }
}

function plain(value: unknown): unknown {
  if (value instanceof Token) return value.toString()
  if (value instanceof Date) return `@${value.getTime() / 1e3}`
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString('base64')
  return typeof value === 'boolean' ? `?${value ? 1 : 0}` : value
}

const hasOddBase64 = (field: string) =>
  [...field.matchAll(/:(?=([A-Za-z\d+/]*={0,2}):)/g)].some(
    ([, text]) => Buffer.from(text!, 'base64').toString('base64') !== text,
  )

const names = fc.string({
  unit: fc.integer({ min: 32, max: 126 }).map(code => String.fromCharCode(code)),
  maxLength: 12,
})
const keys = fc.constantFrom('q', 'w', 'r', 't', 'a', 'pk', 'qu', 'sluice-burst', '*x', 'a_b.c-d')
const values = fc.oneof(
  fc.integer({ min: -999_999_999_999_999, max: 999_999_999_999_999 }),
  fc.integer({ min: -1e9, max: 1e9 }).map(number => number / 1e3),
  names,
  fc.boolean(),
  fc.constantFrom('a', '*', 'foo/bar:b-c', 'A1').map(token => new Token(token)),
  fc.uint8Array({ maxLength: 9 }).map(bytes => new Uint8Array(bytes).buffer as ArrayBuffer),
)
const lists = fc
  .array(
    fc.tuple(
      names,
      fc.array(fc.tuple(keys, values), { maxLength: 4 }).map(pairs => new Map(pairs)),
    ),
    { maxLength: 4 },
  )
  .map(items => serializeList(items as never))

/** Fields with mistakes: a valid one with a few characters replaced, and random ones. */
const mutated = fc
  .tuple(
    lists,
    fc.array(fc.tuple(fc.nat(), fc.constantFrom(...'",;=:?@*% \t\\()-.0a9A{}\u00e9')), { maxLength: 3 }),
  )
  .map(([text, edits]) =>
    edits.reduce((all, [at, character]) => {
      const i = at % (all.length + 1)
      return all.slice(0, i) + character + all.slice(i + (at % 2))
    }, text),
  )
const noise = fc.string({ unit: fc.constantFrom(...'",;=:?@* \t\\()-.01aAqr'), maxLength: 30 })

it('reads valid lists of strings as structured-headers', async () => {
  await forEvery(lists, randomCases(6000), async field => {
    expect(readOurs(field)).toEqual(reference(field))
  })
})

it('reads nothing from fields with mistakes', async () => {
  let [total, valid] = [0, 0]
  await forEvery(fc.oneof(mutated, noise), randomCases(12_000), async field => {
    const ours = readOurs(field)
    total += 1
    if (ours.length > 0) valid += 1
    // Display strings are not read, base64 is not decoded, and the package rejects some dates.
    if (!/%"|@(?!-?[1-9]\d{0,11}\b)/.test(field) && !hasOddBase64(field))
      expect(ours).toEqual(reference(field))
  })
  expectShare('valid fields', valid, total, 0.1, 0.9)
})

it.each([
  '',
  'limit=5, remaining=4',
  '("a" "b")',
  '"a";q=1,',
  '"a',
  'a;r=1',
  '"a";R=1',
  '"é";r=1',
  '"a";t=%"x"',
])('ignores %j', field => expect(parseOurs(field)).toEqual([]))

it('ignores fields with more than 4,000 characters, whose policies would keep them in memory', () => {
  const policy = (length: number) => `"a";r=1;pk=:${'A'.repeat(length)}:`
  expect(parseOurs(policy(3900))).toHaveLength(1)
  expect(parseOurs(policy(4000))).toEqual([])
})

it('is fast for long fields', () => {
  const before = performance.now()
  for (const field of [
    `"a";r=1${' '.repeat(1e5)}x`,
    `${'"a",'.repeat(2e4)}`,
    `"${'\\"'.repeat(5e4)}`,
    ';a='.repeat(3e4),
  ])
    parseOurs(field)
  expect(performance.now() - before).toBeLessThan(1_000)
})
