/** The class of a request if several match, or if the plan of the caller is not known yet. */
import { describe, expect, it } from 'vitest'
import type { TrafficClass } from '../../src/config/compile-shedding.ts'
import type { Credential } from '../../src/credentials/credential.ts'
import { classOfReading, knownPlanOf } from '../../src/set-ups/http/traffic-class.ts'

const CLASSES: TrafficClass[] = [
  { name: 'critical', rank: 0, match: { plans: ['enterprise'] } },
  { name: 'reads', rank: 1 },
  { name: 'batch', rank: 2, match: { authenticated: true, plans: ['batch'] } },
  { name: 'anonymous', rank: 3, match: { authenticated: false } },
]
const PLANS = ['free', 'test', 'batch', 'enterprise']
const credential = { subject: { kind: 'key' } } as Credential
const KNOWN = { credential }
const ANONYMOUS = {}

describe('the class of a request', () => {
  it.each([
    ['enterprise', 'critical'],
    ['free', 'reads'],
    ['batch', 'batch'],
  ])('of plan %s is %s', (plan, name) => expect(classOfReading(CLASSES, KNOWN, plan, PLANS).name).toBe(name))

  it('is the most important possible one while the plan is unknown', () => {
    expect(classOfReading(CLASSES, KNOWN, undefined, PLANS).name).toBe('critical')
    expect(classOfReading(CLASSES.slice(1), KNOWN, undefined, PLANS).name).toBe('reads')
  })

  it('is the first that matches, whatever its importance', () => {
    const classes: TrafficClass[] = [
      { name: 'test', rank: 2, match: { plans: ['test'] } },
      { name: 'critical', rank: 0, match: { methods: new Set(['POST']) } },
      { name: 'reads', rank: 1 },
    ]
    expect(classOfReading(classes, KNOWN, 'test', PLANS).name).toBe('test')
    expect(classOfReading(classes, KNOWN, 'free', PLANS).name).toBe('critical')
    expect(classOfReading(classes, KNOWN, undefined, PLANS).name).toBe('critical')
    expect(classOfReading(classes, ANONYMOUS, undefined, PLANS).name).toBe('critical')
    // Without `critical`, as on another path: the key may have any plan.
    expect(classOfReading([classes[0]!, classes[2]!], KNOWN, undefined, PLANS).name).toBe('reads')
  })

  it('is not one that no plan would give, while the plan is unknown', () => {
    const classes: TrafficClass[] = [
      { name: 'free', rank: 2, match: { plans: ['free'] } },
      { name: 'paid', rank: 1, match: { plans: ['test', 'batch', 'enterprise'] } },
      { name: 'rest', rank: 0 },
    ]
    expect(classOfReading(classes, KNOWN, undefined, PLANS).name).toBe('paid')
    expect(classOfReading(classes, KNOWN, undefined, [...PLANS, 'new']).name).toBe('rest')
  })

  it('of a caller without a credential never depends on a plan', () => {
    expect(classOfReading(CLASSES, ANONYMOUS, undefined, PLANS).name).toBe('anonymous')
    expect(classOfReading(CLASSES.slice(0, 3), ANONYMOUS, undefined, PLANS).name).toBe('reads')
  })

  it("depends on the plan of the token, else on the store's last answer", () => {
    const token = { credential: { subject: { kind: 'token', consumerKey: '', plan: 'batch' } } as Credential }
    expect(knownPlanOf(token, () => ({ plan: 'free' }))).toBe('batch')
    expect(knownPlanOf(KNOWN, () => ({ plan: 'free' }))).toBe('free')
    expect(knownPlanOf(KNOWN, () => undefined)).toBeUndefined()
    expect(knownPlanOf(ANONYMOUS, () => ({ plan: 'free' }))).toBeUndefined()
  })
})
