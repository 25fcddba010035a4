/** Commands about test callers: their keys, what is left of their limits, and how their requests would be handled. */
import { expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { modeOfApiKey } from '../../src/credentials/api-key.ts'
import { createKeySigner, newKeySecret, readKeySecrets } from '../../src/credentials/key-signature.ts'
import { consumersCommand } from '../../src/node/cli/consumers.ts'
import { keyTable } from '../../src/node/cli/key-output.ts'
import { keysCommand } from '../../src/node/cli/keys.ts'
import { limitsCommand } from '../../src/node/cli/limits.ts'
import { explain } from '../../src/ops/explain.ts'
import { expireKey, setKeyLabel, setKeyPlan } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey, listKeys } from '../../src/ops/keys.ts'
import { peekCaller, resetCaller } from '../../src/ops/limits.ts'
import { withInput } from '../../src/ops/overrides.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { parseWhyTarget, readWhy } from '../../src/ops/why.ts'
import { configOf } from '../support/engines.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'

const gateway = useGateway()

const NINE = { algorithm: 'fixed-window', limit: 9, period: '300d' } as const
const RULES: RuleInput[] = [
  { ...NINE, name: 'apart', by: 'consumer' },
  { ...NINE, name: 'named', by: ['consumer', 'mode'] },
  { ...NINE, name: 'together', by: 'consumer', acrossModes: true },
  { ...NINE, name: 'tests', by: 'consumer', match: { mode: 'test' } },
  { ...NINE, name: 'at-address', by: ['address', 'mode'] },
  { ...NINE, name: 'all', by: 'mode' },
  { ...NINE, name: 'key', by: 'credential' },
]
const INPUT = {
  origin: 'route' as const,
  rules: RULES,
  plans: ['free', 'pro'],
  credentials: { opaqueKeys: {} },
}
const config = configOf(INPUT)

