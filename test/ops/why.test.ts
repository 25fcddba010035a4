/** What `npx sluicegate why` finds out about a caller: one sentence. Nothing is counted. */
import { expect, it } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { GatewayError } from '../../src/errors.ts'
import { callFor } from '../../src/metrics/add-counts.ts'
import { createTopCallers } from '../../src/metrics/top-callers.ts'
import { detailsOf } from '../../src/node/cli/why-output.ts'
import { type AdminStore, withActor } from '../../src/ops/admin-store.ts'
import { blockConsumer, unblockConsumer } from '../../src/ops/consumers.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { compileOverride, setOverride } from '../../src/ops/overrides.ts'
import { killLimits, switchRule } from '../../src/ops/switches.ts'
import { parseWhyTarget, readWhy, withLastChange } from '../../src/ops/why.ts'
import { verdictOf } from '../../src/ops/why-verdict.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { AUDIT_KEY } from '../../src/store/keys.ts'
import { configOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const MONTH: RuleInput = {
  ...{ name: 'month', by: 'consumer', algorithm: 'fixed-window', limit: 3, period: '300d' },
  plans: { pro: { limit: 6 } },
}

const INPUT = {
  plans: ['free', 'pro'],
  rules: [
    MONTH,
    { name: 'trial', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d', mode: 'shadow' },
    { name: 'by-key', by: 'credential', algorithm: 'fixed-window', limit: 5, period: '300d' },
    { name: 'tenant', by: ['consumer', 'header:x-tenant'], algorithm: 'gcra', limit: 50, period: '1d' },
    { name: 'address', by: 'address', algorithm: 'fixed-window', limit: 5, period: '300d' },
    { name: 'all', by: 'global', algorithm: 'fixed-window', limit: 9, period: '300d' },
    { name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'gcra', limit: 1, period: '300d' },
  ],
  routes: [{ name: 'exports', match: { path: '/exports' }, cost: 3 }],
  limits: {
    mail: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 2, period: '300d' }],
  },
  allow: { addresses: ['203.0.113.0/24'], consumers: ['friend'] },
  block: { addresses: ['198.51.100.0/24'] },
  stats: { topCallers: 'networks' },
} satisfies ConfigInput

