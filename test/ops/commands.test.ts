/** The output of the commands for rules that the project's own config does not have. */

import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { consumersCommand, noteOfKeys } from '../../src/node/cli/consumers.ts'
import { limitsCommand } from '../../src/node/cli/limits.ts'
import { switchCommand } from '../../src/node/cli/switch.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { setPlan } from '../../src/ops/consumers.ts'
import { createKey } from '../../src/ops/keys.ts'
import { withInput } from '../../src/ops/overrides.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { formatConsumer, type Override } from '../../src/store/records.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const by = 'consumer'
const INPUT: ConfigInput = {
  origin: 'route',
  plans: ['free', 'pro'],
  rules: [
    { name: 'second', by: ['consumer', 'route'], algorithm: 'gcra', limit: 10, period: '1s' },
    { name: 'minute', by, algorithm: 'sliding-window', limit: 100, period: '1m' },
    { name: 'queue', by, algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 5 },
    { name: 'steady', by, algorithm: 'gcra', limit: 10, period: '1s', burst: 20 },
    { name: 'wrong', by: 'address', on: 'auth-failure', algorithm: 'fixed-window', limit: 9, period: '1m' },
    { name: 'at-once', by: 'address', algorithm: 'concurrency', limit: 2, ttl: '30s' },
    { name: 'slow', by: 'global', algorithm: 'gcra', limit: 10, period: '1s', enforce: 0.1 },
    { name: 'none', by: 'global', algorithm: 'gcra', limit: 10, period: '1m', mode: 'off' },
  ],
  limits: {
    zendesk: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: 'day' }],
    exports: [{ name: 'tasks', algorithm: 'concurrency', limit: 1 }],
    messages: [
      { name: 'hour', by: ['user'], algorithm: 'fixed-window', limit: 5, period: '1h', overridable: true },
    ],
  },
}

const load = async () => withInput(checkedConfig(INPUT), INPUT)

let redis: TestRedis
let bridge: Bridge
beforeAll(async () => {
  redis = await startRedis()
  bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

const COMMANDS = { consumers: consumersCommand, limits: limitsCommand, switch: switchCommand }

/** @returns the standard output */
async function run(group: 'consumers' | 'limits', ...args: string[]): Promise<string> {
  return (await runWithErrors(group, ...args))[0]
}

/** @returns the standard output and the standard error */
async function runWithErrors(
  group: keyof typeof COMMANDS,
  ...args: string[]
): Promise<[out: string, error: string]> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => {})
  const error = vi.spyOn(console, 'error').mockImplementation(() => {})
  try {
    const at = ['--url', bridge.url, '--token', 't']
    await COMMANDS[group](load).parseAsync([...args, ...at], { from: 'user' })
    return [log.mock.calls.join('\n'), error.mock.calls.join('\n')]
  } finally {
    log.mockRestore()
    error.mockRestore()
  }
}

it('a reset lists the rules that it has reset, and those that it has not', async () => {
  await expect(run('limits', 'reset', '--consumer', 'acme')).rejects.toMatchObject({
    message: expect.stringMatching(
      /^Reset minute, queue and steady of consumer 'acme'\? There is no terminal/,
    ),
  })
  expect(await run('limits', 'reset', '--consumer', 'acme', '--yes')).toBe(
    "Reset minute, queue and steady of consumer 'acme'. Not reset, because they count by more than the consumer: second.",
  )
  expect(await run('limits', 'reset', '--address', '192.0.2.7', '--yes')).toBe(
    "Reset wrong and at-once of address '192.0.2.7'. Requests that are still in flight are counted by 'at-once' again, within 30 s at the latest.",
  )
  expect(await run('limits', 'reset', 'exports', '--yes')).toBe(
    "Reset limit 'exports'. Requests that are still in flight are counted by 'tasks' again, within 15 s at the latest.",
  )
})

