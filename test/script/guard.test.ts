/** The guard in front of a script. test/script/parity.test.ts runs guarded scripts, and test/set-ups/api/token-check.test.ts uses them. */
import { createHash } from 'node:crypto'
import { expect, it } from 'vitest'
import { createScriptFinder, fingerprintOf } from '../../src/script/built-scripts.ts'
import { FIRST_LINES } from '../../src/script/create-script.ts'
import { guardCall, guardedScript } from '../../src/script/guard.ts'
import { createLimitRuleSet } from '../../src/script/rule-set.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import type { Script } from '../../src/store/store.ts'
import { configOf } from '../support/engines.ts'

const CONFIG = configOf({
  rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
  limits: {
    calls: [{ name: 'window', by: ['account'], algorithm: 'fixed-window', limit: 10, period: '1d' }],
  },
})
const RULES = CONFIG.limits.get('calls')!
const compiled = createLimitRuleSet(RULES, compileScripts)
const KINDS = ['plain', 'keyLocking'] as const

const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')

/** The rule set with scripts as a built Worker has them. */
function builtRuleSet() {
  const builtOf = (script: Script) => ({
    text: script.plain.source.slice(FIRST_LINES.plain.length),
    sha1: { plain: script.plain.sha1, keyLocking: script.keyLocking.sha1 },
  })
  const { decide, refund } = compiled
  const built = { [fingerprintOf(compiled)]: { decide: builtOf(decide), refund: builtOf(refund) } }
  return createLimitRuleSet(RULES, createScriptFinder(built))
}

it('comes before the script, in less than 300 bytes and without a line of its own', async () => {
  for (const kind of KINDS) {
    const script = compiled.decide[kind]
    const guarded = (await guardedScript(compiled.decide))[kind]
    expect(guarded.sha1).toBe(sha1(guarded.source))
    expect(guarded.source.startsWith(FIRST_LINES[kind])).toBe(true)
    expect(guarded.source.endsWith(script.source.slice(FIRST_LINES[kind].length))).toBe(true)
    expect(guarded.source.split('\n')).toHaveLength(script.source.split('\n').length)
    expect(guarded.source.length - script.source.length).toBeLessThan(300)
  }
})

it('is put in front of built scripts, too, and only once', async () => {
  const built = builtRuleSet()
  for (const name of ['decide', 'refund'] as const) {
    const guarded = await guardedScript(built[name])
    expect(guarded).toEqual(await guardedScript(compiled[name]))
    expect(await guardedScript(built[name])).toBe(guarded)
  }
})

it('leaves the script without a guard as it was', async () => {
  const before = { ...compiled.decide.plain }
  await guardedScript(compiled.decide)
  expect(compiled.decide.plain).toEqual(before)
  expect(before.sha1).toBe(sha1(before.source))
})

it('gets the record of the token as the last key, and the scopes as the last argument', async () => {
  const call = { script: compiled.decide, keys: ['state'], args: ['decide', '1e'], hasHiddenKeys: true }
  expect(await guardCall(call, { key: 'token', scopes: ['limits:use', 'limits:use:calls'] })).toEqual({
    ...{ script: await guardedScript(compiled.decide), hasHiddenKeys: true },
    ...{ keys: ['state', 'token'], args: ['decide', '1e', 'limits:use,limits:use:calls'] },
  })
})
