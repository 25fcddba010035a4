/** The compiler writes only safe integers and plain names of a config into a script, and throws for anything else. */
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { LUA } from '../../src/algorithms/lua.generated.ts'
import { SECTIONS } from '../../src/algorithms/lua.ts'
import type { Rule } from '../../src/config/compile.ts'
import { expandMacros, Locals, literal, nameInLiteral, replaceWords } from '../../src/script/lua-text.ts'
import { createRuleSet } from '../../src/script/rule-set.ts'
import type { RuleSetShape } from '../../src/script/rule-set-shape.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { sized } from '../selection.ts'
import { rulesOf } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'
import { ruleSetOf } from '../support/rule-set.ts'

const REFUSED = 'A Lua literal must be a safe integer, or a name of letters, digits, _ and -.'

const HOSTILE = [
  ...["'", '"', '\\', '\n', '\r', '\0', ']]', '[[', '--[[', "' .. redis.call('FLUSHALL') .. '", "\\'"],
  ...[
    "'\n",
    '%',
    '$&',
    '$1',
    ' ',
    '.',
    ',',
    '=',
    '{',
    '}',
    ':',
    'a b',
    'a\tb',
    'ä',
    'ﬁ',
    '🚦',
    '\u2028',
    '\ud800',
  ],
  ...['a\n', '\na', 'a'.repeat(64), `${'a'.repeat(63)}\n`, 'а', '１'],
]
const NAMES = ['', 'a', 'Z9_', '-', '--', '__', '0', 'end', 'nil', 'now', 'floor_div', 'KEYS', 'a'.repeat(63)]
const NOT_SAFE_INTEGERS = [Number.NaN, Infinity, -Infinity, 1.5, 2 ** 53, -(2 ** 53), 1e300, 5e-324]
const INTEGERS = [0, 1, -1, 1e15, 2 ** 53 - 1, -(2 ** 53) + 1, 4294967296]

describe('a literal', () => {
  it.each([...HOSTILE, ...NOT_SAFE_INTEGERS])('rejects %j', value => {
    expect(() => literal(value)).toThrow(new TypeError(REFUSED))
  })

  it.each([undefined, null, true, {}, [], 1n, ['a'], { toString: () => 'a' }, Symbol('a')])(
    'rejects values that are neither text nor numbers: %o',
    value => {
      expect(() => literal(value as unknown as string)).toThrow(new TypeError(REFUSED))
    },
  )

  it('of a negative number is in parentheses, because a minus sign could begin a comment', () => {
    expect(`a-${literal(-1)}`).toBe('a-(-1)')
  })

  it('of -0 is 0', () => {
    expect(literal(-0)).toBe('0')
  })

  it('without its quotes can be part of a longer literal', () => {
    for (const text of NAMES) expect(nameInLiteral(text)).toBe(text)
    for (const text of HOSTILE) expect(() => nameInLiteral(text)).toThrow(TypeError)
  })
})

describeOnRedis('a literal', (start, kind) => {
  let redis: TestRedis
  beforeAll(async () => {
    redis = await start()
  })
  afterAll(() => redis?.close())

  /** Evaluates the literal, and returns its type too, because a number and the same text look alike in a reply. */
  async function evaluated(expression: string): Promise<string> {
    // '%.0f' formats all digits of an integer.
    const source = `local value = ${expression} return type(value) .. ' ' .. (type(value) == 'number' and string.format('%.0f', value) or value)`
    return String(await redis.connection.send(['EVAL', source, '0']))
  }

  it('has the same value in Lua', async () => {
    for (const value of [...NAMES, ...INTEGERS]) {
      expect(await evaluated(literal(value))).toBe(`${typeof value} ${value}`)
    }
  })

  it(`of any value has the same value in Lua, or is rejected (SEED=${SEED})`, async () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 70 }),
      fc.string({ unit: fc.constantFrom('a', 'Z', '0', '_', '-'), maxLength: 70 }),
      fc.string({ unit: fc.constantFrom('a', "'", '\\', '\n', '[', ']', '-'), maxLength: 5 }),
    )
    const value = fc.oneof(text, fc.double(), fc.maxSafeInteger(), fc.integer())
    let made = 0
    const runs = kind === 'embedded' ? 60 : sized(400, 25)
    await forEvery(value, runs, async value => {
      let written: string
      try {
        written = literal(value)
      } catch (error) {
        expect(error).toEqual(new TypeError(REFUSED))
        return
      }
      made += 1
      expect(await evaluated(written)).toBe(`${typeof value} ${Object.is(value, -0) ? 0 : value}`)
    })
    if (!FC_PATH) expect(made).toBeGreaterThan(runs / 8)
  })

  it(`in an expanded call has the same result as the call (SEED=${SEED})`, async () => {
    const integer = fc.integer({ min: -1e9, max: 1e9 })
    const divisor = fc.integer({ min: 1, max: 1e6 })
    await forEvery(fc.tuple(integer, divisor, integer), 20, async ([a, b, c]) => {
      const sum = `${literal(a)} + ${literal(c)}`
      const call = `floor_div(${sum}, ${literal(b)}), ceil_div(${sum}, ${literal(b)}), ceil_to_ms(floor_div(${sum}, ${literal(b)}) - ceil_div(${literal(c)}, ${literal(b)}))`
      const written = expandMacros(`return { ${call} }`)
      const floor = Math.floor((a + c) / b)
      const expected = [floor, Math.ceil((a + c) / b), Math.ceil((floor - Math.ceil(c / b)) / 1000) * 1000]
      // Adding 0 turns -0 into 0.
      const actual = (await redis.connection.send(['EVAL', written, '0'])) as unknown as number[]
      expect(actual.map(Number)).toEqual(expected.map(value => value + 0))
    })
  })
})

