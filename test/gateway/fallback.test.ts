/** Requests that the store does not decide: what rules and credentials do meanwhile, and what happens when the store is back. */
import type { ServerResponse } from 'node:http'
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { blockConsumer } from '../../src/ops/consumers.ts'
import { importKey } from '../../src/ops/keys.ts'
import { compileOverride, setOverride } from '../../src/ops/overrides.ts'
import { replaceSha256, sha256 } from '../../src/sha256.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { PATIENT_MS } from '../support/patience.ts'

const gateway = useGateway()
beforeEach(() => vi.spyOn(console, 'warn').mockImplementation(() => {}))
afterEach(() => vi.restoreAllMocks())

// The window is longer than any test, and does not end during one.
const RULE: RuleInput = { name: 'few', by: 'address', algorithm: 'fixed-window', limit: 3, period: '300d' }
const ANYONE = { credentials: { accept: ['api-key', 'anonymous'] } } satisfies Partial<ConfigInput>

const gone = () => {
  gateway.store.fault = (_: unknown, response: ServerResponse) =>
    void response
      .writeHead(503, { 'content-type': 'application/json' })
      .end('{"error":"ERR Redis cannot be reached"}')
}
const back = () => {
  gateway.store.fault = undefined
}

/** Sends requests one after the other. Returns status and degraded mark of each. */
async function answers(app: App, count: number, init: Parameters<App>[1] = { address: '192.0.2.1' }) {
  const all: string[] = []
  for (let i = 0; i < count; i++) {
    const { status, headers } = await app('/', init)
    all.push([status, headers.get('sluice-degraded')].filter(Boolean).join(' '))
  }
  return all
}

/** Sends requests until the store decides again. The request before the last one has detected that the store is back. */
async function untilBack(app: App, init: Parameters<App>[1] = { address: '203.0.113.250' }) {
  await vi.waitUntil(async () => !(await app('/', init)).headers.has('sluice-degraded'), PATIENT_MS)
}

const fresh = (() => {
  let n = 0
  return () => `198.51.100.${++n}`
})()