/** Runs a command. @returns what it prints */
async function run(group: 'keys' | 'limits' | 'consumers', ...args: string[]): Promise<string> {
  const commands = { keys: keysCommand, limits: limitsCommand, consumers: consumersCommand }
  const lines: string[] = []
  const spies = (['log', 'error'] as const).map(name =>
    vi.spyOn(console, name).mockImplementation(line => void lines.push(String(line))),
  )
  const store = ['--url', gateway.store.url, '--token', TOKEN]
  try {
    await commands[group](async () => withInput(config, INPUT) as never)
      .exitOverride()
      .parseAsync([...args, ...store], { from: 'user' })
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
  return lines.join('\n')
}

const left = async (identity: Record<string, string>) =>
  Object.fromEntries(
    (await peekCaller(gateway.admin, config, identity)).standings.map(({ rule, remaining }) => [
      rule.name,
      remaining,
    ]),
  )

it('what is left of the limits of a test caller is shown and reset apart from that of live ones', async () => {
  const app = gateway.app({ ...INPUT, origin: gateway.origin.url, refusals: { rememberFor: 0 } })
  const live = await createKey(gateway.admin, { consumer: 'acme' })
  const test = await createKey(gateway.admin, { consumer: 'acme', mode: 'test' })
  for (const [key, count] of [
    [live.key, 1],
    [test.key, 3],
  ] as const)
    for (let i = 0; i < count; i++) expect((await app('/', { key, address: '192.0.2.7' })).status).toBe(200)

  const acme = { consumer: 'acme' }
  expect(await left(acme)).toEqual({ apart: 8, named: 8, together: 5 })
  expect(await left({ ...acme, mode: 'live' })).toEqual({ apart: 8, named: 8, together: 5 })
  expect(await left({ ...acme, mode: 'test' })).toEqual({ apart: 6, named: 6, together: 5, tests: 6 })
  const address = { address: '192.0.2.7' }
  expect([await left(address), await left({ ...address, mode: 'test' })]).toEqual([
    { 'at-address': 8 },
    { 'at-address': 6 },
  ])
  expect([await left({ mode: 'live' }), await left({ mode: 'test' })]).toEqual([{ all: 8 }, { all: 6 }])
  // A key has one mode.
  expect(await left({ credential: test.id })).toEqual({ key: 6 })
  await expect(left({ credential: test.id, mode: 'live' })).rejects.toThrow('has the mode test')
  await expect(left({ ...acme, mode: 'sandbox' })).rejects.toThrow(
    "'sandbox' is not a mode. Use live or test.",
  )

  await resetCaller(gateway.admin, config, { ...acme, mode: 'test' })
  expect(await left({ ...acme, mode: 'test' })).toEqual({ apart: 9, named: 9, together: 9, tests: 9 })
  expect(await left(acme)).toEqual({ apart: 8, named: 8, together: 9 })
})

it('the plan of a test caller is the one that its test keys have', async () => {
  await createKey(gateway.admin, { consumer: 'acme', plan: 'pro' })
  await createKey(gateway.admin, { consumer: 'acme', mode: 'test' })
  const planOf = async (mode: string) =>
    (await peekCaller(gateway.admin, config, { consumer: 'acme', mode })).plan
  expect([await planOf('live'), await planOf('test')]).toEqual(['pro', 'free'])
})

it('keys are listed with their mode, whether it is in the key or in its record', async () => {
  const [secret] = readKeySecrets(newKeySecret())
  const test = await createKey(gateway.admin, { consumer: 'acme', mode: 'test' })
  const signed = await createKey(
    { ...gateway.admin, keySigner: createKeySigner(secret!) },
    { consumer: 'acme', mode: 'test' },
  )
  await createKey(gateway.admin, { consumer: 'acme', mode: 'live' })
  await importKey(gateway.admin, { key: 'imported-test-key' }, { consumer: 'other', mode: 'test' })
  await importKey(gateway.admin, { key: 'imported-live-key' }, { consumer: 'third' })
  expect([test.key, signed.key].map(modeOfApiKey)).toEqual(['test', 'test'])
  const keys = await listKeys(gateway.admin)
  expect(keys.map(({ consumer, mode }) => [consumer, mode])).toEqual([
    ['acme', 'test'],
    ['acme', 'test'],
    ['acme', 'live'],
    ['other', 'test'],
    ['third', 'live'],
  ])
  expect(keyTable(keys)).toMatch(/^KEY +KIND +MODE +PLAN[\s\S]*\nother\S+ +opaque-key +test +/)
})

it('a key keeps its mode when its label, its plan or its expiry changes', async () => {
  const { id } = await createKey(gateway.admin, { consumer: 'acme', mode: 'test' })
  const found = await findKey(gateway.admin, id)
  await setKeyLabel(gateway.admin, found, 'mode=live')
  await setKeyPlan(gateway.admin, found, 'pro')
  await expireKey(gateway.admin, found, new Date(Date.now() + 3600e3))
  expect(await listKeys(gateway.admin)).toMatchObject([{ id, mode: 'test', label: 'mode=live', plan: 'pro' }])
})

it('a consumer is removed with the counters of both modes', async () => {
  const log: RuleInput = { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 5, period: '1h' }
  const rules = [log, { ...log, name: 'both', acrossModes: true }]
  const app = gateway.app({ rules })
  for (const mode of ['live', 'test'] as const)
    await app('/', { key: (await createKey(gateway.admin, { consumer: 'acme', mode })).key })
  expect(Number(await gateway.redis.connection.send(['DBSIZE']))).toBeGreaterThan(5)
  await removeConsumer(gateway.admin, 'acme', configOf({ rules }).rules)
  expect(await gateway.redis.connection.send(['KEYS', '*acme*'])).toEqual([])
})

it('explain shows the mode, and the keys that test callers are counted under', async () => {
  const keysOf = async (input: object) => {
    const { caller, rules } = await explain(config, { method: 'GET', path: '/', ...input })
    return [caller.mode, ...rules.slice(0, 4).map(rule => (rule.applies ? rule.key : rule.because))]
  }
  const LIVE = [
    'live',
    'sluice:{c:acme}:state',
    'sluice:{c:acme}:state:mode=live',
    'sluice:{c:acme}:state:both-modes',
  ]
  const TEST = [
    'test',
    'sluice:{c:acme}:test',
    'sluice:{c:acme}:state:mode=test',
    'sluice:{c:acme}:state:both-modes',
  ]
  expect(await keysOf({ consumer: 'acme' })).toEqual([...LIVE, 'only for test callers'])
  expect(await keysOf({ consumer: 'acme', mode: 'test' })).toEqual([...TEST, 'sluice:{c:acme}:test'])
  const { key } = await createKey(gateway.admin, { consumer: 'acme', mode: 'test' })
  expect((await keysOf({ key })).slice(0, 4)).toEqual(TEST)
  expect((await keysOf({ key: 'a-key-made-elsewhere', mode: 'test' })).slice(0, 2)).toEqual([
    'test',
    'sluice:{c:?}:test',
  ])
  const { hints } = await explain(config, { method: 'GET', path: '/', key: 'a-key-made-elsewhere' })
  expect(hints).toContainEqual(expect.stringContaining('add --mode test'))
  await expect(keysOf({ key, mode: 'live' })).rejects.toThrow('--mode: this credential has the mode test.')
})

it('why asks about a test key in its own mode', async () => {
  const app = gateway.app({ ...INPUT, origin: gateway.origin.url })
  const { key } = await createKey(gateway.admin, { consumer: 'acme', mode: 'test' })
  for (let i = 0; i < 3; i++) expect((await app('/', { key })).status).toBe(200)
  const leftOf = async (text: string) => {
    const target = await parseWhyTarget(text, gateway.admin)
    const { rules } = await readWhy(gateway.admin, config, target)
    return rules.find(({ rule }) => rule.name === 'apart')?.remaining
  }
  expect([await leftOf(key), await leftOf('acme')]).toEqual([6, 9])
})

it('the commands take --mode', async () => {
  expect(await run('keys', 'create', '--consumer', 'acme', '--mode', 'test')).toMatch(
    /^Created a test key for consumer 'acme' [\s\S]*\nslk_acme_\w{30}t\w{6}$/,
  )
  expect(
    await run('keys', 'import', 'a-key-made-elsewhere', '--consumer', 'acme', '--mode', 'test'),
  ).toContain("belongs to consumer 'acme' now.")
  await expect(run('keys', 'create', '--consumer', 'acme', '--mode', 'tset')).rejects.toThrow(
    "'tset' is not a mode. Did you mean 'test'? Use live or test.",
  )
  const listed = JSON.parse(await run('keys', 'list', '--json'))
  expect(listed.map(({ mode }: { mode: string }) => mode)).toEqual(['test', 'test'])
  expect(await run('consumers', 'show', 'acme')).toMatch(/ api-key +test /)

  const peeked = await run('limits', 'peek', '--consumer', 'acme', '--mode', 'test')
  expect(peeked.split('\n').map(line => line.split(' ')[0])).toEqual(
    expect.arrayContaining(['apart', 'named', 'together', 'tests']),
  )
  expect(await run('limits', 'peek', '--consumer', 'acme')).not.toMatch(/^tests /m)
  expect(await run('limits', 'peek', '--mode', 'test')).toMatch(/^all /m)
  expect(await run('limits', 'reset', '--consumer', 'acme', '--mode', 'test', '--yes')).toMatch(
    /^Reset apart, named, together and tests of consumer 'acme', mode 'test'\. Not reset, because they count by more than the consumer: key\.$/,
  )
})
