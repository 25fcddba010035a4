/** What is used, reserved and owed under rules that are settled later: it is shown, and corrected. */
import { expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { prepareDecide, runCall } from '../../src/limiter/prepared-call.ts'
import { limitsCommand } from '../../src/node/cli/limits.ts'
import { type Correction, correctCaller, correctLimit } from '../../src/ops/corrections.ts'
import {
  evaluateCaller,
  pauseLimit,
  peekCaller,
  peekLimit,
  type RuleStanding,
  resetLimit,
} from '../../src/ops/limits.ts'
import { compileOverride, setOverride, withInput } from '../../src/ops/overrides.ts'
import { readStats } from '../../src/ops/stats.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { consumerStateKey, limitStateKey, reservedKey } from '../../src/store/keys.ts'
import { configOf } from '../support/engines.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'
import { describeOnRedis } from '../support/redis.ts'
import { reservationsOf } from '../support/reservations.ts'

const LONG = { period: '300d' } as const
const INPUT = {
  origin: 'route',
  plans: ['free', 'pro'],
  units: { tokens: { estimate: 200, actual: { json: '/usage/total_tokens' } } },
  rules: [
    { name: 'requests', by: 'consumer', algorithm: 'fixed-window', limit: 10, ...LONG },
    {
      ...{ name: 'tokens', unit: 'tokens', by: 'consumer', algorithm: 'fixed-window', limit: 1000, ...LONG },
      plans: { pro: { limit: 5000 } },
    },
    { name: 'steady', unit: 'tokens', by: 'consumer', algorithm: 'gcra', limit: 1000, ...LONG },
    {
      name: 'logins',
      by: 'address',
      algorithm: 'fixed-window',
      limit: 5,
      ...LONG,
      countIf: { status: [401] },
    },
    {
      name: 'of-route',
      unit: 'tokens',
      by: ['consumer', 'route'],
      algorithm: 'fixed-window',
      limit: 9,
      ...LONG,
    },
  ],
  limits: {
    llm: [
      { name: 'calls', by: ['team'], algorithm: 'fixed-window', limit: 100, ...LONG },
      { name: 'fixed', unit: 'tokens', by: ['team'], algorithm: 'fixed-window', limit: 1000, ...LONG },
      {
        name: 'sliding',
        unit: 'tokens',
        by: ['team'],
        algorithm: 'sliding-window',
        limit: 1000,
        period: '30d',
      },
      { name: 'gcra', unit: 'tokens', by: ['team'], algorithm: 'gcra', limit: 1000, ...LONG },
      { name: 'bucket', unit: 'tokens', by: ['team'], algorithm: 'token-bucket', limit: 1000, ...LONG },
    ],
    fast: [{ name: 'fast', unit: 'tokens', algorithm: 'gcra', limit: 1e6, period: '1s', burst: 1e9 }],
  },
} satisfies ConfigInput

const ALGORITHMS = ['fixed', 'sliding', 'gcra', 'bucket']
const TEAM = { team: 'a' }

describeOnRedis('rules that are settled later', (_, kind) => {
  const gateway = useGateway(kind)
  const config = configOf(INPUT)
  const limiter = () => createLimiterOnStore(config, gateway.admin.decisions)

  const short = ({ rule, usage }: RuleStanding) =>
    usage && [rule.name, usage.used, usage.reserved.units, usage.reserved.requests, usage.debt]
  const usageOf = async () => (await peekLimit(gateway.admin, config, 'llm', TEAM)).map(short)
  const usageOfConsumer = async () =>
    (await peekCaller(gateway.admin, config, { consumer: 'acme' })).standings.map(short)
  /** Reserves what a request of acme costs, as the gateway does. */
  async function reserveForConsumer(id: string) {
    const { evaluation } = await evaluateCaller(gateway.admin, config, { consumer: 'acme' })
    return await runCall(gateway.admin.decisions, prepareDecide({ ...evaluation, reservationId: id }))
  }
  const reservations = async (key: string) =>
    (await reservationsOf((...command) => gateway.redis.connection.send(command), key)).length

  async function command(...args: string[]): Promise<string> {
    const log = vi.spyOn(console, 'log').mockImplementation(() => {})
    try {
      const load = async () => withInput(config, INPUT)
      const at = ['--url', gateway.store.url, '--token', TOKEN]
      await limitsCommand(load).parseAsync([...args, ...at], { from: 'user' })
      return log.mock.calls.join('\n')
    } finally {
      log.mockRestore()
    }
  }

  it('show what is used, what of it open requests have reserved, and what is owed', async () => {
    const first = await limiter().reserve('llm', TEAM, { amounts: { tokens: 300 } })
    const second = await limiter().reserve('llm', TEAM, { amounts: { tokens: 400 } })
    expect(await usageOf()).toEqual([undefined, ...ALGORITHMS.map(name => [name, 700, 700, 2, 0])])
    await first.settle({ tokens: 100 })
    expect(await usageOf()).toEqual([undefined, ...ALGORITHMS.map(name => [name, 500, 400, 1, 0])])
    await second.settle({ tokens: 1950 })
    expect(await usageOf()).toEqual([undefined, ...ALGORITHMS.map(name => [name, 1000, 0, 0, 1050])])
  })

  it('show what requests of a consumer have reserved, each rule by itself, under an override too', async () => {
    await reserveForConsumer('aaaaaaaaaaaa')
    await reserveForConsumer('bbbbbbbbbbbb')
    const stands = [undefined, ['tokens', 400, 400, 2, 0], ['steady', 400, 400, 2, 0]]
    expect(await usageOfConsumer()).toEqual(stands)
    await setOverride(gateway.admin, 'acme', compileOverride(INPUT, { rule: 'tokens', limit: 300 }))
    expect(await usageOfConsumer()).toEqual([undefined, ['tokens', 300, 400, 2, 100], stands[2]])
  })

  it('show no reservations that have ended', async () => {
    // Too short for the state.
    await reserveForConsumer('aaaa')
    const key = reservedKey(consumerStateKey('acme'))
    const [member] = (await gateway.redis.connection.send(['ZRANGE', key, '0', '-1'])) as Buffer[]
    await gateway.redis.connection.send(['ZADD', key, '1', String(member)])
    expect(await usageOfConsumer()).toEqual([undefined, ['tokens', 200, 0, 0, 0], ['steady', 200, 0, 0, 0]])
  })

  it('read at most 1000 reservations of an identity, and say that there may be more', async () => {
    await reserveForConsumer('aaaaaaaaaaaa')
    const key = reservedKey(consumerStateKey('acme'))
    const { family } = config.rules.find(({ name }) => name === 'tokens')!
    const members = Array.from({ length: 1000 }, (_, i) => [`${Date.now() + 1e6}`, `id${i} 1 ${family}=2`])
    await gateway.redis.connection.send(['ZADD', key, ...members.flat()])
    expect(await command('peek', '--consumer', 'acme')).toMatch(
      /^tokens +tokens +200 +at least \d+ \((999|1000) requests\) +0$/m,
    )
  })

  it('are printed by peek, with their unit', async () => {
    await limiter().reserve('llm', TEAM, { amounts: { tokens: 300 } })
    const text = await command('peek', 'llm', '--by', 'team=a')
    expect(text).toMatch(/\n\nRULE +UNIT +USED +RESERVED +DEBT\nfixed +tokens +300 +300 \(1 request\) +0\n/)
    const { rules } = JSON.parse(await command('peek', 'llm', '--by', 'team=a', '--json'))
    expect(rules[0]).not.toHaveProperty('used')
    expect(rules[1]).toMatchObject({ unit: 'tokens', used: 300, reserved: 300, reservedRequests: 1, debt: 0 })
  })

  it.each(ALGORITHMS)('are corrected by exactly the units, with %s', async rule => {
    await limiter().limit('llm', TEAM, { amounts: { tokens: 600 } })
    const correct = async (units: number) =>
      shownAfter(await correctLimit(gateway.admin, config, 'llm', TEAM, rule, units))
    expect(await correct(-250)).toEqual([350, 0])
    expect(await correct(1000)).toEqual([1000, 350])
    expect(await correct(-400)).toEqual([950, 0])
    expect(await correct(-1e9)).toEqual([0, 0])
    const others = ALGORITHMS.filter(name => name !== rule).map(name => [name, 600, 0, 0, 0])
    expect((await usageOf()).filter(row => row && row[0] !== rule)).toEqual(others)
  })
  const shownAfter = ({ after: { usage } }: Correction) => [usage!.used, usage!.debt]

  it('are shown, corrected, settled and reset while the limit is paused, which they do not end', async () => {
    const [first, second] = [
      await limiter().reserve('llm', TEAM, { amounts: { tokens: 300 } }),
      await limiter().reserve('llm', TEAM, { amounts: { tokens: 400 } }),
    ]
    await pauseLimit(gateway.admin, config, 'llm', TEAM, 600_000)
    const isPaused = async () =>
      (await limiter().reserve('llm', TEAM, { amounts: { tokens: 1 } })).pausedUntil !== undefined
    expect(await isPaused()).toBe(true)
    expect((await usageOf())[1]).toEqual(['fixed', 700, 700, 2, 0])
    expect((await first.settle({ tokens: 100 })).applied).toBe(true)
    expect(shownAfter(await correctLimit(gateway.admin, config, 'llm', TEAM, 'fixed', 50))).toEqual([550, 0])
    expect((await usageOf())[1]).toEqual(['fixed', 550, 400, 1, 0])
    await resetLimit(gateway.admin, config, 'llm', TEAM)
    expect((await usageOf())[1]).toEqual(['fixed', 0, 0, 0, 0])
    expect((await second.settle({ tokens: 900 })).applied).toBe(false)
    expect(await isPaused()).toBe(true)
    await pauseLimit(gateway.admin, config, 'llm', TEAM, 0)
    expect(await isPaused()).toBe(false)
  })

  it('are corrected by exactly the units, even if units drain fast', async () => {
    const drainedAt = async () => {
      const reply = await gateway.redis.connection.send(['GET', limitStateKey('fast', [])])
      const bits = BigInt(`0x${(reply as Buffer).toString('hex', 3)}`)
      const idleAtMs = 2 ** 42 - 1 - Number(bits >> 46n)
      return idleAtMs * 1000 - Number(bits & (2n ** 46n - 1n))
    }
    await limiter().limit('fast', {}, { amounts: { tokens: 5e8 } })
    const before = await drainedAt()
    await correctLimit(gateway.admin, config, 'fast', {}, 'fast', -2e6)
    // One unit drains in a microsecond.
    expect(before - (await drainedAt())).toBe(2e6)
  })

  it('are corrected for a consumer, under its plan, and leave no reservation behind', async () => {
    await reserveForConsumer('aaaaaaaaaaaa')
    const acme = { consumer: 'acme' }
    const { before, after } = await correctCaller(gateway.admin, config, acme, 'tokens', 900)
    expect([short(before), short(after)]).toEqual([
      ['tokens', 200, 200, 1, 0],
      ['tokens', 1000, 200, 1, 100],
    ])
    expect(await reservations(consumerStateKey('acme'))).toBe(1)
    const pro = await correctCaller(gateway.admin, config, acme, 'tokens', 900, 'pro')
    expect(short(pro.after)).toEqual(['tokens', 2000, 200, 1, 0])
    const logins = { address: '192.0.2.7' }
    expect(shownAfter(await correctCaller(gateway.admin, config, logins, 'logins', 2))).toEqual([2, 0])
  })

  it('are corrected by a command, which asks first and shows the state before and after', async () => {
    await limiter().reserve('llm', TEAM, { amounts: { tokens: 300 } })
    const args = ['correct', 'llm', '--by', 'team=a', '--rule', 'fixed']
    await expect(command(...args, '--spend', '900')).rejects.toMatchObject({
      message: expect.stringMatching(
        /^Spend 900 tokens of rule 'fixed' of limit 'llm' of team=a\? There is no/,
      ),
    })
    expect(await command(...args, '--spend', '900', '--yes')).toMatch(
      /^Spent 900 tokens of rule 'fixed' of limit 'llm' of team=a\.\n\n +USED +RESERVED +DEBT +REMAINING\nbefore +300 +300 \(1 request\) +0 +700\nafter +1000 +300 \(1 request\) +200 +0$/,
    )
    expect(JSON.parse(await command(...args, '--give-back', '300', '--yes', '--json'))).toEqual({
      ...{ limit: 'llm', by: TEAM, rule: 'fixed', unit: 'tokens', givenBack: 300 },
      before: { used: 1000, reserved: 300, reservedRequests: 1, debt: 200, remaining: 0 },
      after: { used: 900, reserved: 300, reservedRequests: 1, debt: 0, remaining: 100 },
    })
    const ofConsumer = ['--consumer', 'acme', '--rule', 'tokens', '--spend', '1', '--yes']
    expect(await command('correct', ...ofConsumer)).toMatch(
      /^Spent 1 tokens of rule 'tokens' of consumer 'acme'\.\n/,
    )
  })

  it.each([
    ['llm --by team=a --rule fixed', /^Use --spend or --give-back with a number of units\.$/],
    [
      'llm --by team=a --rule fixd --spend 5',
      "The limit 'llm' has no rule 'fixd'. Did you mean 'fixed'? Rules with settlements: fixed, sliding, gcra, bucket.",
    ],
    [
      'llm --by team=a --rule calls --spend 5',
      "Rule 'calls' counts requests, whose cost is known before the request: there is no settlement to correct.",
    ],
    ['--consumer acme --rule of-route --spend 5', "Rule 'of-route' also counts by route: add --by route=…."],
    [
      '--consumer acme --rule token --give-back 5',
      "The config has no rule 'token' that counts by consumer. Did you mean 'tokens'? Rules with settlements: tokens, steady.",
    ],
    ['llm --consumer acme --rule fixed --spend 5', /^Use either the name of a limit, or a caller: /],
    ['llm --by team=a --rule fixed --spend 5', /^Spend 5 tokens .* There is no terminal/],
    ['llm --by user=a --rule fixed --spend 5 --yes', /^The limit 'llm' counts by team: team is missing/],
  ])('refuse a correction that is not clear: %s', async (line, message) => {
    await expect(command('correct', ...line.split(' '))).rejects.toMatchObject({
      message: typeof message === 'string' ? message : expect.stringMatching(message),
    })
    expect(await gateway.redis.connection.send(['KEYS', '*'])).toEqual([])
  })

  it('are in the statistics of the gateway if the store did not confirm a settlement in time', async () => {
    let passedMs = 0
    const clock = { now: () => Date.now() + passedMs, elapsed: () => performance.now() + passedMs }
    const timers: (() => void)[] = []
    const timer = (_: number, run: () => void) => {
      timers.push(run)
      return () => {}
    }
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const rules = INPUT.rules.filter(({ name }) => name === 'tokens')
    const config = { rules, units: INPUT.units, plans: INPUT.plans }
    const app = await gateway.informed(config, { clock, timer, reporting: { timer } })
    const key = await gateway.key('acme')
    const send = async () => (await app('/', { key })).text()
    await send()
    passedMs = 20 * 60_000
    await vi.waitFor(async () => {
      await send()
      for (const run of timers.splice(0)) run()
      const { reservations } = await readStats(gateway.admin, new Date(), new Date(clock.now()))
      expect(reservations?.tokens).toMatchObject({ unsettled: 1 })
    }, PATIENT)
    log.mockRestore()
  })

  it('are not corrected for a consumer for whom an override turns them off', async () => {
    await setOverride(gateway.admin, 'acme', compileOverride(INPUT, { rule: 'tokens', mode: 'off' }))
    await expect(
      correctCaller(gateway.admin, config, { consumer: 'acme' }, 'tokens', 5),
    ).rejects.toMatchObject({ kind: 'refused', message: expect.stringMatching(/turns it off/) })
  })
})