it('peek shows no reset time for requests in flight', async () => {
  const store = upstashStore({ url: bridge.url, token: 't', deadlineMs: PATIENT_MS, keyLocking: false })
  const limiter = createLimiterOnStore(checkedConfig(INPUT), store)
  await using _slot = await limiter.limit('exports')
  const [, row, note] = (await run('limits', 'peek', 'exports')).split('\n')
  expect(row).toMatch(/^tasks +enforce +1 at once +no +0 +when they end +when one ends$/)
  expect(note).toMatch(
    /^tasks: units are free again when their response ends, or within 1\d s if their isolate has died\.$/,
  )
})

it('consumers show prints no plan of the store that changes how a terminal shows it', async () => {
  const store = createAdminStore({ url: bridge.url, token: 't' })
  for (const plan of ['a\x1b[2J', 'b\u202e']) await createKey(store, { consumer: 'hostile', plan })
  await setPlan(store, 'hostile', 'c\x9b1m')
  expect(await run('consumers', 'show', 'hostile')).toMatch(/^(?=.*'c\?1m')(?=.*a\?\[2J)[\P{C}\n]+$/su)
})

it('peek shows when a rule counts, and shows a burst only if the rule has one', async () => {
  const table = await run('limits', 'peek', '--address', '192.0.2.7')
  expect(table).toMatch(/^wrong +enforce, on auth-failure +9 per minute /m)
  const { rules } = JSON.parse(await run('limits', 'peek', '--consumer', 'acme', '--json'))
  const [minute, queue, steady] = rules
  expect(minute).not.toHaveProperty('burst')
  expect(queue).toMatchObject({ queue: 5 })
  expect(queue).not.toHaveProperty('burst')
  expect(steady).toMatchObject({ burst: 20 })
})

it('peek at a consumer names the other plans of its keys', async () => {
  const store = createAdminStore({ url: bridge.url, token: 't' })
  await createKey(store, { consumer: 'acme', plan: 'pro' })
  await createKey(store, { consumer: 'acme', plan: 'free' })
  const note =
    "These are the limits of plan 'free'. Keys of consumer 'acme' have other plans: pro. To see those, use --plan."
  expect(await run('limits', 'peek', '--consumer', 'acme')).toContain(note)
  expect(await run('limits', 'peek', '--consumer', 'acme', '--plan', 'pro')).not.toContain('use --plan')
})

it('consumers set names the keys that keep a plan of their own, and the command that changes them', async () => {
  const store = createAdminStore({ url: bridge.url, token: 't' })
  const own = await createKey(store, { consumer: 'own-plan', plan: 'free' })
  await createKey(store, { consumer: 'own-plan', plan: 'pro' })
  await createKey(store, { consumer: 'own-plan' })
  const note = `These keys have a plan of their own and keep it: ${own.id} (free). To put a key on the consumer's plan: npx sluicegate keys plan ${own.id} --clear`
  const set = (...args: string[]) => run('consumers', 'set', 'own-plan', ...args)
  expect(await set('--plan', 'pro')).toBe(`Consumer 'own-plan' is on plan 'pro'. ${note}`)
  expect(await run('consumers', 'show', 'own-plan')).toContain(`is on plan 'pro'. ${note}`)
  expect(JSON.parse(await set('--plan', 'pro', '--json'))).toMatchObject({
    plan: 'pro',
    keysOnOtherPlans: [{ id: own.id, plan: 'free' }],
  })
  expect(await set('--no-plan')).toMatch(
    /^Consumer 'own-plan' has no plan of its own\. These keys .*: own-plan\/\w+ \(pro\)\. To /,
  )
})

it('limits peek says what a queue adds to the units that remain', async () => {
  const shown = await run('limits', 'peek', '--consumer', 'queued')
  expect(shown).toMatch(/^queue +enforce +10 per second, queue 5 +yes +6 /m)
  expect(shown).toContain(
    'REMAINING of queue: one request that starts at once, and those that wait in the queue.',
  )
  expect(shown).toMatch(/^steady +enforce +10 per second, burst 20 +yes +20 /m)
})

it('a caller is named by all parts that a rule counts by', async () => {
  const consumer = ['--consumer', 'acme']
  expect(await run('limits', 'peek', ...consumer, '--by', 'route=reports')).toMatch(
    /^second +enforce .* yes +10 +now/m,
  )
  expect(await run('limits', 'peek', '--by', 'consumer=acme')).toMatch(/^minute /m)
  expect(await run('limits', 'peek', ...consumer)).toContain(
    'Not shown, because they count by more than the consumer: second (add --by route=…).',
  )
  expect(await run('limits', 'reset', ...consumer, '--by', 'route=reports', '--yes')).toBe(
    "Reset second of consumer 'acme', route 'reports'.",
  )
  for (const [args, message] of [
    [
      ['--by', 'route=reports'],
      "No rule counts by route alone. Rule 'second' also counts by consumer: add --consumer ….",
    ],
    [
      [...consumer, '--by', 'rout=a'],
      "No rule counts by 'rout'. Did you mean 'route'? Rules count by: consumer, route, address, global.",
    ],
    [
      ['--address', '192.0.2.7', '--by', 'route=a'],
      'No rule counts by address and route alone. Leave some of these parts out.',
    ],
    [[...consumer, '--by', 'consumer=b'], '--consumer and --by consumer=… are the same. Use one of them.'],
    [[], /^Use either the name of a limit, or a caller: /],
    [['zendesk', ...consumer], /^Use either the name of a limit, or a caller: /],
  ] as const) {
    for (const command of ['peek', 'reset'])
      await expect(run('limits', command, ...args)).rejects.toMatchObject({
        kind: 'usage',
        message: typeof message === 'string' ? message : expect.stringMatching(message),
      })
  }
})

it('an override is removed without a confirmation, and the numbers to restore it are shown', async () => {
  await run('consumers', 'override', 'acme', 'minute', '--limit', '8')
  expect(await run('consumers', 'override', 'acme', 'minute', '--remove')).toBe(
    "Consumer 'acme' no longer has an override of rule 'minute'. It had: limit 8.",
  )
})

it('all commands show overrides in the same form, with a burst only if the rule has one', async () => {
  for (const rule of ['minute', 'steady', 'queue'])
    await run('consumers', 'override', 'acme', rule, '--limit', '8', '--by', 'ops, night')
  expect(await run('consumers', 'show', 'acme')).toMatch(
    /^minute +limit 8 +[-\d]+ [\d:]+, ops, night +no end +applies$/m,
  )
  const removal = ['override', 'acme', 'minute', '--remove', '--json']
  const shown = async () => JSON.parse(await run('consumers', 'show', 'acme', '--json')).overrides
  const shared = { until: null, at: expect.any(String), by: 'ops, night', status: 'applies' }
  const left = [
    { rule: 'steady', limit: 8, burst: 20, ...shared },
    { rule: 'queue', limit: 8, queue: 5, ...shared },
  ]
  expect(await shown()).toEqual([{ rule: 'minute', limit: 8, ...shared }, ...left])
  expect(JSON.parse(await run('consumers', ...removal))).toEqual({
    ...{ consumer: 'acme', plan: null, blockedAt: null },
    overrides: left,
  })
  expect(await shown()).toEqual(left)
})

it('setting an override shows which others were removed, and `show` says if the record is too long', async () => {
  await redis.connection.send(['FLUSHALL'])
  const store = (overrides: readonly Override[]) =>
    redis.connection.send(['SET', 'sluice:{c:acme}:consumer', formatConsumer({ overrides })])
  const ended: Override = { family: 'end', rule: 'ended', mode: 'off', until: 1e15 }
  const stale: Override = { family: 'gon', rule: 'gone', mode: 'shadow' }
  const set = ['override', 'acme', 'minute', '--limit', '8']
  await store([ended, stale])
  expect(await run('consumers', ...set)).toBe(
    [
      "Consumer 'acme' has an override of rule 'minute': limit 8, until it is removed.",
      'These were removed:\n',
      'OVERRIDE OF  NUMBERS   SINCE (UTC), BY  UNTIL (UTC)               STATUS',
      'ended        mode off                   2001-09-09 01:46 (ended)  ended',
    ].join('\n'),
  )
  expect(JSON.parse(await run('consumers', ...set, '--json'))).toMatchObject({ rule: 'minute', removed: [] })
  expect(JSON.parse(await run('consumers', ...set, '--remove-stale', '--json'))).toMatchObject({
    rule: 'minute',
    removed: [{ rule: 'gone', mode: 'shadow', until: null, status: 'rule-gone' }],
  })
  expect(await run('consumers', 'show', 'acme')).not.toContain('bytes')
  await store(Array.from({ length: 500 }, (_, i) => ({ ...stale, rule: `gone-${i}` })))
  expect(await run('consumers', 'show', 'acme')).toMatch(
    /\n\nThe record has \d{5} bytes, and more than 12000 slow down every request of the consumer\. Remove overrides: npx/,
  )
  await expect(run('consumers', ...set)).rejects.toMatchObject({ kind: 'refused' })
})

it.each([
  [
    ['limits', 'peek', 'zendsk'],
    "The config has no limit 'zendsk'. Did you mean 'zendesk'? Limits: zendesk, exports, messages.",
  ],
  [
    ['limits', 'reset', 'zendesk', '--rule', 'dya', '--yes'],
    "The limit 'zendesk' has no rule 'dya'. Did you mean 'day'? Rules: day.",
  ],
  [['limits', 'peek', '--consumer', 'acme', '--plan', 'por'], /has no plan 'por'\. Did you mean 'pro'\?/],
  [
    ['consumers', 'show', 'amce'],
    /^The store has no consumer 'amce'\. Did you mean 'acme'\? Consumers: acme\.$/,
  ],
  [
    ['consumers', 'override', 'acme', 'minutes', '--limit', '8'],
    /^The config has no rule 'minutes' .* Did you mean 'minute'\?/,
  ],
  [
    ['consumers', 'override', 'acme', 'minut', '--remove'],
    /^The config has no rule 'minut' that counts by consumer\. Did you mean 'minute'\?/,
  ],
  [['switch', 'rule', 'qeue', 'off'], /^The config has no rule 'qeue'\. Did you mean 'queue'\?/],
  [['switch', 'rule', 'sloww', 'reset'], /^The config has no rule 'sloww'\. Did you mean 'slow'\?/],
] as const)('%j suggests the name that was probably meant', async ([group, ...args], message) => {
  await redis.connection.send(['FLUSHALL'])
  await runWithErrors('consumers', 'override', 'acme', 'minute', '--limit', '8')
  await runWithErrors('switch', 'rule', 'slow', 'off')
  const error = await runWithErrors(group, ...args).catch(error => error)
  expect(error.message).toMatch(message)
})

it.each([
  [['switch', 'kill', 'off'], 'The kill switch was already off: nothing was changed.'],
  [['switch', 'rule', 'minute', 'reset'], "Rule 'minute' was not switched: nothing was changed."],
  [['consumers', 'unblock', 'acme'], "Consumer 'acme' was not blocked: nothing was changed."],
  [
    ['consumers', 'override', 'acme', 'steady', '--remove'],
    "Consumer 'acme' has no override of rule 'steady': nothing was changed.",
  ],
  [['consumers', 'set', 'acme', '--plan', 'pro'], "Consumer 'acme' is already on plan 'pro'."],
] as const)('%j succeeds if there is nothing to change, and says so', async ([group, ...args], message) => {
  await redis.connection.send(['FLUSHALL'])
  await runWithErrors('consumers', 'set', 'acme', '--plan', 'pro')
  // Redis lists them in another order while it enlarges its table.
  const keys = async () => new Set(((await redis.connection.send(['KEYS', '*'])) as Buffer[]).map(String))
  const before = await keys()
  expect(await runWithErrors(group, ...args)).toEqual([message, ''])
  expect(await keys()).toEqual(before)
})

it.each([
  ['unblock', 'amce'],
  ['override', 'amce', 'minute', '--remove'],
  ['remove', 'amce', '--yes'],
])('consumers %s fails for a consumer that the store does not know', async (...args) => {
  await redis.connection.send(['FLUSHALL'])
  await runWithErrors('consumers', 'set', 'acme', '--plan', 'pro')
  await expect(runWithErrors('consumers', ...args)).rejects.toMatchObject({
    kind: 'not-found',
    message: expect.stringMatching(/^The store has no consumer 'amce'\. Did you mean 'acme'\?/),
  })
})

it('a plan that is set for a consumer with many keys comes with a note that others may have their own', () => {
  const keys = [{ id: 'acme/0123456789ab', plan: 'pro' }]
  expect(noteOfKeys('acme', { keysOnOtherPlans: keys, hasMoreKeys: true })).toBe(
    ' These keys have a plan of their own and keep it: acme/0123456789ab (pro). Others may do so, too. To see all keys: npx sluicegate keys list --consumer acme\n' +
      "To put a key on the consumer's plan: npx sluicegate keys plan acme/0123456789ab --clear",
  )
  expect(noteOfKeys('acme', { keysOnOtherPlans: [], hasMoreKeys: true })).toMatch(/^ It has many keys, some/)
  expect(noteOfKeys('acme', { keysOnOtherPlans: [] })).toBe('')
})

it('a command reports that a consumer is new, and suggests a similar name', async () => {
  await redis.connection.send(['FLUSHALL'])
  const [, first] = await runWithErrors('consumers', 'set', 'acme', '--plan', 'pro')
  expect(first).toBe("Consumer 'acme' is new in this store. Check the spelling if you expected it to exist.")
  const [, second] = await runWithErrors('consumers', 'set', 'amce', '--plan', 'pro')
  expect(second).toBe("Consumer 'amce' is new in this store. Did you mean 'acme'?")
})

it('limits peek names the other rules that can refuse a consumer, grouped by what they count by', async () => {
  await redis.connection.send(['FLUSHALL'])
  const [shown] = await runWithErrors('limits', 'peek', '--consumer', 'acme')
  expect(shown.split('\n')).toContain(
    'Other rules can refuse this consumer too: wrong, at-once (by address); slow (by global). For rules by address, use --address.',
  )
})

const KEY = 'sluice:{switches}'
const OPS = { at: new Date('2026-11-21T06:00:00.000Z'), by: 'ops' }

describe('npx sluicegate switch', () => {
  beforeEach(async () => void (await redis.connection.send(['FLUSHALL'])))

  const run = (...args: string[]) => runWithErrors('switch', ...args)
  const ops = ['--by', 'ops']

  it('shows that nothing is switched', async () => {
    expect(await run()).toEqual([
      'The kill switch is off: limits apply.\n\nNo rule is switched.\n\nNo consumer is blocked.\n\n' +
        'No consumer has an override.',
      '',
    ])
    expect(JSON.parse((await run('--json'))[0])).toEqual({
      kill: null,
      rules: [],
      blocked: [],
      overrides: [],
      limitOverrides: [],
    })
  })

  it('shows overrides of limits by name, until they end', async () => {
    const override = ['override', 'messages', 'hour', '--limit', '9', '--as', 'ops']
    await runWithErrors('limits', ...override, '--by', 'user=42')
    await runWithErrors(
      'limits',
      ...override,
      '--by',
      'user=7',
      '--until',
      new Date(Date.now() + 500).toJSON(),
    )
    await vi.waitFor(async () => {
      const { limitOverrides } = JSON.parse((await run('--json'))[0])
      const shown = { identity: { user: '42' }, rule: 'hour', limit: 9, by: 'ops', status: 'applies' }
      expect(limitOverrides).toEqual([{ limit: 'messages', overrides: [expect.objectContaining(shown)] }])
    }, PATIENT)
    expect((await run())[0]).toMatch(/^Overrides of the limit messages:\nIDENTITY.USER.*\n42 +hour +9 /m)
  })

  it('sets and shows overrides of consumers, with the operator who has set them', async () => {
    await run('override', 'acme', 'minute', '--limit', '8', '--for', '24h', ...ops)
    expect((await run())[0]).toMatch(
      /^acme +minute +limit 8 +[-\d]+ [\d:]+, ops +[-\d]+ [\d:]+ \(in 24 h\)$/m,
    )
    const { overrides } = JSON.parse((await run('--json'))[0])
    expect(overrides).toMatchObject([{ consumer: 'acme', rule: 'minute', limit: 8, by: 'ops' }])
    await run('override', 'acme', 'minute', '--remove')
    expect((await run())[0]).toContain('No consumer has an override.')
  })

  it('shows the mode, operator and end of each switch, next to the mode of the config', async () => {
    await run('rule', 'minute', 'shadow', ...ops, '--for', '1h', '--reason', 'the sale')
    await run('rule', 'slow', '--share', '0.25', ...ops)
    await run('rule', 'none', 'enforce', ...ops)
    await run('rule', 'zendesk/day', 'off', ...ops)
    await run('block', 'acme', '--yes', ...ops, '--for', '24h', '--reason', 'unpaid')
    await redis.connection.send(['ZADD', 'sluice:{consumers}:names', '0', 'globex'])
    const [shown] = await run()
    const since = '20\\d\\d-\\d\\d-\\d\\d \\d\\d:\\d\\d'
    for (const line of [
      '^The kill switch is off: limits apply\\.$',
      `^minute +shadow +enforce +${since}, ops +${since} \\(in 60 min\\) +applies +the sale$`,
      `^slow +enforce for 25 % +enforce for 10 % +${since}, ops +no end +applies$`,
      `^none +enforce +off +${since}, ops +no end +applies$`,
      `^zendesk/day +off +enforce +${since}, ops +no end +applies$`,
      `^acme +since ${since}, until ${since} \\(in 24 h\\), by ops: unpaid$`,
    ]) {
      expect(shown).toMatch(new RegExp(line, 'm'))
    }
    expect(shown).not.toContain('globex')
    expect(JSON.parse((await run('--json'))[0])).toMatchObject({
      kill: null,
      rules: [
        {
          rule: 'minute',
          mode: 'shadow',
          by: 'ops',
          config: { mode: 'enforce', share: 1 },
          status: 'applies',
        },
        { rule: 'slow', share: 0.25, config: { mode: 'enforce', share: 0.1 } },
        { rule: 'none', mode: 'enforce', config: { mode: 'off' } },
        { rule: 'zendesk/day', mode: 'off' },
      ],
      blocked: [{ consumer: 'acme', blockedBy: 'ops', reason: 'unpaid' }],
    })
    expect((await run('unblock', 'acme'))[0]).toBe("Consumer 'acme' is no longer blocked.")
    expect((await run('rule', 'none', 'reset'))[0]).toBe("Rule 'none' follows the config again.")
    const [after] = await run()
    expect(after).toContain('No consumer is blocked.')
    expect(after).not.toMatch(/^none/m)
  })

  it('accepts --yes for a rule, although it asks for no confirmation', async () => {
    const [output] = await run('rule', 'minute', 'off', '--yes', ...ops)
    expect(output).toMatch(/^Rule 'minute' is switched to off/)
    expect((await run('rule', 'minute', 'reset', '--yes'))[0]).toBe("Rule 'minute' follows the config again.")
  })

  it('marks switches that have ended, and switches of rules that do not exist', async () => {
    const rules = { minute: { ...OPS, mode: 'off', until: new Date(1) }, gone: { ...OPS, mode: 'off' } }
    const kill = { ...OPS, until: new Date(1) }
    await redis.connection.send(['SET', KEY, JSON.stringify({ kill, rules })])
    const [shown] = await run()
    expect(shown).toMatch(
      /^The kill switch is off: limits apply\. It was on since 2026-11-21 06:00 UTC by ops, until 1970/,
    )
    expect(shown).toMatch(/^minute +off .* 1970-01-01 00:00 \(ended\) +ended$/m)
    expect(shown).toMatch(/^gone +off .* no end +no effect: the config has no such rule$/m)
    const { kill: killSwitch, rules: all } = JSON.parse((await run('--json'))[0])
    expect([killSwitch.status, ...all.map(({ status }: { status: string }) => status)]).toEqual([
      'over',
      'over',
      'rule-gone',
    ])
    // The switch of a rule that the config no longer has can still be reset.
    expect((await run('rule', 'gone', 'reset'))[0]).toBe("Rule 'gone' follows the config again.")
  })

  it('turns the kill switch on and off, and needs a confirmation to turn it on', async () => {
    await expect(run('kill', 'on')).rejects.toMatchObject({
      message: expect.stringMatching(
        /^Turn the kill switch on\? While it is on, no rule limits any request\. There is no terminal/,
      ),
    })
    const [killed] = await run('kill', 'on', '--yes', ...ops, '--for', '10m', '--reason', 'incident 42')
    expect(killed).toMatch(
      /^The kill switch is ON: no limit applies\. Since 20\S+ \S+ UTC by ops, until 20.* UTC \(in 10 min\): incident 42\.$/,
    )
    expect((await run())[0]).toContain(killed)
    expect((await run('kill', 'off'))[0]).toBe('The kill switch is off: limits apply.')
    expect((await run('kill', 'off'))[0]).toBe('The kill switch was already off: nothing was changed.')
  })

  it('records the user of the machine if no operator is given', async () => {
    const [shown] = await run('rule', 'minute', 'off', '--json')
    expect(JSON.parse(shown).rules[0].by).toMatch(/^\S+$/)
  })

  it('warns that a share has no effect on a rule that is not enforced', async () => {
    const [, warning] = await run('rule', 'none', '--share', '0.5')
    expect(warning).toBe("Rule 'none' is in mode off: the share has no effect until the rule is enforced.")
  })

  it.each<[RegExp, string[]]>([
    [
      /^The config has no rule 'nope'\. Did you mean 'none'\? Rules: second, minute, queue, steady, wrong, at-once, slow, none, zendesk\/day, exports\/tasks, messages\/hour\.$/,
      ['rule', 'nope', 'off'],
    ],
    [/^No change is given\. Use one of off, shadow, enforce, reset, or --share\.$/, ['rule', 'minute']],
    [/^--share cannot be combined with off: /, ['rule', 'minute', 'off', '--share', '1']],
    [/^--for and --until cannot be stored: reset/, ['rule', 'minute', 'reset', '--for', '1h']],
    [/^reset cannot be combined with --share\./, ['rule', 'minute', 'reset', '--share', '1']],
    [/^--for and --until cannot be stored: off/, ['kill', 'off', '--for', '1h']],
    [/is in the past\. Use a later time\./, ['rule', 'minute', 'off', '--until', '2020-01-01']],
    [/is neither a duration nor a valid time\./, ['kill', 'on', '--yes', '--for', 'soon']],
    [/^The name is not valid\. Use 1 to 100 characters/, ['rule', 'minute', 'off', '--by', ' ']],
    [/^The reason is not valid: it contains U\+000A/, ['rule', 'minute', 'off', '--reason', 'a\nb']],
  ])('refuses with %s', async (message, args) => {
    await expect(run(...args)).rejects.toMatchObject({
      name: 'AdminError',
      message: expect.stringMatching(message),
    })
    expect(await redis.connection.send(['EXISTS', KEY])).toBe(0)
  })
})

it('limits pause and resume say until when a limit is paused, and limits peek shows it', async () => {
  const UNTIL = /paused until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC/
  const paused = await run('limits', 'pause', 'zendesk', '--for', '30s', '--as', 'ops')
  expect(paused).toMatch(new RegExp(`^Limit 'zendesk' is ${UNTIL.source}\\.$`))
  expect(await run('limits', 'pause', 'zendesk', '--for', '1s')).toBe(paused)
  expect(await run('limits', 'peek', 'zendesk')).toMatch(
    /^Paused until .* UTC: all calls are refused, whatever the rules have left\./,
  )
  expect(JSON.parse(await run('limits', 'peek', 'zendesk', '--json'))).toMatchObject({
    pausedUntil: expect.stringMatching(/Z$/),
  })
  expect(await run('limits', 'resume', 'zendesk')).toBe("Limit 'zendesk' is not paused.")
  expect(await run('limits', 'peek', 'zendesk')).not.toContain('Paused')
  await expect(run('limits', 'resume', 'zendesk', '--by', 'a=b')).rejects.toThrow('a is not a part')
})
