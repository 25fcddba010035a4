/** A shortened script does the same: only locals are renamed, and only unneeded spaces are removed. */
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { LUA } from '../../src/algorithms/lua.generated.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import { createScript } from '../../src/script/create-script.ts'
import { resetText } from '../../src/script/reset.ts'
import { decideText, refundText } from '../../src/script/rule-set-text.ts'
import { shortenScript } from '../../src/script/shorten-script.ts'
import { signalText } from '../../src/script/signal-text.ts'
import { syncText } from '../../src/script/sync-text.ts'
import { configOf } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

const ruleSet = gatewayRuleSet(
  configOf({
    plans: ['free', 'pro'],
    rules: Object.keys(LUA).map((algorithm, i) => ({
      ...({ name: `rule-${i}`, algorithm, by: 'consumer', limit: 10 } as const),
      ...(algorithm !== 'concurrency' && { period: '1s' }),
    })) as never,
  }),
)
const TEXTS = [
  ...[decideText(ruleSet), refundText(ruleSet), decideText(ruleSet, 1), refundText(ruleSet, 1)],
  ...[resetText(), syncText(), signalText()],
]

/** Scripts that would return something else if names were mixed up. */
const SHADOWING = `
local value, other = 1, 2
local function add(value, count)
  if count == 0 then return value end
  local other = value + 1
  return add(other, count - 1)
end
do local value = 10 other = other + value end
for value = 1, 3 do other = other * value end
for position, value in ipairs({ 5, 6 }) do other = other + position * value end
local later = function(...) local first, rest = ... return rest, first end
return cjson.encode({ value, other, add(value, 4), { later(other, value) } })`

const STRINGS = `
local value = 3 -- value 'value
local text = 'value \\' value' .. "\\"value\\"" .. [[value ' ]=] ]] .. [==[ ]] value]==] --[[ value
value = 4 ]] --[=[ ]] value = 5 ]=]
local hex = 0xE+value
return text .. value .. hex .. #text .. 1 - -value`

const FIELDS = `
local value, key, length = 3, 'value', 5
local it = { value = 4, [key] = 6, length, key, value == 3, function(value) return value end }
it.length = value
function it:method(value) return self.length + value + length end
function it.plain(value, ...) return value + select('#', ...) end
return cjson.encode({ it.value, it [ key ], it . length, it:method(value), it.plain(length, value, key), it[4](key) })`

