/** The audit trail: every change leaves one entry, written by the script that makes it; reading is bounded. */
import { describe, expect, it } from 'vitest'
import { withActor } from '../../src/ops/admin-store.ts'
import { type AuditEntry, readAudit } from '../../src/ops/audit.ts'
import { blockConsumer, setPlan, showConsumer, unblockConsumer } from '../../src/ops/consumers.ts'
import { auditDocument } from '../../src/ops/documents/audit.ts'
import { revokeKey, rotateKey, setKeyLabel } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey } from '../../src/ops/keys.ts'
import { pauseLimit, resetCaller, resetLimit, targetOf } from '../../src/ops/limits.ts'
import { parseConsumerName } from '../../src/ops/names.ts'
import { removeOverride } from '../../src/ops/overrides.ts'
import { killLimits, resetRule, restoreLimits } from '../../src/ops/switches.ts'
import { createToken, findToken, rotateToken } from '../../src/ops/tokens.ts'
import { pauseTarget } from '../../src/set-ups/limits/pausing.ts'
import { startAdmin, useAdmin } from '../support/admin.ts'
import { all, changesOf, INPUT, OPS, pagesOf, SUPPORT } from '../support/audit.ts'
import { configOf } from '../support/engines.ts'
import { describeOnRedis, startRedis } from '../support/redis.ts'

const DAY_MS = 86400e3

/** The entry without what is the same for all. */
const told = ({ action, target, before, after }: AuditEntry) => ({ action, target, before, after })

