/** Limits as a service binding: two Workers in workerd, one with the limits and one that calls them. */
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { Config } from '../../src/config/compile.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { startTestStore, type TestStore } from '../../src/node/testing.ts'
import { bundleOptions } from '../../src/node/worker-bundle.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { readStats } from '../../src/ops/stats.ts'
import { UNIT_ENDS } from '../support/ending-list.ts'
import { PATIENT_MS } from '../support/patience.ts'
import gatewayConfig from '../worker/rpc/gateway.config.ts'

const fileOf = (name: string) => fileURLToPath(new URL(`../worker/rpc/${name}.ts`, import.meta.url))

async function bundle(name: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [fileOf(name)],
    ...{ bundle: true, write: false, format: 'esm', target: 'es2024' },
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*'],
  })
  return outputFiles![0]!.text
}

/** Bundles the gateway and the service binding that `npx sluicegate build` generates. @param readConfig reads the config that is built */
async function bundleBuilt(
  readConfig: () => Promise<Config> = () => loadConfig(fileOf('gateway.config')),
): Promise<string> {
  const { entryPoints: _, ...options } = bundleOptions(fileOf('gateway.config'), readConfig)
  const contents = `
    export { default } from './src/built/worker.generated.ts'
    export { Limits } from './src/built/binding.generated.ts'`
  const stdin = { contents, resolveDir: options.absWorkingDir!, loader: 'ts' as const }
  const { outputFiles } = await build({ ...options, stdin })
  return outputFiles![0]!.text
}

/** Starts two Workers with the same limits, one without variables, and one that calls them. @param bundleLimits bundles the limits */
function useBinding(bundleLimits: () => Promise<string>) {
  let store: TestStore
  let miniflare: Miniflare
  let url: string

  beforeAll(async () => {
    store = await startTestStore()
    const common = { modules: true as const, compatibilityDate: '2026-10-01' }
    const limits = { name: 'limits', entrypoint: 'Limits' }
    const script = await bundleLimits()
    miniflare = new Miniflare(
      convertV4MiniflareOptions({
        cf: false,
        log: new Log(LogLevel.NONE),
        handleStructuredLogs: () => {},
        workers: [
          {
            ...common,
            name: 'caller',
            script: await bundle('caller'),
            serviceBindings: {
              LIMITS: limits,
              OTHER: { ...limits, name: 'other' },
              SIGNUPS: { ...limits, props: { limit: 'signups' } },
              ANY: limits,
              INHERITED: { ...limits, props: { limit: '__proto__' } },
              BARE: { ...limits, name: 'bare' },
            },
          },
          ...['limits', 'other'].map(name => ({ ...common, name, script, bindings: { ...store.env } })),
          { ...common, name: 'bare', script },
        ],
        // The types lack the props of a binding.
      } as unknown as Parameters<typeof convertV4MiniflareOptions>[0]),
    )
    url = (await miniflare.ready).origin
  })
  afterAll(async () => {
    await miniflare.dispose()
    await store.close()
  })

  const call = async (path: string, key = path) =>
    (await fetch(`${url}${path}?key=${encodeURIComponent(key)}`)).json() as Promise<unknown>
  return Object.assign(call, { env: () => store.env })
}

