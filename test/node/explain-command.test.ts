/** `npx sluicegate explain`: the records that it reads from the store, its hints, and its JSON document. */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { runInProcess } from '../support/command-line.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const explained = (args: string[], env = {}) => runInProcess(['explain', 'GET', '/', ...args], env)
const documentOf = async (args: string[], env = {}) =>
  JSON.parse((await explained([...args, '--json'], env)).stdout)

const ADDRESS = ['--address', '192.0.2.7']

describe('npx sluicegate explain', () => {
  it('suggests options if no credential is given', async () => {
    const { code, stdout } = await explained([])
    expect(code).toBe(0)
    expect(stdout).toContain('Access   refused with 401: no credential')
    expect(stdout).toMatch(/No credential was given\. Add --consumer <name> to explain .* --key or --token/)
    const { hints } = await documentOf(ADDRESS)
    expect(hints).toEqual([expect.stringContaining('Add --consumer <name>')])
  })

  it('suggests --address if the address is unknown, and rules count by it', async () => {
    const { stdout } = await explained(['--consumer', 'acme'])
    expect(stdout).toContain('; address unknown\n')
    expect(stdout).toMatch(/^No address was given, so .* add it, as in --address 192\.0\.2\.7\.$/m)
  })

  it.each([
    [
      ['--address', 'localhost'],
      "--address: 'localhost' is not an address. Use an address such as 192.0.2.7",
    ],
    [['--country', 'Germany'], "--country: 'Germany' is not a country. Use its two capital letters"],
    [['--plan', 'fre'], "The config has no plan 'fre'. Did you mean 'free'?"],
  ])('rejects %j', async (args, message) => {
    const { code, stdout, stderr } = await explained(args)
    expect([code, stdout, stderr]).toEqual([2, '', expect.stringContaining(message)])
  })

  it('says that the plan is assumed if no store is configured', async () => {
    const { stdout } = await explained(['--consumer', 'acme'])
    expect(stdout).toContain('plan free (assumed: the first in the config)')
    expect(stdout).toContain('Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN')
    expect(await documentOf(['--consumer', 'acme', '--plan', 'pro', ...ADDRESS])).toMatchObject({
      caller: { plan: 'pro', plan_from: 'option' },
      hints: [],
    })
  })

  it('names the units of numbers in its JSON document', async () => {
    const { rules, store } = await documentOf(['--consumer', 'acme'])
    expect(rules[1]).toEqual({
      ...{ name: 'consumer-minute', by: ['consumer'], applies: true, algorithm: 'fixed-window', limit: 120 },
      ...{ allows: '120 per minute', burst: 120, mode: 'enforce', unit: 'requests', cost: 1, on: 'request' },
      ...{ key: 'sluice:{c:acme}:state', period_seconds: 60 },
    })
    expect(store).toMatchObject({
      ...{ http_requests: 1, script_calls: 1 },
      admitted: { least_commands: 5, most_commands: 5, least_usd_per_million: 10, most_usd_per_million: 10 },
    })
  })

  it('shows the unit of a rule, its estimate, and where its actual amount comes from', async () => {
    const rule = `by: 'consumer', algorithm: 'fixed-window', limit: 9000, period: '1d'`
    const file = join(mkdtempSync(join(tmpdir(), 'explain-')), 'units.config.ts')
    writeFileSync(
      file,
      `export default {
        origin: 'route',
        units: {
          tokens: { estimate: 'llm', actual: { usage: 'openai' }, onUnsettled: 'release' },
          usd: { estimate: 200, actual: { header: 'x-cost' }, ttl: '1m' },
          pages: { estimate: 2 },
        },
        rules: [
          { name: 'a', unit: 'tokens', ${rule} },
          { name: 'b', unit: 'usd', ${rule} },
          { name: 'c', unit: 'pages', ${rule} },
          { name: 'd', countIf: { status: [401, 403] }, ${rule} },
        ],
      }\n`,
    )
    const args = ['--consumer', 'acme', '--config', file]
    const { code, stdout, stderr } = await explained(args)
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout).toMatch(/^a +consumer +9000 tokens per day, .*tokens of the body +sluice:/m)
    expect(stdout).toMatch(/^b .* 200 usd +sluice:/m)
    expect(stdout).toMatch(/^c .* 2 pages +sluice:/m)
    expect(stdout).toContain(
      [
        'Reserved before the request, and settled after it by:',
        '  a  the usage in the response, in the format of openai; without a settlement within 10 minutes, it is given back',
        '  b  the header x-cost of the response; without a settlement within 1 minute, it stays spent',
        '  d  the status of the response: 1 for 401, 403, else 0; without a settlement within 10 minutes, it stays spent',
        '',
      ].join('\n'),
    )
    const { rules, store } = await documentOf(args)
    expect(rules[1]).toMatchObject({
      ...{ unit: 'usd', cost: 200 },
      settlement: { estimate: 200, actual: { header: 'x-cost' }, on_unsettled: 'keep', ttl_seconds: 60 },
    })
    expect([rules[0].settlement.estimate, rules[2].settlement]).toEqual(['llm', undefined])
    expect(store.settled.most_commands).toBe(6)
  })

  it('continues if the store does not answer, and reports this', async () => {
    const env = { UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:1', UPSTASH_REDIS_REST_TOKEN: 't' }
    const { code, stdout, stderr } = await explained(['--consumer', 'acme'], env)
    expect([code, stderr]).toEqual([0, expect.stringMatching(/cannot be reached\. The plan is assumed/)])
    expect(stdout).toContain('plan free (assumed')
    // The variables are set, so the output does not suggest setting them.
    expect(stdout).not.toContain('Set UPSTASH_REDIS_REST_URL')
  })
})

