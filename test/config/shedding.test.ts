/** The setting `shedding`: how it is compiled, and its mistakes with path, value and fix. */
import { describe, expect, it } from 'vitest'
import { checkConfig, checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { GatewayRule } from '../../src/config/compile-rule.ts'
import { limitForClass } from '../../src/config/compile-shedding.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { findSwitchable, listSwitchable } from '../../src/ops/switches.ts'

type Shedding = NonNullable<ConfigInput['shedding']>

const BASE: Omit<ConfigInput, 'shedding'> = {
  origin: 'https://api.example.com',
  rules: [{ name: 'second', by: 'address', algorithm: 'gcra', limit: 10, period: '1s' }],
}
const CLASSES: Shedding['classes'] = [
  { name: 'critical', match: { methods: ['POST'] } },
  { name: 'reads' },
  { name: 'test', match: { path: '/test/*' } },
]

function mistakesOf(shedding: unknown, others: Partial<ConfigInput> = {}): string[] {
  try {
    checkConfig({ ...BASE, ...others, shedding })
    return []
  } catch (error) {
    if (error instanceof ConfigError) return error.mistakes.map(({ path, message }) => `${path} ${message}`)
    throw error
  }
}

describe('shedding', () => {
  it.each<[string, unknown, Partial<ConfigInput>?]>([
    [
      "shedding.classes [{ name: 'all' }] has fewer than two classes: there is nothing to choose from. Add one.",
      { classes: [{ name: 'all' }], fleetUsage: { capacity: 10 } },
    ],
    [
      'shedding.classes has a match in every class. Leave it out in one: that class gets every request that no other class matches.',
      { classes: [CLASSES[0], CLASSES[2]], fleetUsage: { capacity: 10 } },
    ],
    [
      'shedding.classes has several classes without a match (reads, rest). Give all but one a match.',
      { classes: [...CLASSES, { name: 'rest' }], fleetUsage: { capacity: 10 } },
    ],
    [
      "shedding.classes[3].name 'test' is already the name of shedding.classes[2]. Give each class its own name.",
      { classes: [...CLASSES, CLASSES[2]], fleetUsage: { capacity: 10 } },
    ],
    [
      "shedding.classes[3].match.plans 'gold' is not in plans (free). Add it there.",
      { classes: [...CLASSES, { name: 'gold', match: { plans: ['gold'] } }], fleetUsage: { capacity: 10 } },
    ],
    [
      'shedding.classes has no effect without a shedder. Add fleetUsage or workerUtilization.',
      { classes: CLASSES },
    ],
    [
      'shedding.classes are all critical, so none can be shed. Leave critical out of one.',
      { classes: CLASSES.map(each => ({ ...each, critical: true })), fleetUsage: { capacity: 10 } },
    ],
    [
      'shedding.classes[1].critical true is on a class that is less important than critical, which is not critical. Change importance, or leave it out.',
      { classes: [CLASSES[0], { name: 'reads', critical: true }], fleetUsage: { capacity: 10 } },
    ],
    [
      "shedding.classes[0].critical 'yes' is neither true nor false. Write true or false, without quotes.",
      { classes: [{ ...CLASSES[0], critical: 'yes' }, CLASSES[1]], fleetUsage: { capacity: 10 } },
    ],
    [
      'shedding.workerUtilization.aggregate.busyShare 1.5 is not a share. Write a number from 0.01 to 1.',
      { classes: CLASSES, workerUtilization: { signals: ['push'], aggregate: { busyShare: 1.5 } } },
    ],
    [
      "shedding.workerUtilization.aggregate 'most' is not a way to sum up machines. Write 'mean', 'max' or { busyShare: 0.5 }.",
      { classes: CLASSES, workerUtilization: { signals: ['push'], aggregate: 'most' } },
    ],
    [
      "shedding.workerUtilization.aggregate has no effect without the signal 'push': of the other signals, only the mean is known. Add the signal, or leave this out.",
      { classes: CLASSES, workerUtilization: { signals: ['header'], aggregate: 'max' } },
    ],
    [
      'shedding.fleetUsage.reserved.writes is not a class (critical, reads, test). Name one of them.',
      { classes: CLASSES, fleetUsage: { capacity: 10, reserved: { writes: 0.1 } } },
    ],
    [
      'shedding.fleetUsage.reserved.test 0.1 has no effect: no class is less important. Leave it out.',
      { classes: CLASSES, fleetUsage: { capacity: 10, reserved: { test: 0.1 } } },
    ],
    [
      'shedding.fleetUsage.reserved leaves 0 of 10 requests for test. Reserve less, or raise the capacity.',
      { classes: CLASSES, fleetUsage: { capacity: 10, reserved: { critical: 0.5, reads: 0.45 } } },
    ],
    [
      'shedding.workerUtilization.low 0.8 is not below high (0.8). Lower it.',
      { classes: CLASSES, workerUtilization: { signals: ['header'], low: 0.8 } },
    ],
    [
      'shedding.importance leaves out reads, test. Name every class.',
      { classes: CLASSES, importance: ['critical'], fleetUsage: { capacity: 10 } },
    ],
    [
      "shedding.importance[0] 'critcal' is not a class (critical, reads, test). Did you mean 'critical'?",
      {
        classes: CLASSES,
        importance: ['critcal', 'critical', 'reads', 'test'],
        fleetUsage: { capacity: 10 },
      },
    ],
    [
      "shedding.importance[3] 'reads' is in the list twice. Leave it out once.",
      {
        classes: CLASSES,
        importance: ['critical', 'reads', 'test', 'reads'],
        fleetUsage: { capacity: 10 },
      },
    ],
    [
      'shedding.fleetUsage.reserved.critical 0.1 has no effect: no class is less important. Leave it out.',
      {
        classes: CLASSES,
        importance: ['test', 'reads', 'critical'],
        fleetUsage: { capacity: 10, reserved: { critical: 0.1 } },
      },
    ],
    [
      "shedding.workerUtilization.signals 'in-flight' needs fleetUsage.capacity. Add it.",
      { classes: CLASSES, workerUtilization: { signals: ['in-flight'] } },
    ],
    [
      "shedding.workerUtilization.header 'x-load' has no effect without the signal 'header'. Add the signal, or leave this out.",
      { classes: CLASSES, workerUtilization: { signals: ['push'], header: 'x-load' } },
    ],
    [
      "shedding.workerUtilization.staleAfter '10s' has no effect without the signal 'push'. Add the signal, or leave this out.",
      { classes: CLASSES, workerUtilization: { signals: ['header'], staleAfter: '10s' } },
    ],
    [
      "shedding.workerUtilization.signals [] is empty. Name a signal, as in ['header'].",
      { classes: CLASSES, workerUtilization: { signals: [] } },
    ],
    [
      "rules[0].name 'worker-utilization-test' is the name of a shedder. Choose another name.",
      { classes: CLASSES, workerUtilization: { signals: ['header'] } },
      { rules: [{ ...BASE.rules![0]!, name: 'worker-utilization-test' }] },
    ],
    [
      'shedding.fleetUsage.adaptive.min 20 is above the capacity (10). Lower it.',
      { classes: CLASSES, fleetUsage: { capacity: 10, adaptive: { min: 20 } } },
    ],
    [
      'shedding.fleetUsage.adaptive.tolerance 1 is not a multiple. Write a number from 1.1 to 10.',
      { classes: CLASSES, fleetUsage: { capacity: 10, adaptive: { tolerance: 1 } } },
    ],
    [
      'shedding.fleetUsage.adaptive.initial 2 is not between min (4) and the capacity (10). Change it.',
      { classes: CLASSES, fleetUsage: { capacity: 10, adaptive: { min: 4, initial: 2 } } },
    ],
    [
      'shedding.fleetUsage.adaptive is the second adaptive limit: rules[0].adaptive already follows the origin. Leave one of them out.',
      { classes: CLASSES, fleetUsage: { capacity: 10, adaptive: {} } },
      { rules: [{ name: 'origin', by: 'global', algorithm: 'concurrency', limit: 10, adaptive: {} }] },
    ],
    [
      'rules[0].cost 10 cannot be combined with adaptive: the limit may fall below it. Leave it out.',
      undefined,
      {
        rules: [
          { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 40, cost: 10, adaptive: {} },
        ],
      },
    ],
    [
      "shedding.workerUtilization.header 'Set-Cookie' is a standard header, and would be removed from replies. Use a header of your own, such as 'x-utilization'.",
      { classes: CLASSES, workerUtilization: { signals: ['header'], header: 'Set-Cookie' } },
    ],
    [
      "shedding.workerUtilization.signals 'in-flight' needs fleetUsage, whose mode is 'off'. Use 'shadow', or another signal.",
      {
        classes: CLASSES,
        fleetUsage: { capacity: 10, mode: 'off' },
        workerUtilization: { signals: ['in-flight'] },
      },
    ],
    [
      "rules[0].name 'worker-utilization' is the name of a shedder. Choose another name.",
      { classes: CLASSES, workerUtilization: { signals: ['header'] } },
      { rules: [{ ...BASE.rules![0]!, name: 'worker-utilization' }] },
    ],
    [
      "rules[0].adaptive needs by: 'global' and no plans, because it follows the origin. Change the rule, or leave it out.",
      undefined,
      { rules: [{ name: 'origin', by: 'consumer', algorithm: 'concurrency', limit: 10, adaptive: {} }] },
    ],
  ])('%s', (mistake, shedding, others) => expect(mistakesOf(shedding, others)).toEqual([mistake]))

  it('compiles each reserved part to a rule with a lower limit for the less important classes', () => {
    const reserved = { critical: 0.2, reads: 0.1 }
    const { rules } = checkedConfig({
      ...BASE,
      onStoreFailure: 'closed',
      shedding: { classes: CLASSES, fleetUsage: { capacity: 400, reserved, ttl: '20s', mode: 'shadow' } },
    })
    expect(rules.slice(1)).toMatchObject([
      { name: 'fleet-usage', limit: 400, period: 20e6, match: { fromRank: 0 } },
      { name: 'fleet-usage-reads', limit: 320, match: { fromRank: 1 }, mode: 'shadow' },
      { name: 'fleet-usage-test', limit: 280, match: { fromRank: 2 }, onStoreFailure: 'closed' },
    ])
  })

  it('accepts any name for a class, even that of a property of every object', () => {
    const classes = [{ name: 'constructor', match: { methods: ['POST'] } }, { name: 'other' }]
    const { rules } = checkedConfig({
      ...BASE,
      shedding: { classes, fleetUsage: { capacity: 10, reserved: {} } },
    })
    expect(rules.slice(1).map(({ name, limit }) => [name, limit])).toEqual([['fleet-usage', 10]])
  })

  it('reserves a fifth for the first class by default', () => {
    const { rules } = checkedConfig({ ...BASE, shedding: { classes: CLASSES, fleetUsage: { capacity: 10 } } })
    expect(rules.slice(1).map(({ name, limit }) => [name, limit])).toEqual([
      ['fleet-usage', 10],
      ['fleet-usage-reads', 8],
    ])
  })

  it.each([
    [{}, { method: 'gradient', min: 4, max: 400, initial: 20, tolerance: 2 }],
    [
      { method: 'aimd' as const, min: 30 },
      { method: 'aimd', min: 30, max: 400, initial: 30, tolerance: 2 },
    ],
  ])('has one adaptive limit, of a rule or of the fleet: %j', (adaptive, expected) => {
    const rule = { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 400, adaptive } as const
    const ofRule = checkedConfig({ ...BASE, rules: [rule] })
    expect(ofRule.adaptive).toEqual(expected)
    expect(ofRule.rules).toMatchObject([{ isSystemLimit: true, adaptiveShare: 1 }])
    const shedding = { classes: CLASSES, fleetUsage: { capacity: 400, adaptive } }
    const ofFleet = checkedConfig({ ...BASE, shedding })
    expect(ofFleet.adaptive).toEqual(expected)
    expect(ofFleet.rules.slice(1)).toMatchObject([{ adaptiveShare: 1 }, { adaptiveShare: 0.8 }])
  })

  it('sheds every class but the first by utilization, the least important first', () => {
    const { shedding } = checkedConfig({
      ...BASE,
      shedding: { classes: CLASSES, workerUtilization: { signals: ['header', 'push'] } },
    })
    expect(shedding!.workerUtilization).toEqual({
      rules: [
        { name: 'worker-utilization-test', rank: 2, mode: 'enforce', enforcedShare: 1 },
        { name: 'worker-utilization-reads', rank: 1, mode: 'enforce', enforcedShare: 1 },
      ],
      header: 'x-utilization',
      pushes: { staleAfterMs: 30_000 },
      isInFlight: false,
      ...{ high: 0.8, low: 0.7, pace: 'proportional', afterMs: 28_000, withinMs: 120_000 },
    })
  })
})

describe('importance', () => {
  const importance = ['reads', 'critical', 'test']
  const { shedding, rules } = checkedConfig({
    ...BASE,
    shedding: {
      ...{ classes: CLASSES, importance },
      fleetUsage: { capacity: 100, reserved: { reads: 0.3 } },
      workerUtilization: { signals: ['header'] },
    },
  })

  it('ranks the classes, which are matched in the order of the config', () => {
    expect(shedding!.classes.map(({ name, rank }) => [name, rank])).toEqual([
      ['critical', 1],
      ['reads', 0],
      ['test', 2],
    ])
  })

  it('decides who has room in the fleet, and who is shed first by utilization', () => {
    const levels = rules.filter(({ isSystemLimit }) => isSystemLimit)
    expect(levels.map(({ name, limit }) => [name, limit])).toEqual([
      ['fleet-usage', 100],
      ['fleet-usage-critical', 70],
    ])
    expect(shedding!.workerUtilization!.rules.map(({ name }) => name)).toEqual([
      'worker-utilization-test',
      'worker-utilization-critical',
    ])
  })
})

describe('the limit of a level of the fleet', () => {
  const levelsOf = (capacity: number, reserved: Record<string, number>) =>
    checkedConfig({
      ...BASE,
      shedding: { classes: CLASSES, fleetUsage: { capacity, reserved } },
    }).rules.filter(({ isSystemLimit }) => isSystemLimit)
  const limitsOf = (rule: GatewayRule) => [0, 1, 2].map(rank => limitForClass(rule, rule.limit, { rank }))

  it('is lower by 2 % for each more important class of the level, at least by 1 and at most by a fifth', () => {
    const [all] = levelsOf(400, { critical: 0 })
    expect(limitsOf(all!)).toEqual([400, 392, 384])
    const [few] = levelsOf(4, { critical: 0 })
    expect(limitsOf(few!)).toEqual([4, 3, 3])
    expect(limitForClass(few!, 2, { rank: 2 })).toBe(1)
    expect([1, 5, 15].map(rank => limitForClass(few!, 10, { rank }))).toEqual([9, 8, 8])
  })

  it('is the same for classes that have a level below it', () => {
    const [all, others] = levelsOf(400, { critical: 0.2 })
    expect(limitsOf(all!)).toEqual([400, 400, 400])
    expect(limitForClass(others!, 320, { rank: 1 })).toBe(320)
    expect(limitForClass(others!, 320, { rank: 2 })).toBe(313)
  })

  it('is for classes of less important levels as low as for the last class of the level', () => {
    const [all] = levelsOf(400, { critical: 0, reads: 0.1 })
    expect(limitsOf(all!)).toEqual([400, 392, 392])
  })
})

it('a shedder is switched as a whole, and an error about one of its rules says so', () => {
  const config = checkedConfig({
    ...BASE,
    shedding: { classes: CLASSES, fleetUsage: { capacity: 10 }, workerUtilization: { signals: ['header'] } },
  })
  expect([...listSwitchable(config).keys()]).toEqual(['second', 'fleet-usage', 'worker-utilization'])
  for (const [part, shedder] of [
    ['fleet-usage-reads', 'fleet-usage'],
    ['worker-utilization-test', 'worker-utilization'],
  ] as const) {
    expect(() => findSwitchable(config, part)).toThrow(
      `Rule '${part}' is a part of '${shedder}', which is switched as a whole. Switch '${shedder}'.`,
    )
  }
})