describe('while the store fails, a rule', () => {
  it('that is `open` admits every request, marked for the origin and for the caller', async () => {
    const app = gateway.app({ ...ANYONE, rules: [RULE], onStoreFailure: 'open' })
    gone()
    gateway.origin.received.length = 0
    expect(await answers(app, 5)).toEqual(Array(5).fill('200 store-unreachable'))
    expect(gateway.origin.received[0]!.headers['sluice-degraded']).toBe('store-unreachable')
  })

  it('that is `closed` refuses every request with a 503 and Retry-After', async () => {
    const app = gateway.app({ ...ANYONE, rules: [RULE, { ...RULE, name: 'shut', onStoreFailure: 'closed' }] })
    gone()
    gateway.origin.received.length = 0
    const response = await app('/', { address: fresh() })
    expect(response.status).toBe(503)
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'application/problem+json',
      'retry-after': '1',
      'sluice-degraded': 'store-unreachable',
      'cache-control': 'no-store',
    })
    expect(await response.json()).toMatchObject({
      type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
      status: 503,
    })
    expect(gateway.origin.received).toEqual([])
  })

  it('is `local` by default: the isolate counts, and refuses with the exact time', async () => {
    const app = gateway.app({ ...ANYONE, rules: [RULE] })
    gone()
    const address = fresh()
    expect(await answers(app, 4, { address })).toEqual([
      ...Array(3).fill('200 store-unreachable'),
      '429 store-unreachable',
    ])
    const refused = await app('/', { address })
    expect(refused.headers.get('ratelimit')).toMatch(/^"few";r=0;t=\d+$/)
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/)
    // Other addresses have their own budgets.
    expect((await app('/', { address: fresh() })).status).toBe(200)
  })

  it('that is `local` admits its share of the limit, and once a request that costs more than the share', async () => {
    const rules: RuleInput[] = [{ ...RULE, limit: 12, onStoreFailure: 'local' }]
    const app = gateway.app({ ...ANYONE, rules, store: { localShare: 0.25 } })
    const dear = gateway.app({
      ...ANYONE,
      rules: rules.map(rule => ({ ...rule, cost: 8 })),
      store: { localShare: 0.25 },
    })
    gone()
    const admitted = (all: string[]) => all.filter(answer => answer.startsWith('200')).length
    expect(admitted(await answers(app, 12, { address: fresh() }))).toBe(3)
    expect(admitted(await answers(dear, 3, { address: fresh() }))).toBe(1)
  })

  it.each(['gcra', 'token-bucket', 'sliding-window', 'sliding-log', 'fixed-window'] as const)(
    'that is `local` admits half of a %s',
    async algorithm => {
      const rules = [{ ...RULE, algorithm, limit: 10, onStoreFailure: 'local' } as RuleInput]
      const app = gateway.app({ ...ANYONE, rules, store: { localShare: 0.5 } })
      gone()
      const all = await answers(app, 8, { address: fresh() })
      expect(all.map(answer => answer.slice(0, 3))).toEqual([
        ...Array(5).fill('200'),
        ...Array(3).fill('429'),
      ])
    },
  )

  it('that is `local` and a queue delays requests as the store would', async () => {
    const queue: RuleInput = {
      ...{ name: 'queue', by: 'address', algorithm: 'leaky-bucket', limit: 20, period: '1s', queue: 3 },
      onStoreFailure: 'local',
    }
    const held: number[] = []
    // The isolate counts by this clock, which does not move here.
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      const app = gateway.app({ ...ANYONE, rules: [queue] }, { sleep: async ms => void held.push(ms) })
      gone()
      const address = fresh()
      const all = await Promise.all(Array.from({ length: 6 }, () => app('/', { address })))
      expect(all.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 429, 429])
      // The first request departs at once, and each in the queue 50 ms after the one before it.
      expect(held.sort((a, b) => a - b)).toEqual([50, 100, 150])
    } finally {
      vi.useRealTimers()
    }
  })

  it('that is `local` admits only what the store had left before the failure', async () => {
    const app = gateway.app({ ...ANYONE, rules: [RULE] })
    const address = fresh()
    expect(await answers(app, 2, { address })).toEqual(['200', '200'])
    gone()
    expect(await answers(app, 2, { address })).toEqual(['200 store-unreachable', '429 store-unreachable'])
  })

  it('charges nothing if one of several `local` rules refuses', async () => {
    const wide: RuleInput = { ...RULE, name: 'wide', by: 'global', limit: 5 }
    const app = gateway.app({ ...ANYONE, rules: [RULE, wide], onStoreFailure: 'local' })
    gone()
    await answers(app, 10, { address: fresh() })
    expect((await answers(app, 3, { address: fresh() })).map(answer => answer.slice(0, 3))).toEqual([
      ...['200', '200', '429'],
    ])
  })

  it('that is `local` keeps its counts across requests that make no trip', async () => {
    const app = gateway.app({
      ...ANYONE,
      rules: [RULE],
      onStoreFailure: 'local',
      store: { breaker: false },
      routes: [{ name: 'ping', match: { path: '/ping' }, limits: false }],
    })
    gone()
    const address = fresh()
    const statuses: number[] = []
    for (let i = 0; i < 12; i++) {
      statuses.push((await app('/', { address })).status)
      expect((await app('/ping', { address })).status).toBe(200)
    }
    expect(statuses.filter(status => status === 200)).toHaveLength(3)
  })

  it('that is a shadow, or does not apply to the request, has no effect', async () => {
    const shut: RuleInput = { ...RULE, onStoreFailure: 'closed' }
    const app = gateway.app({
      ...ANYONE,
      plans: ['free', 'pro'],
      rules: [
        { ...shut, mode: 'shadow' },
        { ...shut, name: 'elsewhere', match: { path: '/reports/*' } },
        { ...shut, name: 'pros', match: { plans: ['pro'] } },
      ],
    })
    gone()
    expect(await answers(app, 1)).toEqual(['200 store-unreachable'])
  })

  it('can have its own `onStoreFailure`, which replaces the one of the config', async () => {
    const app = gateway.app({
      ...ANYONE,
      onStoreFailure: 'closed',
      rules: [{ ...RULE, onStoreFailure: 'open' }],
    })
    gone()
    expect(await answers(app, 1)).toEqual(['200 store-unreachable'])
  })
})

