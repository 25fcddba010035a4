/** `npx sluicegate audit`, `switch --history`, and what `why` shows of the audit trail. */
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { auditCommand } from '../../src/node/cli/audit.ts'
import { followAudit } from '../../src/node/cli/audit-output.ts'
import { consumersCommand } from '../../src/node/cli/consumers.ts'
import { keysCommand } from '../../src/node/cli/keys.ts'
import { limitsCommand } from '../../src/node/cli/limits.ts'
import { switchCommand } from '../../src/node/cli/switch.ts'
import { tokensCommand } from '../../src/node/cli/tokens.ts'
import { whyCommand } from '../../src/node/cli/why.ts'
import { administer } from '../../src/ops/admin/index.ts'
import { withActor } from '../../src/ops/admin-store.ts'
import { setPlan } from '../../src/ops/consumers.ts'
import { withInput } from '../../src/ops/overrides.ts'
import { SELECTION } from '../selection.ts'
import { startAdmin, type TestAdmin } from '../support/admin.ts'
import { all, OPS } from '../support/audit.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const INPUT: ConfigInput = {
  origin: 'route',
  plans: ['free', 'pro'],
  rules: [{ name: 'minute', by: 'consumer', algorithm: 'gcra', limit: 100, period: '1m' }],
  limits: { zendesk: [{ name: 'day', by: ['account'], algorithm: 'gcra', limit: 5, period: '1d' }] },
  audit: { keep: '30d' },
}

const load = async () => withInput(checkedConfig(INPUT), INPUT)

const COMMANDS = {
  ...{ audit: auditCommand, consumers: consumersCommand, keys: keysCommand, limits: limitsCommand },
  ...{ switch: switchCommand, tokens: tokensCommand, why: whyCommand },
}

let admin: TestAdmin<TestRedis>
beforeAll(async () => {
  admin = await startAdmin(await startRedis())
})
afterAll(() => admin?.close())
beforeEach(async () => {
  await admin.redis.connection.send(['FLUSHALL'])
})

/** @returns the standard output */
async function run(group: keyof typeof COMMANDS, ...args: string[]): Promise<string> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => {})
  const error = vi.spyOn(console, 'error').mockImplementation(() => {})
  try {
    const at = ['--url', admin.proxy.url, '--token', 'a token for tests']
    await COMMANDS[group](load).parseAsync([...args, ...at], { from: 'user' })
    return log.mock.calls.join('\n')
  } finally {
    log.mockRestore()
    error.mockRestore()
  }
}

it('every command that changes something takes an author and a reason', async () => {
  const why = ['--by', 'alice', '--reason', 'ticket 42']
  const { key } = JSON.parse(await run('keys', 'create', '--consumer', 'acme', '--json', ...why))
  const id = (await run('keys', 'list')).match(/acme\/[0-9a-f]+/)![0]
  await run('keys', 'label', id, 'ci', ...why)
  await run('keys', 'plan', id, 'pro', ...why)
  await run('keys', 'expire', id, '30d', ...why)
  await run('keys', 'rotate', id, ...why)
  await run('keys', 'revoke', key, '--yes', ...why)
  await run('keys', 'import', 'partner-key-number-1', '--consumer', 'acme', ...why)
  await run('consumers', 'set', 'acme', '--plan', 'pro', ...why)
  await run('consumers', 'block', 'acme', '--yes', ...why)
  await run('consumers', 'unblock', 'acme', ...why)
  await run('consumers', 'override', 'acme', 'minute', '--limit', '5', ...why)
  await run('consumers', 'override', 'acme', 'minute', '--remove', ...why)
  await run('switch', 'rule', 'minute', 'shadow', ...why)
  await run('switch', 'rule', 'minute', 'reset', ...why)
  await run('switch', 'kill', 'on', '--yes', ...why)
  await run('switch', 'kill', 'off', ...why)
  await admin.redis.connection.send(['SET', 'sluice:{l:zendesk}:state:account=42', 'x'])
  await run(
    'limits',
    ...['reset', 'zendesk', '--by', 'account=42', '--yes', '--as', 'alice', '--reason', 'ticket 42'],
  )
  const created = await run('tokens', 'create', '--name', 'jobs', '--scopes', 'stats:read', '--json', ...why)
  await run('tokens', 'revoke', JSON.parse(created).id, '--yes', ...why)
  await run('consumers', 'remove', 'acme', '--yes', ...why)
  const entries = await all(admin.store)
  expect(entries).toHaveLength(20)
  for (const entry of entries)
    expect(entry).toMatchObject({ actor: { kind: 'operator', name: 'alice' }, reason: 'ticket 42' })
  expect(Number(await admin.redis.connection.send(['PTTL', 'sluice:{audit}']))).toBeLessThanOrEqual(
    30 * 86400e3,
  )
})