describe('npx sluicegate explain, with a store', () => {
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
  const env = () => ({ UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' })
  const done = async (...args: string[]) => {
    const { code, stdout, stderr } = await runInProcess(args, env())
    expect([args, code, stderr]).toEqual([args, 0, expect.anything()])
    return stdout.trim()
  }
  it('suggests another consumer if the store knows nothing of this one', async () => {
    await done('keys', 'create', '--consumer', 'globex')
    const { stdout } = await explained(['--consumer', 'globx', ...ADDRESS], env())
    expect(stdout).toContain(
      "The store has no key and no setting of consumer 'globx'. Did you mean 'globex'?",
    )
    expect((await explained(['--consumer', 'globex', ...ADDRESS], env())).stdout).not.toContain(
      'The store has no',
    )
  })

  const callerIn = async (...args: string[]) => (await documentOf(args, env())).caller

  it('uses the plan of the key, else that of the consumer, else the first plan of the config', async () => {
    expect(await callerIn('--consumer', 'new')).toMatchObject({ plan: 'free', plan_from: 'default' })
    await done('consumers', 'set', 'acme', '--plan', 'pro')
    expect(await callerIn('--consumer', 'acme')).toMatchObject({ plan: 'pro', plan_from: 'consumer' })
    const key = await done('keys', 'create', '--consumer', 'acme')
    expect(await callerIn('--key', key)).toMatchObject({ plan: 'pro', plan_from: 'consumer' })
    const own = await done('keys', 'create', '--consumer', 'acme', '--plan', 'free')
    expect(await callerIn('--key', own)).toMatchObject({ plan: 'free', plan_from: 'key' })
    expect((await documentOf(['--consumer', 'acme', ...ADDRESS], env())).hints).toEqual([
      "Keys of consumer 'acme' have other plans: free. To explain a request with one of them, use --key or --plan.",
    ])
    expect(await callerIn('--key', own, '--plan', 'pro')).toMatchObject({ plan: 'pro', plan_from: 'option' })
    expect((await explained(['--consumer', 'acme'], env())).stdout).toContain(
      'acme, by api-key, plan pro (from the consumer in the store)',
    )
  })

  it("uses the plan that all keys of the consumer have, and limits peek shows that plan's limits", async () => {
    const ofAll = { plan: 'pro', plan_from: 'keys' }
    const peeked = async () => JSON.parse(await done('limits', 'peek', '--consumer', 'delta', '--json')).plan
    for (let i = 0; i < 2; i++) await done('keys', 'create', '--consumer', 'delta', '--plan', 'pro')
    expect([await callerIn('--consumer', 'delta'), await peeked()]).toEqual([
      expect.objectContaining(ofAll),
      'pro',
    ])
    expect((await explained(['--consumer', 'delta'], env())).stdout).toContain(
      "delta, by api-key, plan pro (from the consumer's keys in the store, which all have this plan)",
    )
    // The plan of a key comes before that of its consumer.
    await done('consumers', 'set', 'delta', '--plan', 'free')
    expect([await callerIn('--consumer', 'delta'), await peeked()]).toEqual([
      expect.objectContaining(ofAll),
      'pro',
    ])
    await done('keys', 'create', '--consumer', 'delta')
    expect([await callerIn('--consumer', 'delta'), await peeked()]).toEqual([
      expect.objectContaining({ plan: 'free', plan_from: 'consumer' }),
      'free',
    ])
  })

  it('shows the overrides of the consumer, and when they end', async () => {
    await done('consumers', 'override', 'beta', 'consumer-second', '--limit', '50', '--burst', '70')
    await done(
      'consumers',
      'override',
      'beta',
      'consumer-minute',
      '--mode',
      'shadow',
      '--until',
      '2099-01-02',
    )
    await done('consumers', 'override', 'beta', 'consumer-hour', '--mode', 'off')
    const { rules, hints } = await documentOf(['--consumer', 'beta', ...ADDRESS], env())
    expect(hints).toEqual([])
    expect(rules).toMatchObject([
      { limit: 50, burst: 70, allows: '50 per second', override: { until: null } },
      { limit: 120, mode: 'shadow', override: { until: '2099-01-02T00:00:00.000Z' } },
      { applies: false, because: 'an override of the consumer turns it off' },
      { limit: 10, mode: 'enforce' },
      {},
      {},
    ])
    expect((await explained(['--consumer', 'beta'], env())).stdout).toMatch(
      /120 per minute, fixed-window, by an override until 2099-01-02 00:00 UTC +shadow/,
    )
  })

  it('shows that blocked consumers and revoked keys are refused', async () => {
    await done('consumers', 'block', 'gone', '--yes')
    const blocked = await documentOf(['--consumer', 'gone'], env())
    expect(blocked.refusal).toEqual({
      status: 403,
      reason: expect.stringContaining("consumer 'gone' is blocked"),
    })
    expect(blocked.store).toMatchObject({ admitted: null, refused: { most_commands: 3 } })
    expect((await explained(['--consumer', 'gone'], env())).stdout).not.toContain('  admitted  ')
    const key = await done('keys', 'create', '--consumer', 'acme')
    await done('keys', 'revoke', key, '--yes')
    expect((await documentOf(['--key', key], env())).refusal).toEqual({
      ...{ status: 401, reason: 'the store has no such key' },
    })
  })
})