/** The names in the text, without those inside strings. */
const namesIn = (text: string) => new Set(text.replace(/'[^']*'/g, "''").match(/(?<![\w.])[A-Za-z_]\w*/g))

describe('a shortened script', () => {
  it.each([
    ['local first_name = 1 return first_name', /^local (\w)=1 return \1$/],
    ['local one, two = 1, 2 return two, one', /^local (\w),(\w)=1,2 return \2,\1$/],
    ['for index = 1, 3 do call(index) end', /^for (\w)=1,3 do call\(\1\)end$/],
    ['for key, value in pairs(all) do end', /^for (\w),(\w) in pairs\(all\)do end$/],
    [
      'local function name(one, two, ...) return one end',
      /^local function (\w)\((\w),(\w),...\)return \2 end$/,
    ],
    ['local own_7, other_8 = own_9', /^local (\w)7,(\w)8=own_9$/],
  ])('has short names for locals: %s', (text, expected) => {
    expect(shortenScript(text)).toMatch(expected)
  })

  it.each([
    "local name = 'name \\' name' .. \"name\\\" 'name\" .. 'a\\\nname'",
    'local name = [[name ] name\n]=] name]] .. [==[name ]] name ]=] name]==]',
    'local other = [[name]] --[[ name\n ]] --[==[ ]] name\n]==] --name\nreturn other',
    "local other = '--' .. name --[=[ ' ]] ]=]",
    'local other = 0xE+name - 3e-2 - .5 - 1e5 - 0Xffname',
  ])('does not change strings, comments and numbers: %j', text => {
    const literals =
      /'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\[(=*)\[.*?\]\1\]|--[^\n]*|0[xX]\w+|\d(?:[eE][+-]|\w)*/gs
    expect(shortenScript(text).match(literals)).toEqual(text.match(literals))
  })

  it.each(['redis', 'KEYS', 'unpack', 'struct', '_G', 'string', 'arg', 'self', 'server'])(
    'keeps %s, which may be the global elsewhere',
    name => {
      const text = `local ${name}=${name} return ${name}`
      expect(shortenScript(text)).toBe(text)
    },
  )

  it.each([
    'local field_name=3 call(it.field_name)',
    'local field_name=3 call(it . field_name)',
    'local field_name=3 it:field_name()',
    'local field_name=3 call{field_name=4}',
    'local field_name=3 call{1,field_name=4}',
    'local field_name=3 call{1;field_name=4}',
  ])('keeps names that are also fields: %s', text => {
    expect(shortenScript(text).match(/field_name/g)).toHaveLength(2)
  })

  it('renames a local that only looks like a field', () => {
    const text =
      "local long_name=1 return'a'..long_name,{long_name},{[long_name]=2},{1,long_name==1},f(...,long_name)"
    expect(shortenScript(text)).not.toContain('long_name')
  })

  it.each([
    ['local a = 1 - -1 - b  --  c', 'local a=1- -1-b--  c'],
    ["return t[ [[ a ]] ] .. 1 .. 2 .. ' , '", "return t[ [[ a ]]]..1 ..2 ..' , '"],
    ['return t [ [=[ a ]=] ] [ 1 ]', 'return t[ [=[ a ]=]][1]'],
    ['f (...) .. .5 .. a . b : c ()', 'f(...).. .5 ..a.b:c()'],
    ['return 1 or 0x1 or - a', 'return 1 or 0x1 or-a'],
    ['  a = 1\n  b = 2 \n\n', '  a=1\n  b=2 \n\n'],
  ])('has only the spaces that are needed: %j', (text, expected) => {
    expect(shortenScript(text)).toBe(expected)
  })

  it('has no short name that is in use already, is a keyword, or stands for another name', () => {
    const names = Array.from({ length: 3000 }, (_, i) => `name${'x'.repeat(i % 7)}${i}y`)
    // All names of one letter are in use.
    const letters = [...'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ']
    const text = `${names.map((name, i) => `local ${name} = ${i}\n`).join('')}return ${letters.join(',')}`
    const short = shortenScript(text)
    const given = [...short.matchAll(/local (\w+)=/g)].map(([, name]) => name!)
    expect(new Set(given).size).toBe(3000)
    for (const taken of [...letters, 'do', 'if', 'in', 'or', 'io', 'os']) expect(given).not.toContain(taken)
  })

  it('does not change if it is shortened again, and is the same each time', () => {
    for (const text of TEXTS) {
      expect(shortenScript(text)).toBe(shortenScript(text))
      expect(shortenScript(shortenScript(text))).toBe(shortenScript(text))
    }
  })

  it('has the same number of lines and of different names, and the same strings in the same order', () => {
    for (const text of TEXTS) {
      const short = shortenScript(text)
      expect(short.length).toBeLessThan(text.length * 0.75)
      expect(short.split('\n').length).toBe(text.split('\n').length)
      expect(namesIn(short).size).toBe(namesIn(text).size)
      expect(short.match(/'[^']*'/g)).toEqual(text.match(/'[^']*'/g))
    }
  })

  it('is the deployed text of both builds', () => {
    const { plain, keyLocking } = createScript(TEXTS[0]!)
    expect(plain.source).toBe(`\n${shortenScript(TEXTS[0]!)}`)
    expect(keyLocking.source.split('\n').slice(1)).toEqual(plain.source.split('\n').slice(1))
    expect(ruleSet.decide.plain).toEqual(plain)
  })
})

describeOnRedis('a shortened script', start => {
  let redis: TestRedis
  beforeAll(async () => {
    redis = await start()
  })
  afterAll(() => redis?.close())

  const run = async (text: string) => String(await redis.connection.send(['EVAL', text, '1', 'k', '7', '8']))

  it.each([
    ['names that hide others, closures and recursion', SHADOWING],
    ['strings and comments', STRINGS],
    ['fields, methods and keys', FIELDS],
  ])('returns the same: %s', async (_, text) => {
    expect(shortenScript(text)).not.toBe(text)
    expect(await run(shortenScript(text))).toBe(await run(text))
  })

  it(`returns the same, whatever the names of its locals (SEED=${SEED})`, async () => {
    const word = fc.constantFrom(
      'a',
      'b',
      'do_',
      'ends',
      'now',
      'a_1',
      'a_2',
      'x_1',
      'k2',
      'e',
      'now_2',
      '_',
      '__',
      'If',
    )
    await forEvery(fc.tuple(word, word, word, fc.integer({ min: 0, max: 9 })), 40, async ([a, b, c, n]) => {
      const text = `
local ${a}, other = ${n}, ARGV[1] + 0
local function call(${b}, more)
  local ${c} = ${b} * 10 - -more
  return { ${c}, key = ${b}, [${b}] = more }
end
for ${c} = 1, 2 do other = other + call(${c}, ${a})[1] end
return cjson.encode({ other, call(${a}, other).key, call(other, ${a})[other] })`
      expect(await run(shortenScript(text))).toBe(await run(text))
    })
  })
})