it('the trail, the history of switches and the last change of a consumer are shown', async () => {
  expect(await run('audit')).toBe('There are no changes on record.')
  await run('consumers', 'set', 'acme', '--plan', 'pro', '--by', 'alice')
  await run('switch', 'rule', 'minute', 'shadow', '--by', 'bob', '--reason', 'the sale')
  const [rule, plan, ...rest] = (await run('audit', '--since', '1h')).split('\n')
  expect(rest).toEqual([])
  expect(rule).toMatch(
    /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d {2}bob \(claimed\) {2}switches\.set {2}minute: mode set to shadow; reason: the sale$/,
  )
  expect(plan).toMatch(/ {2}alice \(claimed\) {2}consumers\.plan {2}acme: plan set to pro$/)
  expect(await run('audit', '--target', 'acme')).toBe(plan)
  expect(await run('switch', '--history')).toBe(rule)
  expect(await run('why', 'acme')).toContain(`Last changes:\n${plan}`)
  expect(JSON.parse(await run('why', 'acme', '--json'))).toMatchObject({
    lastChange: { actor: { kind: 'operator', name: 'alice', isClaimed: true }, action: 'consumers.plan' },
  })
  expect(JSON.parse(await run('audit', '--json'))).toMatchObject({
    items: [{ action: 'switches.set' }, { action: 'consumers.plan', before: {}, after: { plan: 'pro' } }],
  })
})

it('says changes in words, and leaves out default values', async () => {
  const why = ['--by', 'alice', '--reason', 'ticket 42']
  await run('consumers', 'override', 'acme', 'minute', '--limit', '5', ...why)
  await run('consumers', 'override', 'acme', 'minute', '--limit', '9', '--burst', '2', ...why)
  await run('consumers', 'override', 'acme', 'minute', '--remove', ...why)
  await run('consumers', 'block', 'acme', '--yes', ...why)
  const { key } = JSON.parse(await run('keys', 'create', '--consumer', 'acme', '--json', ...why))
  await run('keys', 'plan', (await run('keys', 'list')).match(/acme\/[0-9a-f]+/)![0], 'pro', ...why)
  await run('keys', 'revoke', key, '--yes', ...why)
  await admin.redis.connection.send(['SET', 'sluice:{l:zendesk}:state:account=42', 'x'])
  await run('limits', 'reset', 'zendesk', '--by', 'account=42', '--yes', '--as', 'alice')
  const lines = (await run('audit')).split('\n').map(line => line.replace(/^.*\(claimed\) {2}/, ''))
  expect(lines.map(line => line.replace(/acme\/\w+/, 'acme/K').replace(/\d{4}-\S+ \S+\d/, 'T'))).toEqual([
    'limits.reset  zendesk/account=42: rules day',
    'keys.revoke  acme/K: plan was pro; reason: ticket 42',
    'keys.update  acme/K: plan set to pro; reason: ticket 42',
    'keys.create  acme/K; reason: ticket 42',
    'consumers.block  acme: blocked at set to T; reason: ticket 42',
    'overrides.remove  acme: override minute was limit 9 and burst 2; reason: ticket 42',
    'overrides.set  acme: override minute limit 5 → limit 9 and burst 2; reason: ticket 42',
    'overrides.set  acme: override minute set to limit 5; reason: ticket 42',
  ])
})

it('quotes texts that could be taken for another part of the line, or for another entry', async () => {
  const by = 'ops (claimed)  consumers.block  acme'
  await run('keys', 'create', '--consumer', 'acme', '--label', 'x, plan none → pro; reason: yes', '--by', by)
  const [line, ...rest] = (await run('audit')).split('\n')
  expect(rest).toEqual([])
  expect(line).toContain(`  "${by}" (claimed)  keys.create  acme/`)
  expect(line).toContain('label set to "x, plan none → pro; reason: yes"')
  const [limit, account] = ['zendesk', 'a\u009b31m\u202e\u2028\u{e0041}  b']
  await run('limits', 'pause', limit, '--by', `account=${account}`, '--for', '1s', '--as', 'ops')
  expect(await run('audit')).toContain('  limits.pause  "zendesk/account=a?31m???  b": for 1 s')
  const json = await run('audit', '--json')
  expect(json).toContain('account=a\\u009b31m\\u202e\\u2028\\udb40\\udc41  b')
  expect(JSON.parse(json).items[0].target).toBe(`zendesk/account=${account}`)
})