describe('while the store fails, a credential', () => {
  const rules: RuleInput[] = [{ ...RULE, by: 'consumer', limit: 100 }]

  it('that this isolate has admitted before passes, with its consumer', async () => {
    const key = await gateway.key('acme', 'pro')
    const app = gateway.app({ plans: ['free', 'pro'], rules })
    expect((await app('/', { key })).status).toBe(200)
    gone()
    expect((await app('/', { key })).status).toBe(200)
    expect(gateway.origin.received.at(-1)!.headers).toMatchObject({
      'x-consumer-id': 'acme',
      'x-consumer-plan': 'pro',
      'sluice-degraded': 'store-unreachable',
    })
  })

  it('that was never checked gets a 503, whether made up or valid', async () => {
    const app = gateway.app({ rules })
    gone()
    gateway.origin.received.length = 0
    for (const key of [await keyFrom('good'), mintApiKey('made-up')]) {
      const response = await app('/', { key })
      expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
      expect(await response.json()).toMatchObject({ detail: expect.stringContaining('credential') })
    }
    expect(gateway.origin.received).toEqual([])
    // Reasons that need no store are still reported.
    expect((await app('/', { key: 'slk_acme_garbage' })).status).toBe(401)
  })

  async function keyFrom(consumer: string): Promise<string> {
    gateway.store.fault = undefined
    const key = await gateway.key(consumer)
    gone()
    return key
  }

  it('is forgotten after a time', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      const key = await gateway.key('acme')
      const app = gateway.app({ rules, credentials: { seenFor: '1m' } })
      expect((await app('/', { key })).status).toBe(200)
      gone()
      vi.setSystemTime(Date.now() + 59_000)
      expect((await app('/', { key })).status).toBe(200)
      vi.setSystemTime(Date.now() + 2000)
      expect((await app('/', { key })).status).toBe(503)
    } finally {
      vi.useRealTimers()
    }
  })

  it('is always refused if the config says so', async () => {
    const key = await gateway.key('acme')
    const app = gateway.app({ rules, credentials: { onStoreFailure: 'refuse' } })
    expect((await app('/', { key })).status).toBe(200)
    gone()
    expect((await app('/', { key })).status).toBe(503)
  })

  it('passes unchecked if the config says so, and the origin gets no consumer', async () => {
    const app = gateway.app({ rules, credentials: { onStoreFailure: 'unchecked' } })
    gone()
    expect((await app('/', { key: mintApiKey('acme') })).status).toBe(200)
    expect(gateway.origin.received.at(-1)!.headers).not.toHaveProperty('x-consumer-id')
  })

  it('of a blocked consumer is still refused, and so is an unknown key', async () => {
    const key = await gateway.key('villain')
    const app = gateway.app({ rules, credentials: { onStoreFailure: 'unchecked' } })
    await app('/', { key })
    await blockConsumer(gateway.admin, 'villain')
    expect((await app('/', { key })).status).toBe(403)
    const revoked = mintApiKey('acme')
    const strict = gateway.app({ rules, refusals: { rememberFor: 0 } })
    expect((await strict('/', { key: revoked })).status).toBe(401)
    gone()
    expect((await app('/', { key })).status).toBe(403)
    expect((await strict('/', { key: revoked })).status).toBe(503)
  })

  it('of a blocked consumer is refused, with any of its keys', async () => {
    const [first, second] = [await gateway.key('rogue'), await gateway.key('rogue')]
    const app = gateway.app({ rules })
    for (const key of [first, second]) expect((await app('/', { key })).status).toBe(200)
    await blockConsumer(gateway.admin, 'rogue')
    expect((await app('/', { key: first })).status).toBe(403)
    gone()
    for (const key of [first, second]) expect((await app('/', { key })).status).toBe(403)
  })

  it('that is an opaque key keeps its consumer while the isolate remembers it', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      const key = 'partner-key-number-three'
      await importKey(gateway.admin, { key }, { consumer: 'partner-three' })
      const app = gateway.app({ rules, credentials: { opaqueKeys: { rememberFor: '2s' } } })
      for (let i = 0; i < 2; i++) expect((await app('/', { key })).status).toBe(200)
      vi.setSystemTime(Date.now() + 5000)
      gone()
      expect((await app('/', { key })).status).toBe(200)
      expect(gateway.origin.received.at(-1)!.headers).toMatchObject({
        'x-consumer-id': 'partner-three',
        'sluice-degraded': 'store-unreachable',
      })
    } finally {
      vi.useRealTimers()
    }
  })

  it('is counted under the plan from before the outage', async () => {
    const key = await gateway.key('acme-pro', 'pro')
    const local: RuleInput[] = [
      { ...RULE, by: 'consumer', plans: { pro: { limit: 5 } }, onStoreFailure: 'local' },
    ]
    const app = gateway.app({ plans: ['free', 'pro'], rules: local })
    await app('/', { key })
    gone()
    const all = await answers(app, 7, { key })
    // The store has admitted the first of five.
    expect(all.filter(answer => answer.startsWith('200'))).toHaveLength(4)
  })

  it('that is an opaque key of an unknown consumer has its own count', async () => {
    const keys = ['partner-key-number-one', 'partner-key-number-two']
    for (const key of keys) await importKey(gateway.admin, { key }, { consumer: `partner-${key.slice(-3)}` })
    const local: RuleInput[] = [{ ...RULE, by: 'consumer', limit: 2, onStoreFailure: 'local' }]
    const app = gateway.app({ rules: local, credentials: { opaqueKeys: {}, onStoreFailure: 'unchecked' } })
    gone()
    for (const key of keys) {
      expect((await answers(app, 3, { key })).map(answer => answer.slice(0, 3))).toEqual([
        '200',
        '200',
        '429',
      ])
    }
  })
})