describeOnRedis('the audit trail', (start, kind) => {
  const admin = useAdmin(start)
  const { send, text } = admin

  it('has exactly one entry of every change, with its author, its reason and what has changed', async () => {
    const store = withActor(admin.store, SUPPORT)
    const changes = await changesOf(store)
    for (const [make, action, target, before, after] of changes) {
      await send('DEL', 'sluice:{audit}')
      await make()
      const entries = await all(store)
      expect.soft(entries, action).toHaveLength(1)
      expect.soft(entries[0], action).toMatchObject({ ...SUPPORT, action, before, after })
      expect.soft(entries[0]!.target.startsWith(target), `${action}: ${entries[0]!.target}`).toBe(true)
    }
    const secret = await text('XRANGE', 'sluice:{audit}', '-', '+')
    expect(secret).not.toMatch(/slk_|partner-key/)
  })

  it.each([3600e3, 0])('has one entry of a rotation, with both keys (overlap: %i ms)', async overlap => {
    const store = withActor(admin.store, OPS)
    const { id } = await createKey(store, { consumer: 'acme', expiresAt: new Date(Date.now() + DAY_MS) })
    const { created } = await rotateKey(store, await findKey(store, id), overlap)
    const rotation = {
      ...{ action: 'keys.rotate', target: id },
      after: { replacedBy: created.id, replacementEndsAt: created.expiresAt!.toISOString() },
    }
    expect((await all(store)).map(told)).toMatchObject([rotation, { action: 'keys.create', target: id }])
    expect((await all(store, { target: created.id })).map(told)).toMatchObject([rotation])
  })

  it.each([3600e3, 0])(
    'has one entry of a rotation, with both service tokens (overlap: %i ms)',
    async overlap => {
      const store = withActor(admin.store, SUPPORT)
      const { id } = await createToken(store, { name: 'jobs', scopes: ['stats:read'] })
      const { created } = await rotateToken(store, await findToken(store, id), overlap)
      const rotation = { action: 'tokens.rotate', target: id, after: { replacedBy: created.id } }
      expect((await all(store)).map(told)).toMatchObject([rotation, { action: 'tokens.create', target: id }])
      expect((await all(store, { target: created.id })).map(told)).toMatchObject([rotation])
      expect(await text('XRANGE', 'sluice:{audit}', '-', '+')).not.toContain('slt_')
    },
  )

  it('has nothing of a change that changes nothing, or fails', async () => {
    const store = withActor(admin.store, OPS)
    const { id } = await createKey(store, { consumer: 'acme', label: 'ci' })
    const found = await findKey(store, id)
    await blockConsumer(store, 'acme')
    await send('DEL', 'sluice:{audit}')
    await blockConsumer(store, 'acme')
    await setKeyLabel(store, found, 'ci')
    await resetRule(store, 'window')
    await restoreLimits(store)
    await resetLimit(store, configOf(INPUT), 'zendesk', { account: 'unused' })
    await resetCaller(store, configOf(INPUT), { consumer: 'acme' })
    await removeOverride(store, 'acme', 'window')
    await expect(unblockConsumer(store, 'unknown')).rejects.toThrow()
    await send('DEL', 'sluice:{c:acme}:consumer', `sluice:{c:acme}:key:${found.digest}`)
    await expect(setKeyLabel(store, found, 'x')).rejects.toThrow('has expired, or was revoked')
    await revokeKey(store, found)
    expect(await all(store)).toEqual([])
  })

  it('has one entry for each of several writers, in an order that fits together', async () => {
    const store = withActor(admin.store, OPS)
    const plans = ['a', 'b', 'c', 'd']
    await Promise.all(plans.map(plan => setPlan(store, 'acme', plan)))
    const entries = (await all(store)).reverse()
    expect(entries).toHaveLength(4)
    expect(entries.map(({ before }) => before.plan)).toEqual([
      undefined,
      ...entries.slice(0, 3).map(({ after }) => after.plan),
    ])
    expect((await showConsumer(store, 'acme')).plan).toBe(entries.at(-1)!.after.plan)
    const { id } = await createKey(store, { consumer: 'acme' })
    const found = await findKey(store, id)
    await Promise.all([revokeKey(store, found), revokeKey(store, found)])
    expect((await all(store)).filter(({ action }) => action === 'keys.revoke')).toHaveLength(1)
  })

  it('refuses the change if the entry cannot be written', async () => {
    const store = withActor(admin.store, OPS)
    const { id } = await createKey(store, { consumer: 'acme' })
    await send('SET', 'sluice:{audit}', 'not a stream')
    await expect(revokeKey(store, await findKey(store, id))).rejects.toThrow()
    await expect(setPlan(store, 'acme', 'pro')).rejects.toThrow()
    expect((await findKey(store, id)).id).toBe(id)
    expect(await send('EXISTS', 'sluice:{c:acme}:consumer')).toBe(0)
  })

  it('keeps entries for a time, whatever their number, and then ends', async () => {
    let now = Date.now()
    const store = withActor(admin.store, OPS, 90 * DAY_MS, () => now)
    await setPlan(store, 'acme', 'first')
    const copy = `for i = 1, 300 do redis.call('XADD', KEYS[1], '*', unpack(redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][2])) end`
    await send('EVAL', copy, '1', 'sluice:{audit}')
    expect(await all(store)).toHaveLength(301)
    // The embedded Redis keeps nothing for longer than 24 days.
    const days = kind === 'embedded' ? 24 : 89
    expect(Number(await send('PTTL', 'sluice:{audit}'))).toBeGreaterThan(days * DAY_MS)
    now += 89 * DAY_MS
    await setPlan(store, 'acme', 'later')
    expect(await send('XLEN', 'sluice:{audit}')).toBe(302)
    now += 2 * DAY_MS
    await setPlan(store, 'acme', 'last')
    // Whole nodes of about 100 entries are removed; readers leave out the rest. The embedded Redis removes nothing.
    if (kind !== 'embedded') expect(Number(await send('XLEN', 'sluice:{audit}'))).toBeLessThan(110)
    expect((await readAudit(store, { limit: 1000 }, now)).entries).toEqual([])
  })

  it('is read in pages, by target, by kind and by time', async () => {
    const store = withActor(admin.store, SUPPORT)
    const { id } = await createKey(store, { consumer: 'acme' })
    for (let i = 0; i < 25; i++) await setPlan(store, i % 5 === 0 ? 'acme' : 'acme-2', `plan-${i}`)
    await killLimits(store, { at: new Date(), by: 'ops' })
    const pages = await pagesOf(store, 4)
    expect(pages).toEqual(await all(store))
    expect(new Set(pages.map(({ id }) => id)).size).toBe(27)
    expect((await all(store, { target: 'acme' })).map(({ target }) => target)).toEqual([
      ...Array(5).fill('acme'),
      id,
    ])
    expect((await all(store, { target: id })).map(({ action }) => action)).toEqual(['keys.create'])
    expect((await all(store, { kind: 'switches' })).map(({ target }) => target)).toEqual(['kill'])
    const since = pages[10]!.at
    expect((await all(store, { since })).every(({ at }) => at >= since)).toBe(true)
    for (const cursor of ['x', '0-0', '00-0', '0-0@sluice:{audit}', '(1-1', '1-1\n'])
      await expect(readAudit(store, { limit: 4, cursor })).rejects.toThrow('The cursor is not valid')
    expect(auditDocument({ entries: [pages[0]!] }).items[0]).toMatchObject({
      actor: { kind: 'token', name: 'support' },
      action: 'switches.set',
      requestId: 'r-1',
    })
  })

  it('is read by the name of a consumer of tokens as users write it', async () => {
    const store = withActor(admin.store, OPS)
    await setPlan(store, await parseConsumerName('auth0~user|1'), 'pro')
    for (const target of ['auth0~user|1', 'auth0~user%7C1'])
      expect((await all(store, { target })).map(({ action }) => action)).toEqual(['consumers.plan'])
  })

  it('is read past entries that others have written into its stream', async () => {
    const store = withActor(admin.store, OPS)
    await setPlan(store, 'acme', 'pro')
    await send('XADD', 'sluice:{audit}', '*', 'a', 'b')
    expect(await all(store, { target: 'acme' })).toHaveLength(1)
    expect(await all(store, { kind: 'consumers' })).toHaveLength(1)
    expect(await all(store)).toHaveLength(2)
  })

  it('has no key or token that is the identity of a limit, and one target of an identity', async () => {
    const store = withActor(admin.store, OPS)
    const { token } = await createToken(admin.store, { name: 'a', scopes: ['stats:read'] })
    const { key } = await createKey(admin.store, { consumer: 'acme' })
    for (const account of [token, key, `x,${key}`]) {
      await pauseLimit(store, configOf(INPUT), 'zendesk', { account }, 1000)
      await resetLimit(store, configOf(INPUT), 'zendesk', { account })
    }
    expect(await text('XRANGE', 'sluice:{audit}', '-', '+')).not.toMatch(/slk_|slt_/)
    expect(new Set((await all(store)).map(({ target }) => target))).toEqual(
      new Set(['zendesk/account=…', 'zendesk/account=x,…']),
    )
    expect(targetOf('sms', { address: '192.0.2.7' })).toBe(pauseTarget('sms', { address: '192.0.2.7' }))
  })

  it('has bounded, printable texts', async () => {
    const reason = `${'x'.repeat(300)}`
    const store = withActor(admin.store, {
      actor: { kind: 'operator', name: 'a\u202Eb\nc' },
      reason,
      requestId: '\u0007',
    })
    await setPlan(store, 'acme', 'pro')
    const [entry] = await all(store)
    expect(entry).toMatchObject({ actor: { name: 'a?b?c' }, reason: 'x'.repeat(200), requestId: '?' })
  })
})

describe('a store without an author', () => {
  it('leaves no entry', async () => {
    const admin = await startAdmin(await startRedis())
    await setPlan(admin.store, 'acme', 'pro')
    expect(await readAudit(admin.store, { limit: 10 })).toEqual({ entries: [] })
    await admin.close()
  })
})