describe.each([
  ['with straight-line code', undefined],
  ['with loops', 1],
])('a ruleSet %s', (_, loopsFrom) => {
  const scriptsOf = (shape: RuleSetShape) => compileScripts(shape, loopsFrom)
  const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 3, period: '1s' })
  const of = (rule: Rule, plans: readonly string[] = ['free']) =>
    createRuleSet([{ rule, identity: 'consumer' }], { plans, hasSubject: true }, scriptsOf)
  /** A rule with numbers for a plan, so the text has tags and names of plans. */
  const forPlan = (change: Partial<Rule>) =>
    createRuleSet(
      [
        { rule: { ...rule!, match: { plans: ['free'] } }, identity: 'consumer' },
        { rule: { ...rule!, match: { plans: ['pro'] }, ...change }, identity: 'consumer' },
      ],
      { plans: ['free', 'pro'], hasSubject: true },
      scriptsOf,
    )
  const texts = (ruleSet: ReturnType<typeof of>) => [
    () => ruleSet.decide.plain,
    () => ruleSet.decide.keyLocking,
    () => ruleSet.refund.plain,
    () => ruleSet.refund.keyLocking,
  ]

  it.each(HOSTILE)('is not compiled with a plan, a tag or a family %j', hostile => {
    const ruleSets = [
      of({ ...rule!, match: { plans: ['free'] } }, ['free', hostile]),
      of({ ...rule!, match: { plans: [hostile] } }, [hostile]),
      of({ ...rule!, tag: hostile, takesOverrides: false }),
      of({ ...rule!, tag: hostile }),
      of({ ...rule!, family: hostile }),
      forPlan({ tag: hostile }),
    ]
    for (const ruleSet of ruleSets) for (const text of texts(ruleSet)) expect(text).toThrow(TypeError)
  })

  it.each(NOT_SAFE_INTEGERS)('is not compiled with a number %d', value => {
    for (const number of ['rate', 'period', 'burst'] as const) {
      const quota = { ...rule!.quota, [number]: value }
      const ruleSets = [
        of({ ...rule!, quota, takesOverrides: false }),
        of({ ...rule!, quota }),
        forPlan({ quota }),
      ]
      for (const ruleSet of ruleSets) for (const text of texts(ruleSet)) expect(text).toThrow(TypeError)
    }
  })

  it('has no other property of a rule in its text', () => {
    const hostile = "'hostile"
    const { plain } = ruleSetOf([
      {
        rule: { ...rule!, name: hostile, candidateFor: hostile, match: { methods: new Set([hostile]) } },
        key: hostile,
      },
    ]).decide
    expect(plain.source).not.toContain('hostile')
  })
})

describe('words of a section', () => {
  const upper = (word: string) => (word === 'n' || word === 'first' ? word.toUpperCase() : undefined)

  it.each([
    ['n = n + first', 'N = N + FIRST'],
    ['n_1 = nn + 2n', 'n_1 = nn + 2n'],
    ["n = 'n first' .. n", "N = 'n first' .. N"],
    ["f('n', n, \t'first')", "f('n', N, \t'first')"],
    ['log.n = n.first', 'log.n = N.first'],
    ['f(n)%n', 'f(N)%N'],
    ['', ''],
    ["''", "''"],
  ])('are replaced, but not in quoted text and fields: %j', (text, expected) => {
    expect(replaceWords(text, upper)).toBe(expected)
  })

  it('are replaced literally, whatever characters the new text has', () => {
    expect(replaceWords('n', () => '$& $1 $$')).toBe('$& $1 $$')
  })

  it('are in sections without comments, because quotes in comments would pair up with those of the code', () => {
    for (const lua of Object.values(LUA)) {
      for (const section of [...SECTIONS, 'declare' as const]) {
        const lines = lua[section].split('\n').filter(line => !/^--@ (if \w+|end)$/.test(line))
        expect(lines.filter(line => line.includes('--') || line.includes('"'))).toEqual([])
      }
    }
  })
})

describe('an expanded call', () => {
  it.each([
    ['ceil_to_ms(a)', '(a + -(a) % 1000)'],
    ['floor_div(f(a, b), c)', '((f(a, b) - (f(a, b)) % (c)) / (c))'],
    ['x = floor_div( a ,\nb ) + ceil_to_ms(c)', 'x = ((a - (a) % (b)) / (b)) + (c + -(c) % 1000)'],
    ['unfloor_div(a, b)', 'unfloor_div(a, b)'],
    ['floor_div', 'floor_div'],
  ])('%j becomes %j', (text, expected) => {
    expect(expandMacros(text)).toBe(expected)
  })

  it('is rejected without a closing bracket', () => {
    expect(() => expandMacros('floor_div(a, f(b)')).toThrow('A call in a Lua section has no closing bracket.')
  })
})

describe('locals', () => {
  it('above the bound are fields of one table', () => {
    const locals = new Locals(2)
    expect(['a', 'b', 'c', 'd', 'a', 'c'].map(each => locals.of(each))).toEqual([
      ...['a', 'b', 'spilled[1]', 'spilled[2]', 'a', 'spilled[1]'],
    ])
    expect(locals.declaration()).toBe('local a, b\nlocal spilled = {}\n')
  })

  it('are declared only if there are any', () => {
    expect(new Locals().declaration()).toBe('')
    const few = new Locals()
    few.of('a')
    expect(few.declaration()).toBe('local a\n')
    const none = new Locals(0)
    none.of('a')
    expect(none.declaration()).toBe('local spilled = {}\n')
  })
})
