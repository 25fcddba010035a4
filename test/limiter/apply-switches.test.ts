/** Switches that arrive with the answer of the store: `shadow` and `off` apply to that answer, `enforce` only to later requests. */
import { describe, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { applyNewerSwitches, modeUnderSwitches } from '../../src/limiter/apply-switches.ts'
import type { Evaluation, Outcome, Verdict } from '../../src/script/evaluation.ts'
import { consumerKey, consumerStateKey, credentialKey } from '../../src/store/keys.ts'
import { NO_SWITCHES, type RuleSwitch, type Switches } from '../../src/switches/switches.ts'
import { bound } from '../support/bound.ts'
import { compiled, rulesOf } from '../support/engines.ts'

const rule = (name: string, more: Partial<RuleInput> = {}) =>
  ({ name, by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '1h', ...more }) as RuleInput
const KEY = consumerStateKey('acme')
const nameOf = ({ name }: { name: string }) => name
const ALL = rulesOf(
  rule('minute'),
  rule('hour'),
  rule('tried', { mode: 'shadow' }),
  rule('none', { mode: 'off' }),
  rule('guesses', { by: 'address', on: 'auth-failure' }),
)
const set = { at: new Date(0), by: 'ops' }
const switched = (rules: Record<string, Pick<RuleSwitch, 'mode' | 'share'>>, kill = false): Switches => ({
  ...(kill && { kill: set }),
  rules: new Map(Object.entries(rules).map(([name, each]) => [name, { ...set, ...each }])),
})

function evaluationOf(names: string[], atBinding = NO_SWITCHES): Evaluation {
  const rules = ALL.filter(({ name }) => names.includes(name)).flatMap(rule => {
    const mode = modeUnderSwitches(rule, KEY, atBinding, rule.name)
    return mode === 'off' ? [] : [{ ...bound(rule, KEY), mode }]
  })
  const subject = {
    kind: 'key',
    consumerKey: consumerKey('acme'),
    credentialKey: credentialKey('acme', 'f'),
  } as const
  return compiled({ rules, plans: ['free'], subject })
}

/** The answer of the store if these rules refuse. */
function outcomeOf({ rules }: Evaluation, refusing: string[], plan = 'free'): Outcome {
  const verdicts = rules.map(({ rule, mode }): Verdict => {
    const allowed = !refusing.includes(rule.name)
    return { rule, mode, allowed, remaining: 0, resetAfter: 1, retryAfter: allowed ? 0 : 1, delay: 0 }
  })
  const isRefused = verdicts.some(({ allowed, mode }) => !allowed && mode === 'enforce')
  return { status: isRefused ? 'refused' : 'admitted', plan, at: 1, verdicts }
}

function relaxed(
  names: string[],
  refusing: string[],
  [atBinding, latest]: [Switches, Switches],
  plan?: string,
) {
  const evaluation = evaluationOf(names, atBinding)
  const outcome = applyNewerSwitches(outcomeOf(evaluation, refusing, plan), evaluation, latest, nameOf)
  return [outcome.status, ...outcome.verdicts.map(({ rule, mode }) => `${rule.name} ${mode}`)]
}

const BOTH = ['minute', 'hour']

describe('a refusal', () => {
  it.each<[string, Switches, string[]]>([
    ['shadow', switched({ minute: { mode: 'shadow' } }), ['admitted', 'minute shadow', 'hour enforce']],
    ['off', switched({ minute: { mode: 'off' } }), ['admitted', 'hour enforce']],
    [
      'enforced for no caller',
      switched({ minute: { share: 0 } }),
      ['admitted', 'minute shadow', 'hour enforce'],
    ],
    ['off by the kill switch', switched({}, true), ['admitted']],
  ])('by a rule that is now %s is lifted', (_, latest, expected) => {
    expect(relaxed(BOTH, ['minute'], [NO_SWITCHES, latest])).toEqual(expected)
  })

  it('by two rules remains if one of them is still enforced', () => {
    const latest = switched({ minute: { mode: 'shadow' } })
    expect(relaxed(BOTH, BOTH, [NO_SWITCHES, latest])).toEqual(['refused', 'minute shadow', 'hour enforce'])
  })

  it('is lifted if its rule is no longer switched to enforce', () => {
    const on = switched({ tried: { mode: 'enforce' }, none: { mode: 'enforce' } })
    expect(relaxed(['tried', 'none'], ['tried'], [on, NO_SWITCHES])).toEqual(['admitted', 'tried shadow'])
    expect(relaxed(['tried', 'none'], ['none'], [on, NO_SWITCHES])).toEqual(['admitted', 'tried shadow'])
  })

  it('for too many guesses stays, because the credential has not been checked', () => {
    for (const latest of [switched({}, true), switched({ guesses: { mode: 'off' } })]) {
      expect(relaxed(['minute', 'guesses'], ['guesses'], [NO_SWITCHES, latest])).toEqual([
        'refused',
        'minute enforce',
        'guesses enforce',
      ])
    }
  })

  it('stays if the credential is not verified because its slot has not answered', () => {
    const latest = switched({}, true)
    expect(relaxed(['minute'], ['minute'], [NO_SWITCHES, latest], '')).toEqual(['refused', 'minute enforce'])
  })

  it('by an override of the consumer is also lifted by a switch', () => {
    // The record of the consumer enforces a rule that was bound as a shadow.
    const atBinding = switched({ minute: { mode: 'shadow' } })
    const evaluation = evaluationOf(['minute'], atBinding)
    const outcome = outcomeOf(evaluationOf(['minute']), ['minute'])
    expect(applyNewerSwitches(outcome, evaluation, atBinding, nameOf)).toMatchObject({
      status: 'admitted',
      verdicts: [{ mode: 'shadow' }],
    })
    // For a rule without a switch, the override of the consumer decides.
    const tried = evaluationOf(['tried'])
    const own = { ...outcomeOf(evaluationOf(['tried'], switched({ tried: { mode: 'enforce' } })), ['tried']) }
    expect(applyNewerSwitches(own, tried, NO_SWITCHES, nameOf)).toEqual(own)
  })
})

describe('an admission', () => {
  it('stays if a rule is switched to enforce meanwhile', () => {
    const atBinding = switched({ minute: { mode: 'shadow' } })
    expect(relaxed(['minute', 'tried'], BOTH, [atBinding, switched({ tried: { mode: 'enforce' } })])).toEqual(
      ['admitted', 'minute shadow', 'tried shadow'],
    )
  })

  it('under a rule by global that is enforced for a share depends on the caller', () => {
    const [all] = rulesOf(rule('all', { by: 'global' }))
    const share = switched({ all: { share: 0.5 } })
    const statuses = Array.from({ length: 20 }, (_, i) => {
      const shareKey = consumerStateKey(`consumer-${i}`)
      const evaluation = compiled({ rules: [{ ...bound(all!, KEY), shareKey }], plans: ['free'] })
      const { status } = applyNewerSwitches(outcomeOf(evaluation, ['all']), evaluation, share, nameOf)
      const mode = modeUnderSwitches(all!, shareKey, share, 'all')
      expect([mode, status]).toEqual(mode === 'enforce' ? [mode, 'refused'] : ['shadow', 'admitted'])
      return status
    })
    expect(new Set(statuses).size).toBe(2)
  })

  it('shows a rule that is now a shadow as a shadow', () => {
    const latest = switched({ minute: { mode: 'shadow' }, hour: { mode: 'off' } })
    expect(relaxed(BOTH, [], [NO_SWITCHES, latest])).toEqual(['admitted', 'minute shadow'])
  })
})

describe('a share', () => {
  const keys = Array.from({ length: 1000 }, (_, i) => consumerStateKey(`consumer-${i}`))
  const [minute] = ALL
  const enforcedAt = (share: number) =>
    keys.filter(
      key => modeUnderSwitches(minute!, key, switched({ minute: { share } }), 'minute') === 'enforce',
    )

  it('keeps its callers when it grows, contains no caller at 0, and contains all callers at 1', () => {
    const [none, some, more, all] = [0, 0.25, 0.5, 1].map(enforcedAt)
    expect([none!.length, all!.length]).toEqual([0, 1000])
    expect(some!.length).toBeGreaterThan(200)
    expect(some!.length).toBeLessThan(300)
    expect(some!.filter(key => !more!.includes(key))).toEqual([])
  })

  it('does not enforce a rule that is a shadow', () => {
    const tried = ALL.find(({ name }) => name === 'tried')!
    expect(modeUnderSwitches(tried, KEY, switched({ tried: { share: 1 } }), 'tried')).toBe('shadow')
    expect(modeUnderSwitches(tried, KEY, switched({ tried: { mode: 'enforce' } }), 'tried')).toBe('enforce')
  })
})
