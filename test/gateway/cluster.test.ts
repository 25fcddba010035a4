/** The gateway in front of a Redis Cluster: the app, the real client, the bridge, three nodes. */
import { expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import {
  createKeySigner,
  KEY_SECRET,
  newKeySecret,
  readKeySecrets,
} from '../../src/credentials/key-signature.ts'
import { runCall as askStore, prepareDecide } from '../../src/limiter/prepared-call.ts'
import { slotOf } from '../../src/node/rest-bridge/key-slot.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { sha256 } from '../../src/sha256.ts'
import { addressStateKey, consumerStateKey, credentialKey, pointerKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { sized } from '../selection.ts'
import { bound } from '../support/bound.ts'
import { describeOnCluster } from '../support/cluster.ts'
import { compiled, configOf, credentialOf, ModelEngine, type TimedEvaluation } from '../support/engines.ts'
import { useGatewayOn } from '../support/gateway.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { newCaller, played, traffic } from '../support/traffic.ts'

const CONSUMER: RuleInput = {
  name: 'consumer',
  by: 'consumer',
  algorithm: 'sliding-log',
  limit: 5,
  period: '300d',
}
const ADDRESS: RuleInput = {
  name: 'address',
  by: 'address',
  algorithm: 'fixed-window',
  limit: 12,
  period: '300d',
}

/** Consumers whose slots are spread over all three nodes. */
const consumers = ['acme', 'globex', 'initech', 'umbrella', 'hooli']

describeOnCluster('the gateway', start => {
  const gateway = useGatewayOn(start, true)

  const app = (rules: RuleInput[] = [CONSUMER, ADDRESS], accept = ['api-key']) =>
    gateway.app({
      rules,
      credentials: { accept, onStoreFailure: 'unchecked' },
      store: { cluster: true },
    })
  const storeAt = (cluster: boolean): Store =>
    upstashStore({
      ...{ url: gateway.store.url, token: 'a token for tests', deadlineMs: 5000 },
      keyLocking: true,
      cluster,
    })

  const set = async (key: string, text: string) => {
    const init = { method: 'POST', body: JSON.stringify(['SET', key, text]) }
    const headers = { authorization: 'Bearer a token for tests', 'content-type': 'application/json' }
    expect((await fetch(gateway.store.url, { ...init, headers })).status).toBe(200)
  }

  it(`runs the script with all keys of one consumer in one slot, and declares every key (SEED=${SEED})`, async () => {
    const store = storeAt(false)
    const slots = new Set<number>()
    await forEvery(traffic(sized(30, 8)), 20, async scenario => {
      const model = new ModelEngine()
      const caller = consumerStateKey(newCaller())
      slots.add(slotOf(caller))
      // All rules count one caller. The cluster would refuse a key in another slot, and a key that is not declared.
      const asking = async ({ rules, ...others }: TimedEvaluation) => {
        const ofCaller = rules.map(({ rule, cost }) => bound(rule, caller, cost, others.now / 1e3))
        const evaluation = { ...others, rules: ofCaller }
        const expected = await model.evaluate(evaluation)
        expect(await askStore(store, prepareDecide(compiled(evaluation)))).toEqual(expected)
        return expected
      }
      for await (const _ of played(scenario, 'caller', asking));
    })
    const owners = await Promise.all([...slots].map(slot => gateway.redis.ownerOf(slot)))
    if (!FC_PATH) expect(new Set(owners).size).toBe(3)
  })

  it('sends one request for a decision over two slots; one more for a key that is new to the isolate, and one more after the first refusal', async () => {
    const key = await gateway.key('acme')
    const address = '198.51.100.1'
    const ask = app()
    gateway.store.count()
    await ask('/', { key, address })
    expect(gateway.store.count()).toBe(2)
    const { status, headers } = await ask('/', { key, address })
    expect([status, headers.get('ratelimit')]).toEqual([
      200,
      expect.stringMatching(/^"consumer";r=3;t=\d+, "address";r=10;t=\d+$/),
    ])
    expect(gateway.store.count()).toBe(1)
    for (let i = 0; i < 3; i++) await ask('/', { key, address })
    gateway.store.count()
    const refused = await ask('/', { key, address })
    expect([refused.status, refused.headers.get('ratelimit')]).toEqual([
      429,
      expect.stringMatching(/^"consumer";r=0;t=\d+, "address";r=7;t=\d+$/),
    ])
    expect(gateway.store.count()).toBe(2)
    // From another address, the same rule of the consumer refuses. Only the first refusal had units to give back.
    expect((await ask('/', { key, address: '198.51.100.50' })).status).toBe(429)
    expect(gateway.store.count()).toBe(1)
    // The refused request has cost the address nothing.
    const peek = await app([{ ...ADDRESS, cost: 0 }], ['anonymous'])('/', { address })
    expect(peek.headers.get('ratelimit')).toMatch(/^"address";r=7;/)
  })

  it('charges nothing for an unknown key', async () => {
    const address = '198.51.100.2'
    const unknown = mintApiKey('globex')
    for (let i = 0; i < 3; i++) expect((await app()('/', { key: unknown, address })).status).toBe(401)
    const peek = await app([{ ...ADDRESS, cost: 0 }], ['anonymous'])('/', { address })
    expect(peek.headers.get('ratelimit')).toMatch(/^"address";r=12;/)
  })

  it('sends one more request for the first use of an opaque key, to find its consumer', async () => {
    const opaque = 'an-old-key-of-a-partner'
    const digest = sha256(opaque)
    await set(pointerKey(digest), 'umbrella')
    await set(credentialKey('umbrella', digest), credentialOf())
    const ask = gateway.app({
      rules: [CONSUMER, ADDRESS],
      credentials: { opaqueKeys: {} },
      store: { cluster: true },
    })
    const address = '198.51.100.30'
    expect((await ask('/', { key: opaque, address })).status).toBe(200)
    expect(gateway.origin.received.at(-1)!.headers['x-consumer-id']).toBe('umbrella')
    gateway.store.count()
    const warm = await ask('/', { key: opaque, address })
    expect([warm.status, warm.headers.get('ratelimit'), gateway.store.count()]).toEqual([
      ...[200, expect.stringMatching(/^"consumer";r=3;t=\d+, "address";r=10;/), 1],
    ])
    expect((await ask('/', { key: 'a-key-that-nobody-knows', address })).status).toBe(401)
  })

  it('spends nothing in any slot while an opaque test key is taken for a live one', async () => {
    const key = 'a-test-key-of-a-partner'
    const address = '198.51.100.31'
    await importKey(gateway.admin, { key }, { consumer: 'globex-tests', mode: 'test' })
    const config = {
      rules: [CONSUMER, ADDRESS],
      credentials: { opaqueKeys: {} },
      store: { cluster: true },
    }
    const ask = gateway.app(config)
    gateway.store.count()
    const first = await ask('/', { key, address })
    // The lookup, the consumer in the wrong mode, then the consumer and the address in the right one.
    expect([first.status, first.headers.get('ratelimit'), gateway.store.count()]).toEqual([
      ...[200, expect.stringMatching(/^"consumer";r=4;t=\d+, "address";r=11;/), 4],
    ])
    expect(gateway.origin.received.at(-1)!.headers['x-consumer-mode']).toBe('test')
    expect((await ask('/', { key, address })).headers.get('ratelimit')).toMatch(
      /"consumer";r=3;.*"address";r=10;/,
    )
    expect(gateway.store.count()).toBe(1)
    const { key: live } = await createKey(gateway.admin, { consumer: 'globex-tests' })
    expect((await ask('/', { key: live, address })).headers.get('ratelimit')).toMatch(/^"consumer";r=4;/)
    // A remembered mode that is wrong: the slot of the address has admitted the request, and gives its unit back.
    await revokeKey(gateway.admin, await findKey(gateway.admin, key))
    await importKey(gateway.admin, { key }, { consumer: 'globex-tests' })
    expect((await ask('/', { key, address })).headers.get('ratelimit')).toMatch(
      /"consumer";r=3;.*"address";r=8;/,
    )
  })

  it('counts guesses that make no trip, in the slot of their address', async () => {
    const guesses: RuleInput = {
      ...{ name: 'guesses', by: 'address', on: 'auth-failure' },
      ...{ algorithm: 'fixed-window', limit: 4, period: '300d' },
    }
    const variables = { [KEY_SECRET]: newKeySecret() }
    const credentials = { apiKeys: { signature: 'require' as const } }
    const config = { rules: [CONSUMER, guesses], credentials, store: { cluster: true } }
    const [ask, other] = [gateway.app(config, { variables }), gateway.app(config, { variables })]
    const keySigner = createKeySigner(readKeySecrets(variables[KEY_SECRET])[0]!)
    const { key } = await createKey({ ...gateway.admin, keySigner }, { consumer: 'hooli' })
    const address = '198.51.100.60'
    for (let i = 0; i < 9; i++)
      expect((await ask('/', { key: mintApiKey('hooli'), address })).status).toBe(401)
    expect((await ask('/', { key, address: '198.51.100.61' })).status).toBe(200)
    expect((await ask('/', { key: mintApiKey('hooli'), address })).status).toBe(429)
    for (const each of [ask, other]) expect((await each('/', { key, address })).status).toBe(429)
  })

  it('counts guesses, and refuses valid keys too after too many of them', async () => {
    const guesses: RuleInput = {
      ...{
        name: 'guesses',
        by: 'address',
        on: 'auth-failure',
        algorithm: 'fixed-window',
        limit: 2,
        period: '7d',
      },
    }
    const ask = app([CONSUMER, ADDRESS, guesses])
    const [address, key] = ['198.51.100.40', await gateway.key('hooli')]
    const statuses = []
    for (const guess of [mintApiKey('hooli'), key, mintApiKey('initech'), mintApiKey('hooli'), key]) {
      statuses.push((await ask('/', { key: guess, address })).status)
    }
    expect(statuses).toEqual([401, 200, 401, 429, 429])
    // The address was charged only for the valid key.
    const peek = await app([{ ...ADDRESS, cost: 0 }], ['anonymous'])('/', { address })
    expect(peek.headers.get('ratelimit')).toMatch(/^"address";r=11;/)
  })

  it('takes the same trips for right and wrong opaque keys after too many guesses', async () => {
    const guesses: RuleInput = {
      ...{ name: 'guesses', by: 'address', on: 'auth-failure' },
      ...{ algorithm: 'fixed-window', limit: 1, period: '300d' },
    }
    const credentials = { opaqueKeys: {} }
    const config = { rules: [CONSUMER, ADDRESS, guesses], credentials, store: { cluster: true } }
    const address = '198.51.100.70'
    const keys = { wrong: 'a-guess-of-a-key', live: 'an-old-key-of-hooli', test: 'an-old-test-key-of-hooli' }
    for (const mode of ['live', 'test'] as const)
      await importKey(gateway.admin, { key: keys[mode] }, { consumer: 'hooli', mode })
    expect((await gateway.app(config)('/', { key: 'another-guess-of-a-key', address })).status).toBe(401)
    for (const key of Object.values(keys)) {
      const ask = await gateway.informed(config)
      gateway.store.count()
      expect([key, (await ask('/', { key, address })).status, gateway.store.count()]).toEqual([key, 429, 1])
    }
  })

  it('never exceeds a limit under concurrency, and admits up to the limit afterwards', async () => {
    const keys = await Promise.all(consumers.map(consumer => gateway.key(consumer)))
    const addresses = ['198.51.100.10', '198.51.100.11', '198.51.100.12']
    const ask = app([
      { ...CONSUMER, name: 'crowd' },
      { ...ADDRESS, name: 'crowd-address' },
    ])
    const admitted: string[][] = []
    const attempt = async (consumer: number, address: string) => {
      const { status } = await ask('/', { key: keys[consumer]!, address })
      if (status === 200) admitted.push([consumers[consumer]!, address])
      else expect(status).toBe(429)
    }
    // Each of five consumers sends 12 requests, of which 5 may pass; each of three addresses sends 20, of which 12 may pass.
    await Promise.all(Array.from({ length: 60 }, (_, i) => attempt(i % 5, addresses[i % 3]!)))
    const most = (column: number) =>
      Object.values(Object.groupBy(admitted, entry => entry[column]!)).map(all => all!.length)
    expect(Math.max(...most(0))).toBeLessThanOrEqual(5)
    expect(Math.max(...most(1))).toBeLessThanOrEqual(12)
    // The units that a refused request had spent in its other slot were given back, so each of the five consumers reaches its limit.
    for (let i = 0; i < 60; i++) await attempt(i % 5, addresses[i % 3]!)
    expect(most(0)).toEqual([5, 5, 5, 5, 5])
    expect(Math.max(...most(1))).toBeLessThanOrEqual(12)
  })

  it('decides a limit by name in one slot, for any identity', async () => {
    const { limits } = configOf({
      rules: [CONSUMER],
      limits: {
        zendesk: [
          { name: 'all', algorithm: 'sliding-log', limit: 20, period: '1h' },
          { name: 'account', by: ['account'], algorithm: 'token-bucket', limit: 9, period: '1h' },
        ],
      },
    })
    const limiter = createLimiterOnStore({ limits }, storeAt(true))
    await limiter.peek('zendesk', { account: 'x' })
    gateway.store.count()
    const decisions = await Promise.all(
      Array.from({ length: 40 }, (_, i) => limiter.limit('zendesk', { account: `account-${i % 4}` })),
    )
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(20)
    expect(decisions.filter(({ degraded }) => degraded)).toEqual([])
    expect(gateway.store.count()).toBe(40)
  })

  it('still refuses by the rules of one slot while the node of the other slot is down', async () => {
    const ask = app()
    const address = '198.51.100.20'
    const owner = await gateway.redis.ownerOf(slotOf(addressStateKey(address)))
    const consumer = (
      await Promise.all(
        consumers.map(
          async name => [name, await gateway.redis.ownerOf(slotOf(consumerStateKey(name)))] as const,
        ),
      )
    ).find(([, node]) => node !== owner)![0]
    const key = await gateway.key(consumer)
    for (let i = 0; i < 6; i++) await ask('/', { key, address })
    await owner.kill()
    expect((await ask('/', { key, address })).status).toBe(429)
    // The address cannot be counted, and the rule of the other slot admits: the request passes, marked as degraded.
    const idle = await app([{ ...CONSUMER, name: 'fresh' }, ADDRESS])('/', { key, address })
    expect([idle.status, idle.headers.get('sluice-degraded')]).toEqual([200, 'store-unreachable'])
  })
})