describeOnRedis('why', (_, kind) => {
  const gateway = useGateway(kind)
  const config = configOf(INPUT)

  const facts = async (caller: string, store: AdminStore = gateway.admin, of = config) =>
    await readWhy(store, of, await parseWhyTarget(caller, store))
  /** The sentence, with each time of today as T. */
  const why = async (...args: Parameters<typeof facts>) => {
    const { state, sentence } = verdictOf(await facts(...args), args[2] ?? config)
    return [state, sentence.replaceAll(/\b\d\d:\d\d UTC/g, 'T').replaceAll(/in \d+ d\b/g, 'in D')]
  }
  const app = () => gateway.app({ ...INPUT, refusals: { rememberFor: 0 } })
  const spend = async (key: string, times: number) => {
    const send = app()
    for (let i = 0; i < times; i++) await send('/', { key, address: '192.0.2.7' })
  }
  /** Refusals that isolates have sent, so many minutes ago. */
  async function refused(name: string, rule: string, count: number, minutesAgo = 0) {
    const at = new Date(Date.now() - minutesAgo * 60e3)
    const isolate = createTopCallers('networks')
    const [consumer, mode] = name.split(' ')
    const caller = name.includes('.')
      ? { address: name }
      : { consumer, ...(mode && { mode: 'test' as const }) }
    for (let i = 0; i < count; i++)
      isolate.record(
        { outcome: 'limited', verdicts: [{ rule: { name: rule }, mode: 'enforce', allowed: false }] },
        caller,
      )
    await gateway.admin.decisions.run([isolate.addTo(callFor([['lost', 1]], at), at).call])
  }

  it('a consumer is refused: by which rule, since when, until when, and with which settings', async () => {
    const { key } = await createKey(gateway.admin, { consumer: 'acme' })
    await spend(key, 4)
    expect(await why('acme')).toEqual([
      'refused',
      'acme is refused by `month` (3 per 300 days) since a time that is not on record (counters arrive within about 10 s, and only those of the most refused callers); admitted again in D; plan free; override none; newest setting from T (key created).',
    ])
    await refused('acme', 'month', 7)
    expect((await why('acme'))[1]).toMatch(
      /^acme is refused by `month` \(3 per 300 days\) since T; admitted again in D; plan free; /,
    )
    const details = detailsOf(await facts('acme'))
    expect(details).toMatch(/^month +enforce +3 per 300 days +no +0 +in \d+ d +7 /m)
    expect(details).toMatch(/^trial +shadow /m)
    expect(details).toMatch(/^all +enforce +9 per 300 days +yes +6$/m)
    expect(details).toContain('Not asked, because they count by more: tenant (add --by header:x-tenant=…).')
  })

  it('names the newest setting, which is no claim about removed ones: these are in the audit trail', async () => {
    const store = withActor(gateway.admin, { actor: { kind: 'operator', name: 'ops' } })
    await createKey(store, { consumer: 'acme' })
    await blockConsumer(store, 'acme', { by: 'ops' })
    await unblockConsumer(store, 'acme')
    const known = await withLastChange(store, await facts('acme'))
    expect(verdictOf(known, config).sentence).toMatch(/; newest setting from [\d:]+ UTC \(key created\)\.$/)
    expect(known.lastChange?.action).toBe('consumers.unblock')
  })

  it('shows the changes around the first refusal, also behind newer ones', async () => {
    const change = async (minutesAgo: number, after: string) => {
      const id = `${Date.now() - minutesAgo * 60e3}-0`
      const plans = JSON.stringify({
        before: { plan: after === 'pro' ? 'free' : 'pro' },
        after: { plan: after },
      })
      const values = [
        'actor',
        'operator',
        'name',
        'ops',
        'action',
        'consumers.plan',
        'target',
        'acme',
        'change',
      ]
      await gateway.admin.run('XADD', gateway.admin.at(AUDIT_KEY), id, ...values, plans)
    }
    for (let i = 0; i < 5; i++) await change(300 - i, i % 2 ? 'free' : 'pro')
    await change(31, 'free')
    await refused('acme', 'month', 5, 28)
    for (let i = 0; i < 5; i++) await change(20 - i, i % 2 ? 'free' : 'pro')
    const known = await withLastChange(gateway.admin, await facts('acme'))
    const ago = known.changes!.map(({ at }) => Math.round((known.now.getTime() - at.getTime()) / 60e3))
    expect(ago).toEqual([19, 20, 31, 296, 297])
    const lines = detailsOf(known).split('\n')
    const heading = lines.indexOf('Changes around the first refusal, the newest first:')
    expect(lines.slice(heading + 1).map(line => line.replace(/^[\d-]+ [\d:]+ +/, ''))).toEqual([
      expect.stringContaining('plan pro → free'),
      expect.stringContaining('plan free → pro'),
      'the first refusal',
      expect.stringContaining('plan pro → free'),
      expect.stringContaining('plan free → pro'),
      expect.stringContaining('plan pro → free'),
    ])
  })

  it('a consumer was refused until a change of its settings', async () => {
    await createKey(gateway.admin, { consumer: 'acme' })
    await refused('acme', 'month', 5, 1)
    expect((await why('acme'))[0]).toBe('partly')
    const store = withActor(gateway.admin, { actor: { kind: 'operator', name: 'ops' } })
    await setOverride(store, 'acme', compileOverride(INPUT, { rule: 'month', limit: 9 }))
    const { state, sentence } = verdictOf(await withLastChange(store, await facts('acme')), config)
    expect([state, sentence.replaceAll(/\b\d\d:\d\d UTC/g, 'T')]).toEqual([
      'admitted',
      expect.stringMatching(
        /^acme was refused by `month` until T; admitted now; plan free; override of `month`/,
      ),
    ])
  })

  it('a rule of another unit than requests would admit a request that costs no more than what is left', async () => {
    const input = {
      ...INPUT,
      units: { tokens: { estimate: 1 } },
      rules: [
        {
          name: 'day',
          unit: 'tokens',
          by: 'consumer',
          algorithm: 'fixed-window',
          limit: 300,
          period: '300d',
        },
      ],
    } as ConfigInput
    await createKey(gateway.admin, { consumer: 'acme' })
    await refused('acme', 'day', 5)
    expect((await why('acme', gateway.admin, configOf(input)))[1]).toContain(
      'one more request now would be admitted if it costs no more than the 300 tokens that are left of `day`;',
    )
  })

  it('counts nothing', async () => {
    const { key } = await createKey(gateway.admin, { consumer: 'acme' })
    const before = await why('acme')
    for (let i = 0; i < 9; i++) await why('acme')
    expect(await why('acme')).toEqual(before)
    expect((await app()('/', { key })).headers.get('ratelimit')).toContain('"month";r=2')
  })

  it('a consumer is refused now and then, by a rule that would admit the next request, or that cannot be asked', async () => {
    await createKey(gateway.admin, { consumer: 'acme', plan: 'pro' })
    await refused('acme', 'month', 5)
    expect(await why('acme')).toEqual([
      'partly',
      'acme is refused by `month` (6 per 300 days) since T: 5 requests in the last 5 minutes; one more request now would be admitted; plan pro; override none; newest setting from T (key created).',
    ])
    await refused('acme', 'tenant', 2)
    expect((await why('acme'))[1]).toContain(
      '`tenant` was not asked, so nothing says whether one more request now would be admitted',
    )
  })

  it('a consumer is not refused any more by a rule that a switch has made a shadow, or turned off', async () => {
    await createKey(gateway.admin, { consumer: 'acme' })
    await refused('acme', 'month', 5)
    for (const mode of ['shadow', 'off'] as const) {
      await switchRule(gateway.admin, 'month', { mode, at: new Date(), by: 'ops' })
      expect((await why('acme'))[1]).toMatch(
        new RegExp(
          `^acme is admitted; last refused by \`month\` at .*\`month\` is switched to ${mode} by ops`,
        ),
      )
    }
  })

  it('a consumer whose test keys are refused, and such a key', async () => {
    await createKey(gateway.admin, { consumer: 'acme' })
    const test = await createKey(gateway.admin, { consumer: 'acme', mode: 'test' })
    await refused('acme test', 'month', 5)
    expect(await why('acme')).toEqual([
      'admitted',
      expect.stringMatching(
        /^acme is admitted; no refusal is on record since .*T; its test requests are refused by `month` since T: 5 requests in the last 5 minutes; plan free; /,
      ),
    ])
    expect(detailsOf(await facts('acme'))).toMatch(/^month \(test\) +enforce +5 /m)
    expect((await why(test.id))[1]).toMatch(
      / is refused by `month` \(3 per 300 days\) since T: 5 requests in/,
    )
    // A rule with acrossModes counts both together.
    const rules = INPUT.rules.map(rule => (rule === MONTH ? { ...MONTH, acrossModes: true } : rule))
    const together = configOf({ ...INPUT, rules })
    expect((await why('acme', gateway.admin, together))[1]).toMatch(
      /^acme is refused by `month` .* since T: 5 requests in/,
    )
    await refused('acme test', 'trial', 1, 20)
    await refused('beta test', 'month', 1, 20)
    expect((await why('beta'))[1]).toMatch(/its test requests were last refused by `month` at .*T;/)
  })

  it('names in the store cannot change how the terminal shows the sentence', async () => {
    await createKey(gateway.admin, { consumer: 'acme' })
    await refused('acme', 'mon\u001b[2Jth', 5)
    expect((await why('acme'))[1]).toContain('acme is refused by `mon?[2Jth` since T')
  })

  it('a consumer is admitted, also with an earlier refusal', async () => {
    await createKey(gateway.admin, { consumer: 'acme' })
    const none = 'acme is admitted; no refusal is on record since '
    expect((await why('acme'))[1]).toMatch(new RegExp(`^${none}`))
    await refused('acme', 'month', 5, 30)
    expect(await why('acme')).toEqual([
      'admitted',
      expect.stringContaining('acme is admitted; last refused by `month` at '),
    ])
    const without = configOf({ ...INPUT, stats: { topCallers: 'off' } })
    expect((await why('acme', gateway.admin, without))[1]).toContain(
      'whether it was refused before is not on record',
    )
  })

  it('a consumer is blocked, unknown, or has no key', async () => {
    const { id } = await createKey(gateway.admin, { consumer: 'acme' })
    await blockConsumer(gateway.admin, 'acme', { by: 'ops', reason: 'unpaid' })
    expect((await why('acme'))[1]).toMatch(
      /^acme is refused with a 403: blocked since [\d-]+ T, by ops: unpaid; plan free; override none; newest setting from T \(block by ops\)\.$/,
    )
    expect(await why('acne')).toEqual([
      'refused',
      "acne is refused with a 401: it has no valid key; the store has no key and no setting of it. Did you mean 'acme'?",
    ])
    await createKey(gateway.admin, { consumer: 'beta' })
    await setOverride(gateway.admin, 'gone', compileOverride(INPUT, { rule: 'month', limit: 9 }))
    await revokeKey(gateway.admin, await findKey(gateway.admin, id))
    expect((await why('gone'))[1]).toMatch(
      /^gone is refused with a 401: it has no valid key; plan free; override of `month` \(limit 9\)/,
    )
  })

  it('a key is known, or not; its text is never shown', async () => {
    const { key, id } = await createKey(gateway.admin, { consumer: 'acme', plan: 'pro' })
    expect((await why(id))[1]).toMatch(new RegExp(`^${id} is admitted; .*; plan pro; `))
    expect((await why(key))[1]).toMatch(new RegExp(`^${id} is admitted; `))
    const opaque = 'a-key-of-another-system'
    await importKey(gateway.admin, { key: opaque }, { consumer: 'beta' })
    const known = configOf({ ...INPUT, credentials: { opaqueKeys: {} } })
    expect((await why(opaque, gateway.admin, known))[1]).toMatch(/^beta\/[0-9a-f]{12} is admitted; /)
    await spend(key, 6)
    expect((await why(id))[1]).toMatch(new RegExp(`^${id} is refused by \`by-key\` \\(5 per 300 days\\)`))
    await revokeKey(gateway.admin, await findKey(gateway.admin, id))
    const unknown =
      'is refused with a 401: the store does not know this key; it never existed, has expired, or was revoked.'
    expect(await why(id)).toEqual(['refused', `${id} ${unknown}`])
    expect(await why(mintApiKey('acme'))).toEqual(['refused', `this key ${unknown}`])
  })

  it('a switch: a rule that it enforces, a rule that it turns off, and the kill switch', async () => {
    const { key } = await createKey(gateway.admin, { consumer: 'acme' })
    await spend(key, 3)
    const by = { at: new Date(), by: 'ops' }
    await switchRule(gateway.admin, 'trial', { ...by, mode: 'enforce' })
    await switchRule(gateway.admin, 'month', { ...by, mode: 'off' })
    const [, sentence] = await why('acme')
    expect(sentence).toContain(
      'acme is refused by `trial` (1 per 300 days, enforced by a switch of ops since T)',
    )
    expect(sentence).toContain(
      '; `month` is switched to off by ops since T; newest setting from T (switch of `',
    )
    expect(sentence).not.toContain('refused by `month`')
    await killLimits(gateway.admin, by)
    expect(await why('acme')).toEqual([
      'admitted',
      expect.stringContaining(
        'acme is admitted: ops has turned the kill switch on since T, so no rule limits anything; ',
      ),
    ])
  })

  it('a cost that a rule never admits: of each request, or of those on a route', async () => {
    await createKey(gateway.admin, { consumer: 'acme' })
    await setOverride(gateway.admin, 'acme', compileOverride(INPUT, { rule: 'month', limit: 2 }))
    expect((await why('acme'))[1]).toMatch(
      /^acme is admitted, but never on route exports, where a request costs 3 and `month` admits at most 2 at once; /,
    )
    const costly = configOf({ ...INPUT, routes: [], rules: [{ ...MONTH, cost: 3 }] })
    expect((await why('acme', gateway.admin, costly))[1]).toMatch(
      /^acme is always refused by `month` \(2 per 300 days\): a request costs 3, and it admits at most 2 at once; plan free; override of `month` \(limit 2\); /,
    )
  })

  it('an address: its rules, its network on record, and the lists of the config', async () => {
    const { key } = await createKey(gateway.admin, { consumer: 'acme' })
    await spend(key, 3)
    expect((await why('192.0.2.7'))[1]).toMatch(
      /^192\.0\.2\.7 is refused by no rule by address; no refusal is on record since /,
    )
    await refused('192.0.2.9', 'address', 4)
    expect(await why('192.0.2.7')).toEqual([
      'partly',
      '192.0.2.7 is refused by `address` (5 per 300 days) since T: 4 requests in the last 5 minutes; one more request now would be admitted.',
    ])
    await switchRule(gateway.admin, 'address', { at: new Date(), by: 'ops', mode: 'off' })
    await switchRule(gateway.admin, 'month', { at: new Date(), by: 'ops', mode: 'off' })
    expect((await why('192.0.2.7'))[1]).toMatch(
      /; `address` is switched to off by ops since T; newest setting from T \(switch of `address` by ops\)\.$/,
    )
    expect((await why('198.51.100.7'))[1]).toContain('is refused with a 403: block.addresses has it')
    expect((await why('203.0.113.7'))[1]).toContain(
      'is admitted: allow.addresses has it, so no rule limits it',
    )
    await createKey(gateway.admin, { consumer: 'friend' })
    expect((await why('friend'))[1]).toContain('is admitted: allow.consumers has it')
  })

  it('an identity of limits by name', async () => {
    const limiter = createLimiterOnStore(config, gateway.admin.decisions)
    for (let i = 0; i < 3; i++) await limiter.limit('mail', { account: '42' })
    await limiter.close()
    expect((await why('account=42'))[1]).toMatch(
      /^account=42 is refused by `mail\/day` \(2 per 300 days\) since T; admitted again in D\.$/,
    )
    expect((await why('account=43'))[0]).toBe('admitted')
    await limiter.pause('mail', { account: '43' }, { forMs: 60_000 })
    expect(await why('account=43')).toEqual(['refused', 'account=43 is refused: `mail` is paused until T.'])
    await expect(facts('user=7')).rejects.toThrow(
      'No limit by name counts by user. Limits by name count by: account=… (mail).',
    )
  })

  it('rules that do not answer: what is known is said, and that the rest is not', async () => {
    await createKey(gateway.admin, { consumer: 'acme', plan: 'pro' })
    const error = new GatewayError('ERR_STORE_TIMEOUT', 'The store did not answer in time.')
    const store = {
      ...gateway.admin,
      decisions: { ...gateway.admin.decisions, run: () => Promise.reject(error) },
    }
    const [state, sentence] = await why('acme', store)
    expect(state).toBe('unknown')
    expect(sentence).toMatch(
      /^acme may be refused or admitted: The store did not answer in time; plan pro; override none; /,
    )
  })
})