describe.each([
  ['without a build', () => bundle('limits')],
  ['as npx sluicegate build generates it, beside the gateway', () => bundleBuilt()],
])('limits as a service binding, %s', (_, bundleLimits) => {
  const call = useBinding(bundleLimits)

  it("decide like Cloudflare's binding, for the limit that the binding names", async () => {
    const successes = []
    for (let i = 0; i < 4; i++) successes.push(await call('/limit-by-key', '192.0.2.7'))
    expect(successes).toEqual([true, true, true, false])
    expect(await call('/limit-by-key', '192.0.2.8')).toBe(true)
  })

  it('count their calls in the statistics', async () => {
    for (let i = 0; i < 4; i++) await call('/limit-by-key', '192.0.2.77')
    const { UPSTASH_REDIS_REST_URL: storeUrl, UPSTASH_REDIS_REST_TOKEN: token } = call.env()
    const counts = await vi.waitUntil(
      async () => {
        const { calls, rules } = await readStats(
          createAdminStore({ url: storeUrl, token }),
          new Date(Date.now() - 3600e3),
        )
        const refused = calls.find(({ limit, outcome }) => limit === 'signups' && outcome === 'limited')
        return refused && rules.find(({ rule }) => rule === 'signups/hour')
      },
      { timeout: PATIENT_MS, interval: 100 },
    )
    expect(counts.limited).toBeGreaterThan(0)
    expect(counts.allowed).toBeGreaterThan(counts.limited)
  })

  it('report how to name a limit if a key alone could mean several', async () => {
    expect(await call('/limit-by-key/ambiguous')).toEqual({
      error:
        'limit({ key }) does not say which limit. Name one (signups, mails, drafts, exports, llm, tenant) in the props of the binding: { "limit": "signups" }.',
    })
  })

  it('report that the binding names a limit that the config does not have', async () => {
    expect(await call('/limit-by-key/inherited')).toEqual({
      error:
        "The props of the binding name the limit '__proto__', which the config does not have. Limits: signups, mails, drafts, exports, llm, tenant.",
    })
  })

  it('spend delta, all or nothing', async () => {
    const calls = []
    for (let i = 0; i < 2; i++) calls.push(await call('/limit-by-key/delta', '192.0.2.9'))
    // Cloudflare's binding would admit the second call, because the counter is still below the limit.
    expect(calls).toEqual([
      [true, 1, -1],
      [false, 1, -1],
    ])
  })

  it.each<[unknown[], string]>([
    [[{ key: 'a', delta: 0 }], 'delta is 0. Use a whole number from 1 to 1000000000.'],
    [[{ key: 'a', delta: -1 }], 'delta is -1. Use a whole number from 1 to 1000000000.'],
    [[{ key: 'a', delta: 1.5 }], 'delta is 1.5. Use a whole number from 1 to 1000000000.'],
    [[{ key: 'a', delta: '2' }], "delta is '2'. Use a whole number from 1 to 1000000000."],
    [[{ key: 'a', limit: 5 }], "limit({ key }) has no option 'limit'. Options: key, delta."],
    [[{ key: 7 }], 'key is 7. Use a string.'],
    [[{}], 'key is undefined. Use a string.'],
    [
      [{ key: 'a' }, { cost: 2 }],
      "The second argument of limit is { cost: 2 }, but limit({ key }) has only one. Use limit({ key, delta }) or limit('name', { … }, { cost }).",
    ],
    [
      [null],
      "The first argument of limit is null. Call limit({ key }), or limit('name', { … }) with the name of a limit.",
    ],
  ])('refuse what is not a key with its units: %j', async (args, error) => {
    expect(await call('/limit-by-key/arguments', JSON.stringify(args))).toEqual({ error })
  })

  it('refuse a call without arguments', async () => {
    expect(await call('/limit-by-key/nothing')).toEqual({
      error:
        "The first argument of limit is undefined. Call limit({ key }), or limit('name', { … }) with the name of a limit.",
    })
  })

  it('decide a set of rules by name, all or nothing, with a cost for each', async () => {
    const first = await call('/limit')
    expect(first).toMatchObject({
      ...{ success: true, allowed: true, limit: 'mails', retryAfterMs: 0 },
      rules: [
        { name: 'day', allowed: true, remaining: 6 },
        { name: 'all', allowed: true, remaining: 999 },
      ],
    })
    await call('/limit')
    expect(await call('/limit')).toMatchObject({
      success: false,
      rules: [
        { name: 'day', allowed: false, remaining: 2 },
        { name: 'all', allowed: true },
      ],
    })
    expect(await call('/peek', '/limit')).toMatchObject({ rules: [{ remaining: 2 }, {}] })
  })

  it('give back unused units', async () => {
    expect(await call('/refund')).toMatchObject({ allowed: true, rules: [{ name: 'day', remaining: 9 }, {}] })
  })

  it('give back units in another isolate, and no unit twice', async () => {
    expect(await call('/refund/elsewhere')).toMatchObject({
      some: [{ name: 'day', remaining: 9 }, { name: 'all' }],
      rest: [{ name: 'day', remaining: 10 }, { name: 'all' }],
      again: [],
      after: [{ name: 'day', remaining: 10 }, { name: 'all' }],
    })
    expect(await call('/refund/twice')).toBe(8)
  })

  it('take the numbers of the call, which the receipt keeps', async () => {
    expect(await call('/numbers')).toMatchObject({ rules: [{ name: 'quota', limit: 300, remaining: 295 }] })
    expect(await call('/numbers/missing')).toMatchObject({
      error: expect.stringMatching(/^The limit 'tenant' has the numbers of 'quota' from each call/),
    })
  })

  it('give back what acquire has spent, apart from the units in flight', async () => {
    expect(await call('/refund/units')).toMatchObject({
      receipt: { limit: 'drafts', identity: { account: '/refund/units' }, costs: { day: 3 } },
      rules: [{ name: 'day', remaining: 10 }],
    })
  })

  it('pause in every isolate, until another one ends it', async () => {
    const { paused, refused, allowed } = (await call('/pause')) as {
      [answer: string]: unknown
      paused: { pausedUntil: number }
    }
    expect(paused).toMatchObject({ limit: 'drafts', pausedUntil: expect.any(Number) })
    expect(refused).toMatchObject({ success: false, pausedUntil: paused.pausedUntil })
    expect(allowed).toBe(true)
  })

  it('leave no API key in the audit trail', async () => {
    const key = mintApiKey('acme')
    await call('/pause', key)
    const { UPSTASH_REDIS_REST_URL: storeUrl, UPSTASH_REDIS_REST_TOKEN: token } = call.env()
    const trail = await createAdminStore({ url: storeUrl, token }).run('XRANGE', 'sluice:{audit}', '-', '+')
    expect(String(trail)).toContain(',drafts/account=…,')
    expect(String(trail)).not.toContain(key)
  })

  it('give back nothing for a peek', async () => {
    expect(await call('/refund/of-peek')).toEqual([{}, []])
  })

  it('reserve units, which any isolate settles once', async () => {
    expect(await call('/reserve')).toMatchObject({
      allowed: true,
      reserved: { day: 200 },
      settled: { applied: true, rules: [{ name: 'day', remaining: 269, debt: 0 }] },
      again: { applied: false, rules: [{ name: 'day', remaining: 269 }] },
    })
  })

  it('leave a reservation as it is after a wrong amount', async () => {
    expect(await call('/settle/wrong')).toEqual({
      error: 'amounts.tokens is -1. Use a whole number from 0 to 1000000000.',
    })
  })

  it('name the wrong field of a receipt', async () => {
    expect(await call('/refund/wrong')).toEqual({
      error:
        'receipt.costs.day is -1. It must be a whole number from 1 to 1000000000. Pass the receipt of a decision unchanged.',
    })
  })

  it('give back and settle what still exists, after a deployment that removed a rule', async () => {
    expect(await call('/refund/old')).toMatchObject({ allowed: true, rules: [{ remaining: 10 }, {}] })
    expect(await call('/settle/old')).toMatchObject({ applied: true, rules: [{ remaining: 950 }] })
  })

  it('name the limit that does not exist, and the limits of the config', async () => {
    expect(await call('/limit/unknown')).toEqual({
      error: "The config has no limit 'nothing'. Limits: signups, mails, drafts, exports, llm, tenant.",
    })
  })

  it('name the variables that are missing', async () => {
    const { error } = (await call('/limit/without-variables')) as { error: string }
    expect(error).toContain(
      'UPSTASH_REDIS_REST_URL: is missing. On Workers: npx wrangler secret put UPSTASH_REDIS_REST_URL',
    )
  })

  it('hold a unit until it is disposed of', async () => {
    expect(await call('/acquire')).toEqual([true, true, false, true])
  })

  it.each(UNIT_ENDS)('hold their units until the caller %s', async end => {
    expect(await call('/acquire/twice', end)).toEqual([true, true, false, true, true])
  })

  it('hold nothing if acquire throws', async () => {
    expect(await call('/acquire/throws')).toEqual({
      error: "The config has no limit 'nothing'. Limits: signups, mails, drafts, exports, llm, tenant.",
    })
  })

  it('hold a unit no longer than the context of the caller lives', async () => {
    // A call waits for at most 10 s. If the units were held until the ttl of 15 s, the third call would give up.
    for (let i = 0; i < 5; i++) expect(await call('/acquire/forget')).toBe(true)
  })
})

describe('a service binding that was built for another config', () => {
  const { limits } = gatewayConfig
  const { signups, ...fewer } = limits!
  const others: [string, ConfigInput['limits'], string][] = [
    [
      'other numbers',
      { ...limits, signups: signups!.map(rule => ({ ...rule, limit: 4 })) },
      'the scripts of these rules',
    ],
    ['other algorithms', fewer, "the algorithm 'sliding-window'"],
  ]

  describe.each(others)('%s', (_, limits, lacking) => {
    const call = useBinding(() => bundleBuilt(async () => checkedConfig({ ...gatewayConfig, limits })))

    it('throws at each call, and names the command', async () => {
      for (let i = 0; i < 2; i++) {
        expect(await call('/peek')).toEqual({
          error: `src/built/ was built for another config: it lacks ${lacking}. Run npx sluicegate build.`,
        })
      }
    })
  })
})