it('--follow shows each change once, the oldest first', async () => {
  const store = withActor(admin.store, OPS)
  await setPlan(store, 'acme', 'a')
  const log = vi.spyOn(console, 'log').mockImplementation(() => {})
  let polls = 0
  const following = followAudit(store, {}, {}, async () => {
    polls++
    if (polls === 1) for (const plan of ['b', 'c']) await setPlan(store, 'acme', plan)
    if (polls === 4) throw new Error('enough')
  })
  await expect(following).rejects.toThrow('enough')
  const plans = log.mock.calls.map(([line]) => /(?:→|set to) (\w+)$/.exec(String(line))![1])
  log.mockRestore()
  expect(plans).toEqual(['a', 'b', 'c'])
})

it('goes on to follow the trail after a failure of the store, and has what was changed meanwhile', async () => {
  const log = vi.spyOn(console, 'log').mockImplementation(() => {})
  const complaint = vi.spyOn(console, 'error').mockImplementation(() => {})
  onTestFinished(() => {
    log.mockRestore()
    complaint.mockRestore()
  })
  const store = withActor(admin.store, OPS)
  await setPlan(store, 'acme', 'a')
  let polls = 0
  const following = followAudit(store, {}, {}, async () => {
    polls++
    if (polls === 1) {
      await setPlan(store, 'acme', 'b')
      admin.proxy.fault = (_, response) => void response.destroy()
    }
    if (polls === 3) admin.proxy.fault = undefined
    if (polls === 5) throw new Error('enough')
  })
  await expect(following).rejects.toThrow('enough')
  expect(log.mock.calls.map(([line]) => /(?:→|set to) (\w+)$/.exec(String(line))![1])).toEqual(['a', 'b'])
  expect(complaint.mock.calls).toEqual([[expect.stringMatching(/^Redis did not answer: .* Trying again\.$/)]])
})

it('says so if the store has never answered', async () => {
  admin.proxy.fault = (_, response) => void response.destroy()
  onTestFinished(() => {
    admin.proxy.fault = undefined
  })
  await expect(followAudit(admin.store, {}, {}, async () => {})).rejects.toMatchObject({ kind: 'store' })
})

// 3 s of CPU.
it.skipIf(SELECTION === 'quick')('follows a trail of 150,000 entries', async () => {
  const log = vi.spyOn(console, 'log').mockImplementation(() => {})
  onTestFinished(() => log.mockRestore())
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
    '{}',
  ]
  let left = 150_000
  const store = {
    ...admin.store,
    run: async () => {
      const from = left
      left -= 100
      return [
        Array.from({ length: 100 }, (_, i) => [`${from - i}-0`, values]),
        left > 0 ? `${left + 1}-0` : '',
      ]
    },
  } as unknown as typeof admin.store
  const following = followAudit(store, {}, { since: new Date(0) }, async () => {
    throw new Error('enough')
  })
  await expect(following).rejects.toThrow('enough')
  expect(log).toHaveBeenCalledTimes(150_000)
})

it('sluicegate/admin records the author of each change, and reads the trail', async () => {
  const config = await load()
  const { consumers, audit } = administer({ store: admin.store, config, by: 'sign-up' })
  await consumers.setPlan('acme', 'pro')
  await consumers.block('acme', { by: 'support', reason: 'unpaid' })
  const first = await audit({ target: 'acme', limit: 1 })
  expect(first).toMatchObject({
    items: [{ action: 'consumers.block', actor: { name: 'support' }, reason: 'unpaid' }],
  })
  expect(await audit({ cursor: first.cursor! })).toMatchObject({
    items: [{ action: 'consumers.plan', actor: { kind: 'operator', name: 'sign-up', isClaimed: true } }],
  })
  await expect(audit({ limit: 0 })).rejects.toMatchObject({ name: 'AdminError', kind: 'usage' })
  await expect(audit({ since: 'soon' })).rejects.toMatchObject({ name: 'AdminError', kind: 'usage' })
})
