import { scryptSync } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import { ConfigError } from '../../../src/config/config-error.ts'
import { checkServeConfig } from '../../../src/node/serve/serve-config.ts'
import {
  checkVariables,
  connectServeStore,
  type ServeVariables,
  storeKindOf,
} from '../../../src/node/serve/serve-store.ts'

const RULE = { name: 'a', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' } as const
const config = (input: Partial<ConfigInput> = {}): ConfigInput => ({
  origin: 'https://api.example',
  rules: [RULE],
  ...input,
})

function mistakesOf(check: () => unknown): string[] {
  try {
    check()
  } catch (error) {
    if (error instanceof ConfigError) return error.mistakes.map(({ path, message }) => `${path}: ${message}`)
    throw error
  }
  return []
}

describe('the config of serve', () => {
  it.each<[string, ConfigInput['address'], string]>([
    ['nothing is set', undefined, 'peer'],
    ['only the network is set', { ipv6Prefix: 56 }, 'peer'],
    ['a proxy is set', { from: 'x-forwarded-for', trustedProxies: ['10.0.0.0/8'] }, 'x-forwarded-for'],
  ])('reads addresses from the connection, or from a trusted proxy: %s', (_, address, from) => {
    const checked = checkServeConfig(config(address && { address }))
    expect([checked.address.from, checked.address.ipv6Prefix]).toEqual([from, address?.ipv6Prefix ?? 64])
  })

  it.each<[string, Partial<ConfigInput>]>([
    ["address.from: is 'cloudflare'", { address: { from: 'cloudflare' } }],
    ['address.trustedWorkers: has no effect with serve', { address: { trustedWorkers: ['a'] } }],
    ['block.countries: is unknown to serve', { block: { countries: ['DE'] } }],
    ["rules[1].by: has 'country'", { rules: [RULE, { ...RULE, name: 'b', by: ['address', 'country'] }] }],
    ["rules[0].by: has 'asn'", { rules: [{ ...RULE, by: 'asn' }] }],
  ])('cannot have what only Cloudflare knows: %s', (text, input) => {
    expect(mistakesOf(() => checkServeConfig(config(input)))).toEqual([expect.stringContaining(text)])
  })

  it('is checked as any other', () => {
    expect(mistakesOf(() => checkServeConfig({ rules: [{ ...RULE, limit: 0 }] }))).toEqual([
      expect.stringContaining('rules[0].limit'),
    ])
    expect(mistakesOf(() => checkServeConfig(undefined as never))).toHaveLength(1)
  })
})

describe('the secret of receipts', () => {
  const secretOf = async (password: string) => {
    const url = `redis://:${password}@127.0.0.1:1`
    const { secret, close } = await connectServeStore(checkServeConfig(config()), { REDIS_URL: url })
    await close()
    return secret
  }

  it('is the same in each process, and no quick way to guess the password of Redis', async () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    const secret = await secretOf('hunter2')
    expect(secret).toBe(scryptSync('hunter2', 'sluice:receipts', 32).toString('hex'))
    expect(await secretOf('hunter3')).not.toBe(secret)
  })
})

describe('the variables of serve', () => {
  const rest = { UPSTASH_REDIS_REST_URL: 'https://a.example', UPSTASH_REDIS_REST_TOKEN: 't' }

  it.each<[ServeVariables, string]>([
    [{ REDIS_URL: 'redis://a' }, 'redis'],
    [rest, 'rest'],
    [{ ...rest, REDIS_URL: '' }, 'rest'],
  ])('name one store: %o', (variables, kind) => expect(storeKindOf(variables)).toBe(kind))

  it.each<[string, ServeVariables]>([
    ['Two stores are set', { ...rest, REDIS_URL: 'redis://a' }],
    ['Two stores are set', { REDIS_URL: 'redis://a', UPSTASH_REDIS_REST_TOKEN: 't' }],
    ['No store is set', {}],
    ['No store is set', { REDIS_URL: '' }],
  ])('%s: %o', (text, variables) => expect(() => storeKindOf(variables)).toThrow(text))

  it.each<[string, Partial<ConfigInput>, ServeVariables]>([
    ['origin: is missing', { origin: undefined } as never, { REDIS_URL: 'redis://a' }],
    ["origin: is 'route', which only Workers have", { origin: 'route' }, { REDIS_URL: 'redis://a' }],
    [
      'UPSTASH_REDIS_REST_TOKEN: is missing. With REDIS_URL it is not needed.',
      {},
      { ...rest, UPSTASH_REDIS_REST_TOKEN: '' },
    ],
    ['SLUICE_ENVIRONMENT: is not a valid name', {}, { ...rest, SLUICE_ENVIRONMENT: 'A B' }],
  ])('say what is missing: %s', (text, input, variables) => {
    const { origin: _, ...others } = config()
    const checked = checkServeConfig({
      ...('origin' in input ? others : config()),
      ...withoutUndefined(input),
    })
    expect(mistakesOf(() => checkVariables(checked, variables))).toEqual([expect.stringContaining(text)])
  })

  it('replace an origin that only Workers have', () => {
    const checked = checkServeConfig(config({ origin: 'route' }))
    const variables = { REDIS_URL: 'redis://a', ORIGIN_URL: 'https://api.example' }
    expect(mistakesOf(() => checkVariables(checked, variables))).toEqual([])
  })
})

const withoutUndefined = (input: object) =>
  Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined))