describe('when the store is back', () => {
  it('it receives the units spent meanwhile, and no budget is spent twice', async () => {
    const rules: RuleInput[] = [{ ...RULE, limit: 5, onStoreFailure: 'local' }]
    const app = gateway.app({ ...ANYONE, rules })
    const address = fresh()
    gone()
    expect((await answers(app, 4, { address })).every(answer => answer.startsWith('200'))).toBe(true)
    back()
    await untilBack(app)
    await untilBack(app)
    await vi.waitFor(async () => {
      const peek = await gateway.app({ ...ANYONE, rules: [{ ...rules[0]!, cost: 0 }] })('/', { address })
      expect(peek.headers.get('ratelimit')).toMatch(/^"few";r=1;/)
    }, PATIENT_MS)
    expect(await answers(app, 2, { address })).toEqual(['200', '429'])
  })

  it('it receives at most the units that are left, if others have spent too', async () => {
    const rules: RuleInput[] = [{ ...RULE, limit: 5, onStoreFailure: 'local' }]
    const [app, other] = [gateway.app({ ...ANYONE, rules }), gateway.app({ ...ANYONE, rules })]
    const address = fresh()
    await answers(other, 3, { address })
    gone()
    await answers(app, 4, { address })
    back()
    await untilBack(app)
    await untilBack(app)
    await vi.waitFor(async () => {
      expect(await answers(other, 1, { address })).toEqual(['429'])
    }, PATIENT_MS)
  })

  describe.each([
    ['gcra', { burst: 9 }],
    ['token-bucket', { burst: 9 }],
    ['fixed-window', {}],
  ] as const)('it counts the units spent meanwhile by its own numbers, under %s,', (algorithm, burst) => {
    const own = { limit: 9, ...burst }
    const of = (rest: Partial<RuleInput>) =>
      ({ ...RULE, algorithm, limit: 5, onStoreFailure: 'local', ...rest }) as RuleInput

    /** Spends 3 units during an outage. In the store, `left` units are left afterwards. */
    async function expectHandOver(
      config: Partial<ConfigInput> & { rules: RuleInput[] },
      app: App,
      init: Parameters<App>[1],
      left: number,
    ) {
      gone()
      expect((await answers(app, 3, init)).map(answer => answer.slice(0, 3))).toEqual(['200', '200', '200'])
      back()
      await untilBack(app)
      const peek = gateway.app({ ...config, rules: config.rules.map(rule => ({ ...rule, cost: 0 })) })
      await vi.waitFor(async () => {
        expect((await peek('/', init)).headers.get('ratelimit')).toMatch(`"few";r=${left}`)
      }, PATIENT_MS)
    }

    it('for a consumer with an override', async () => {
      // The requests that find the store again are counted by address.
      const config = { ...ANYONE, rules: [of({ by: 'consumer' }), { ...RULE, name: 'others', limit: 1000 }] }
      const key = await gateway.key('acme')
      await setOverride(gateway.admin, 'acme', compileOverride(config, { rule: 'few', ...own }))
      const app = gateway.app(config)
      expect(await answers(app, 1, { key })).toEqual(['200'])
      await expectHandOver(config, app, { key }, 5)
    })

    it('for an anonymous caller with the plan of a hook', async () => {
      const hooks = { plan: () => 'pro' }
      const config = { ...ANYONE, plans: ['free', 'pro'], hooks, rules: [of({ plans: { pro: own } })] }
      await expectHandOver(config, gateway.app(config), { address: fresh() }, 6)
    })
  })

  it('a probe detects it, not a request: during the outage, only the first request waits for the deadline', async () => {
    const deadlineClock = createDeadlineClock()
    const app = gateway.app(
      {
        ...ANYONE,
        rules: [{ ...RULE, limit: 100 }],
        store: { deadline: '1s', breaker: { retryAfter: '60s' } },
      },
      { deadlineClock },
    )
    let trips = 0
    gateway.store.fault = () => {
      trips += 1
      deadlineClock.pass(1000)
    }
    expect(await answers(app, 1)).toEqual(['200 store-timeout'])
    expect(await answers(app, 20)).toEqual(Array(20).fill('200 breaker-open'))
    // The request that waited, and one probe, which runs in the background.
    await vi.waitUntil(() => trips >= 2, PATIENT_MS)
    expect(await answers(app, 1)).toEqual(['200 breaker-open'])
    expect(trips).toBe(2)
  })
})

