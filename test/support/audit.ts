/** Changes of every kind, and what the audit trail has to say about each. */
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { AdminStore } from '../../src/ops/admin-store.ts'
import { type AuditEntry, readAudit } from '../../src/ops/audit.ts'
import type { Change } from '../../src/ops/change.ts'
import { blockConsumer, setPlan, unblockConsumer } from '../../src/ops/consumers.ts'
import { correctLimit } from '../../src/ops/corrections.ts'
import { expireKey, revokeKey, setKeyLabel, setKeyPlan } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { resetLimit } from '../../src/ops/limits.ts'
import { compileOverride, removeOverride, setOverride } from '../../src/ops/overrides.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { killLimits, resetRule, restoreLimits, switchRule } from '../../src/ops/switches.ts'
import { createToken, findToken, listTokens, revokeToken } from '../../src/ops/tokens.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { configOf } from './engines.ts'

export const INPUT: ConfigInput = {
  origin: 'route',
  rules: [{ name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 9, period: '300d' }],
  units: { tokens: { estimate: 1 } },
  limits: {
    zendesk: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 2, period: '300d' }],
    llm: [
      { name: 'tokens', by: ['team'], algorithm: 'fixed-window', limit: 90, period: '300d', unit: 'tokens' },
    ],
  },
}

export const SUPPORT: Change = {
  actor: { kind: 'token', id: '1a2b3c4d5e6f', name: 'support' },
  reason: 'ticket 42',
  requestId: 'r-1',
}
export const OPS: Change = { actor: { kind: 'operator', name: 'ops' } }

export const all = async (store: AdminStore, query = {}) =>
  (await readAudit(store, { limit: 1000, ...query })).entries

/** Each change, and its entry. The key has the plan pro and the label ci. */
export async function changesOf(store: AdminStore) {
  const config = configOf(INPUT)
  const { id } = await createKey(store, { consumer: 'acme', plan: 'pro', label: 'ci' })
  const found = () => findKey(store, id)
  const limiter = createLimiterOnStore(config, store.decisions)
  await limiter.limit('zendesk', { account: '42' })
  const until = new Date('2030-01-01T00:00:00Z')
  const override = compileOverride(INPUT, { rule: 'window', limit: 5, until })
  return [
    [
      () => createKey(store, { consumer: 'acme', label: 'new' }),
      'keys.create',
      'acme/',
      {},
      { label: 'new' },
    ],
    [
      () => importKey(store, { key: 'partner-key-number-1' }, { consumer: 'acme' }),
      'keys.import',
      'acme/',
      {},
      {},
    ],
    [async () => setKeyLabel(store, await found(), 'x'), 'keys.update', id, { label: 'ci' }, { label: 'x' }],
    [async () => setKeyPlan(store, await found(), undefined), 'keys.update', id, { plan: 'pro' }, {}],
    [
      async () => expireKey(store, await found(), until),
      'keys.update',
      id,
      {},
      { expiresAt: until.toISOString() },
    ],
    [async () => revokeKey(store, await found()), 'keys.revoke', id, { label: 'x' }, {}],
    [() => setPlan(store, 'acme', 'pro'), 'consumers.plan', 'acme', {}, { plan: 'pro' }],
    [
      () => blockConsumer(store, 'acme', { by: 'ops', reason: 'unpaid' }),
      'consumers.block',
      'acme',
      {},
      { blockedBy: 'ops', reason: 'unpaid' },
    ],
    [() => unblockConsumer(store, 'acme'), 'consumers.unblock', 'acme', { reason: 'unpaid' }, {}],
    [
      () => setOverride(store, 'acme', override),
      'overrides.set',
      'acme',
      {},
      { 'override window': { limit: 5, burst: 5, until: until.toISOString() } },
    ],
    [
      () => removeOverride(store, 'acme', 'window'),
      'overrides.remove',
      'acme',
      { 'override window': { limit: 5 } },
      {},
    ],
    [
      () => switchRule(store, 'window', { at: new Date(), by: 'ops', mode: 'shadow' }),
      'switches.set',
      'window',
      {},
      { by: 'ops', mode: 'shadow' },
    ],
    [() => resetRule(store, 'window'), 'switches.remove', 'window', { mode: 'shadow' }, {}],
    [() => killLimits(store, { at: new Date(), by: 'ops' }), 'switches.set', 'kill', {}, { by: 'ops' }],
    [() => restoreLimits(store), 'switches.remove', 'kill', { by: 'ops' }, {}],
    [
      () => resetLimit(store, config, 'zendesk', { account: '42' }),
      'limits.reset',
      'zendesk/account=42',
      { rules: ['day'] },
      {},
    ],
    [
      () => correctLimit(store, config, 'llm', { team: 'a' }, 'tokens', 7),
      'limits.correct',
      'llm/team=a',
      {},
      { rule: 'tokens', spent: 7 },
    ],
    [
      () => createToken(store, { name: 'jobs', scopes: ['stats:read'] }),
      'tokens.create',
      '',
      {},
      { name: 'jobs', scopes: ['stats:read'] },
    ],
    [
      async () => revokeToken(store, await findToken(store, (await listTokens(store))[0]!.id)),
      'tokens.revoke',
      '',
      { name: 'jobs' },
      {},
    ],
    [
      () => removeConsumer(store, 'acme', config.rules),
      'consumers.remove',
      'acme',
      { keys: 2, plan: 'pro', overrides: 0 },
      {},
    ],
  ] as const
}

/** All pages. */
export async function pagesOf(store: AdminStore, limit: number): Promise<AuditEntry[]> {
  const pages: AuditEntry[] = []
  let cursor: string | undefined
  do {
    const page = await readAudit(store, { limit, cursor })
    pages.push(...page.entries)
    cursor = page.cursor
  } while (cursor !== undefined)
  return pages
}