describe('a bug in limiting code', () => {
  const by: RuleInput = { ...RULE, by: 'header:x-long' }
  const long = { headers: { 'x-long': 'a'.repeat(500) } }
  /** Long values are hashed while the rules are bound, and the hash reads its blocks with this function. So binding fails. */
  const breakHash = () => {
    const whole = sha256
    replaceSha256(() => {
      throw new TypeError('slk_secret')
    })
    onTestFinished(() => replaceSha256(whole))
  }

  it('admits a request as if the store had failed, and the log names the place', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const app = gateway.app({ ...ANYONE, rules: [by], log: {} })
    breakHash()
    expect(await answers(app, 1, long)).toEqual(['200 internal'])
    const [line] = warn.mock.calls.map(([line]) => JSON.parse(String(line)))
    expect(line).toMatchObject({
      event: 'degraded',
      cause: 'internal',
      detail: expect.stringMatching(/^TypeError/),
    })
    expect(JSON.stringify(line)).not.toContain('slk_secret')
  })

  it('refuses if a `closed` rule applies', async () => {
    const app = gateway.app({ ...ANYONE, rules: [by, { ...RULE, name: 'shut', onStoreFailure: 'closed' }] })
    breakHash()
    expect(await answers(app, 1, long)).toEqual(['503 internal'])
  })

  it('refuses a request whose caller is not identified yet', async () => {
    const key = await gateway.key('acme')
    const app = gateway.app({ rules: [RULE] })
    breakHash()
    expect(await answers(app, 1, { key })).toEqual(['503 internal'])
  })

  it('while headers are added to a reply does not prevent the reply', async () => {
    const error = vi.spyOn(console, 'error').mockImplementation(() => {})
    const app = gateway.app({ ...ANYONE, rules: [RULE] })
    vi.spyOn(Headers.prototype, 'append').mockImplementation(() => {
      throw new TypeError('immutable')
    })
    const { status } = await app('/', { address: fresh() })
    vi.mocked(Headers.prototype.append).mockRestore()
    expect(status).toBe(200)
    expect(error.mock.calls.join()).toContain('"event":"exception"')
  })
})
