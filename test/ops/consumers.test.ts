/** Consumers: their settings, concurrent changes, and their removal. */
import { describe, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { type AdminStore, withActor } from '../../src/ops/admin-store.ts'
import {
  blockConsumer,
  listConsumers,
  listExceptionalConsumers,
  setPlan,
  showConsumer,
  unblockConsumer,
} from '../../src/ops/consumers.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { createKey, importKey, listKeys } from '../../src/ops/keys.ts'
import { compileOverride, removeOverride, setOverride } from '../../src/ops/overrides.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import type { Command, Reply } from '../../src/store/admin-connection.ts'
import {
  type ConsumerRecord,
  formatConsumer,
  MAX_CONSUMER_LENGTH,
  type Override,
  parseConsumer,
} from '../../src/store/records.ts'
import { useAdmin } from '../support/admin.ts'
import { rulesOf } from '../support/engines.ts'
import { describeOnRedis } from '../support/redis.ts'

describeOnRedis('consumers', start => {
  const admin = useAdmin(start)
  const { send, text } = admin

  it('have the plan that was set, and can be blocked with a reason', async () => {
    const { isNew, record } = await setPlan(admin.store, 'acme', 'pro')
    expect({ isNew, record }).toEqual({ isNew: true, record: { plan: 'pro', overrides: [] } })
    const blocked = await blockConsumer(admin.store, 'acme', { reason: 'did not pay, twice' })
    expect(blocked).toMatchObject({ record: { plan: 'pro', reason: 'did not pay, twice' } })
    expect(blocked).not.toHaveProperty('isNew')
    expect(await text('GET', 'sluice:{c:acme}:consumer')).toMatch(
      /^plan=pro blocked=20\S+Z reason=did%20not%20pay,%20twice$/,
    )
    await unblockConsumer(admin.store, 'acme')
    expect(await text('GET', 'sluice:{c:acme}:consumer')).toBe('plan=pro')
    // Without any setting, there is no record.
    await setPlan(admin.store, 'acme', undefined)
    expect(await send('EXISTS', 'sluice:{c:acme}:consumer')).toBe(0)
  })

  it('are listed and shown with their keys', async () => {
    await createKey(admin.store, { consumer: 'acme' })
    await setPlan(admin.store, 'auth0~user%7C1', 'pro')
    expect(await listConsumers(admin.store)).toMatchObject([
      { consumer: 'acme', keys: [{ consumer: 'acme' }], overrides: [] },
      { consumer: 'auth0~user%7C1', plan: 'pro', keys: [] },
    ])
    expect(await showConsumer(admin.store, 'acme')).toMatchObject({ keys: [{ kind: 'api-key' }] })
    await expect(showConsumer(admin.store, 'nobody')).rejects.toMatchObject({
      kind: 'not-found',
      message: expect.stringMatching(
        /^The store has no consumer 'nobody'\. Consumers: acme, auth0~user%7C1\.$/,
      ),
    })
  })

  it('keep the time and the reason of a block if they are blocked again without a reason', async () => {
    const { record } = await blockConsumer(admin.store, 'acme', { reason: 'did not pay' })
    const again = await blockConsumer(admin.store, 'acme')
    expect(again).toMatchObject({ isChanged: false, before: record, record })
    const other = await blockConsumer(admin.store, 'acme', { reason: 'abuse' })
    expect(other).toMatchObject({ before: record, record: { ...record, reason: 'abuse' } })
    expect(await showConsumer(admin.store, 'acme')).toMatchObject({ ...record, reason: 'abuse' })
  })

  it('have the operator of the latest change of a block, and the time when the block ends', async () => {
    const [soon, later] = [new Date(Date.now() + 3600e3), new Date(Date.now() + 7200e3)]
    const { record } = await blockConsumer(admin.store, 'acme', { by: 'ops', until: soon, reason: 'abuse' })
    expect(record).toMatchObject({ blockedBy: 'ops', blockedUntil: soon.getTime() * 1000, reason: 'abuse' })
    expect(await text('GET', 'sluice:{c:acme}:consumer')).toMatch(
      /^plan= blocked=20\S+Z until=\d{16} by=ops reason=abuse$/,
    )
    expect((await blockConsumer(admin.store, 'acme', { by: 'night' })).isChanged).toBe(false)
    const longer = await blockConsumer(admin.store, 'acme', { by: 'night', until: later })
    const until = later.getTime() * 1000
    expect(longer.record).toEqual({ ...record, blockedBy: 'night', blockedUntil: until })
    const { blockedUntil: _, ...endless } = longer.record
    expect((await blockConsumer(admin.store, 'acme', { until: null })).record).toEqual(endless)
    expect((await unblockConsumer(admin.store, 'acme')).record).toEqual({ overrides: [] })
  })

  it('are no longer blocked when a block has ended, and can be blocked again', async () => {
    const old = { blockedAt: new Date(0), blockedUntil: 1000, blockedBy: 'ops', reason: 'abuse' }
    await send('SET', 'sluice:{c:acme}:consumer', formatConsumer({ ...old, overrides: [] }))
    await send('ZADD', 'sluice:{consumers}:names', '0', 'acme')
    expect(await listExceptionalConsumers(admin.store)).toEqual([])
    const { record } = await blockConsumer(admin.store, 'acme', { by: 'night' })
    expect(record).toEqual({ blockedAt: expect.any(Date), blockedBy: 'night', overrides: [] })
    expect(record.blockedAt!.getTime()).toBeGreaterThan(1000)
    expect(await listExceptionalConsumers(admin.store)).toEqual([{ consumer: 'acme', ...record }])
  })

  it('are not added to the list by commands that are refused or change nothing', async () => {
    await importKey(admin.store, { key: 'partner-key-of-before' }, { consumer: 'acme' })
    const before = (await text('KEYS', '*')).split(',').sort()
    for (const refused of [
      () => importKey(admin.store, { key: 'partner-key-of-before' }, { consumer: 'nobody' }),
      () => unblockConsumer(admin.store, 'nobody'),
      () => removeOverride(admin.store, 'nobody', 'minute'),
    ])
      await expect(refused()).rejects.toMatchObject({ kind: expect.stringMatching(/^(refused|not-found)$/) })
    expect(await setPlan(admin.store, 'nobody', undefined)).toMatchObject({ isChanged: false })
    expect(await unblockConsumer(admin.store, 'acme')).toMatchObject({ isChanged: false })
    expect(await text('ZRANGE', 'sluice:{consumers}:names', '0', '-1')).toBe('acme')
    expect((await text('KEYS', '*')).split(',').sort()).toEqual(before)
  })

  it('are still listed, shown and removed if only their name is left', async () => {
    await setPlan(admin.store, 'acme', 'pro')
    await setPlan(admin.store, 'acme', undefined)
    expect(await listConsumers(admin.store)).toEqual([{ consumer: 'acme', overrides: [], keys: [] }])
    expect(await showConsumer(admin.store, 'acme')).toEqual({ consumer: 'acme', overrides: [], keys: [] })
    expect(await removeConsumer(admin.store, 'acme', [])).toEqual({ keys: 0 })
    await expect(showConsumer(admin.store, 'acme')).rejects.toMatchObject({ kind: 'not-found' })
  })

  it('keep all changes that are made at the same time', async () => {
    const rules = Array.from({ length: 6 }, (_, i) => `rule-${i}`)
    await Promise.all([
      setPlan(admin.store, 'acme', 'pro'),
      blockConsumer(admin.store, 'acme'),
      ...rules.map((rule, i) => setOverride(admin.store, 'acme', { family: `aa${i}`, rule, mode: 'off' })),
    ])
    const { plan, blockedAt, overrides } = await showConsumer(admin.store, 'acme')
    expect([plan, blockedAt instanceof Date]).toEqual(['pro', true])
    expect(overrides.map(({ rule }) => rule).sort()).toEqual(rules)
  })

  it('have one override per rule, the latest', async () => {
    await setOverride(admin.store, 'acme', { family: 'old', rule: 'minute', mode: 'off' })
    await setOverride(admin.store, 'acme', { family: 'hrs', rule: 'hour', mode: 'off' })
    const { record } = await setOverride(admin.store, 'acme', {
      family: 'new',
      rule: 'minute',
      mode: 'shadow',
    })
    expect(record.overrides).toEqual([
      { family: 'hrs', rule: 'hour', mode: 'off' },
      { family: 'new', rule: 'minute', mode: 'shadow' },
    ])
    expect(await removeOverride(admin.store, 'acme', 'minute')).toMatchObject({ isChanged: true })
    const again = await removeOverride(admin.store, 'acme', 'minute')
    expect(again).toMatchObject({ isChanged: false, record: { overrides: [{ rule: 'hour' }] } })
  })

  describe('with many overrides', () => {
    const HOUR: RuleInput = { name: 'hour', by: 'consumer', algorithm: 'gcra', limit: 5, period: '1h' }
    const config = { rules: [HOUR] }
    const hour = compileOverride(config, { rule: 'hour', limit: 9 })
    const [PAST, AHEAD] = [1e15, 1e16]
    const stale = (count: number, more: Partial<Override> = {}): Override[] =>
      Array.from({ length: count }, (_, i) => ({
        ...{ family: `a${i}`, rule: `gone-${i}`, mode: 'off', ...more },
      }))
    const store = async (record: ConsumerRecord) =>
      await send('SET', 'sluice:{c:acme}:consumer', formatConsumer(record))
    const stored = async () => parseConsumer(await text('GET', 'sluice:{c:acme}:consumer'))
    /** As many overrides as one record holds. */
    const full = (() => {
      let count = 1
      while (formatConsumer({ overrides: stale(count + 1, { until: AHEAD }) }).length <= MAX_CONSUMER_LENGTH)
        count += 1
      return stale(count, { until: AHEAD })
    })()
    const namesOf = (overrides: readonly Override[]) => overrides.map(({ rule }) => rule)

    it('lose those that have ended when another one is set, and keep those that only this config does not have', async () => {
      const ended = { family: 'end', rule: 'ended', mode: 'off', until: PAST } as const
      await store({ plan: 'pro', overrides: [ended, ...stale(2), { ...ended, rule: 'hour' }] })
      const { removed, record } = await setOverride(admin.store, 'acme', hour, { config })
      expect(removed).toEqual([ended])
      expect(namesOf(record.overrides)).toEqual(['gone-0', 'gone-1', 'hour'])
      expect(await stored()).toEqual(record)
    })

    it('lose those that have ended by the clock of the store, whatever that of the operator says', async () => {
      await store({ overrides: stale(1, { until: (Date.now() - 3600e3) * 1000 }) })
      const time = [String(Math.floor(Date.now() / 1000) - 86_400), '0']
      const behind: AdminStore = {
        ...admin.store,
        run: async <T extends Reply>(...command: Command) =>
          command[0] === 'TIME' ? (time as readonly Reply[] as T) : await admin.store.run<T>(...command),
      }
      const { removed } = await setOverride(behind, 'acme', hour, { config })
      expect([removed, namesOf((await stored()).overrides)]).toEqual([[], ['gone-0', 'hour']])
    })

    it('lose those that this config does not have only if that is wished', async () => {
      const changed = { family: 'old', rule: 'hour-of-before', mode: 'off' } as const
      const off = compileOverride(
        { rules: [{ ...HOUR, name: 'off', mode: 'off' }] },
        { rule: 'off', limit: 7 },
      )
      await store({ overrides: [...stale(2), changed, off] })
      const both = { rules: [HOUR, { ...HOUR, name: 'off', mode: 'off' as const }] }
      const { removed } = await setOverride(admin.store, 'acme', hour, { config: both, removeStale: true })
      expect(namesOf(removed)).toEqual(['gone-0', 'gone-1', 'hour-of-before'])
      expect(namesOf((await stored()).overrides)).toEqual(['off', 'hour'])
    })

    it('get no other one beyond the maximum, and the error says why and what to do', async () => {
      await store({ overrides: full })
      const before = await stored()
      const error = await setOverride(admin.store, 'acme', hour, { config }).catch(error => error)
      expect(error).toMatchObject({
        kind: 'refused',
        message: expect.stringMatching(
          new RegExp(
            `^Consumer 'acme' would have ${full.length + 1} overrides, and its record 12\\d{3} bytes\\. The maximum is 12000 bytes, because`,
          ),
        ),
        nextStep: expect.stringMatching(
          new RegExp(
            `consumers override acme <rule> --remove\\..* --remove-stale: it removes the ${full.length} that have no effect`,
            's',
          ),
        ),
      })
      expect(await stored()).toEqual(before)
      const { removed, record } = await setOverride(admin.store, 'acme', hour, { config, removeStale: true })
      expect([removed.length, namesOf(record.overrides)]).toEqual([full.length, ['hour']])
    })

    it('never exceed the maximum by changes that are made at the same time', async () => {
      await store({ overrides: full.slice(3) })
      const settings = Array.from({ length: 8 }, (_, i) => {
        return setOverride(admin.store, 'acme', { ...full[0]!, rule: `new-${i}` }, { config })
      })
      const results = await Promise.allSettled(settings)
      const refused = results.filter(({ status }) => status === 'rejected')
      expect(refused.length).toBeGreaterThan(0)
      const record = await stored()
      expect(record.overrides).toHaveLength(full.length - 3 + 8 - refused.length)
      expect(formatConsumer(record).length).toBeLessThanOrEqual(MAX_CONSUMER_LENGTH)
    })

    it('can still be changed in every way but longer, if an earlier version has stored more', async () => {
      const most = [
        ...full,
        ...stale(full.length, { family: 'zzz' }).map(each => ({ ...each, rule: `${each.rule}-b` })),
        hour,
      ]
      await store({ overrides: most })
      const other = compileOverride({ rules: [{ ...HOUR, name: 'other' }] }, { rule: 'other', limit: 9 })
      await expect(setOverride(admin.store, 'acme', other, { config })).rejects.toMatchObject({
        kind: 'refused',
      })
      // The same length, with other numbers.
      const same = compileOverride(config, { rule: 'hour', limit: 8 })
      await setOverride(admin.store, 'acme', same, { config })
      await removeOverride(admin.store, 'acme', 'gone-0')
      await setPlan(admin.store, 'acme', 'pro')
      await blockConsumer(admin.store, 'acme')
      const { plan, blockedAt, overrides } = await stored()
      expect([plan, blockedAt instanceof Date, overrides.length]).toEqual(['pro', true, most.length - 1])
      expect(overrides.at(-1)).toMatchObject({ rule: 'hour', numbers: { limit: 8 } })
    })
  })

  it('are removed with their keys, settings and counters, without effect on other consumers', async () => {
    const [log] = rulesOf({ name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 5, period: '1h' })
    await createKey(admin.store, { consumer: 'globex' })
    const others = (await text('KEYS', '*')).split(',').sort()
    await createKey(admin.store, { consumer: 'acme' })
    await importKey(admin.store, { key: 'partner-key-of-before' }, { consumer: 'acme' })
    await setPlan(admin.store, 'acme', 'pro')
    await send('SET', 'sluice:{c:acme}:state', 'x')
    await send('ZADD', 'sluice:{c:acme}:state:reserved', '1', 'x')
    await send('SET', `sluice:{c:acme}:state:log:${log!.tag}`, 'x')
    await send('ZADD', 'sluice:{c:acme}:digests', '0', '0'.repeat(64))
    expect(await removeConsumer(admin.store, 'acme', [log!])).toEqual({ keys: 2 })
    expect((await text('KEYS', '*')).split(',').sort()).toEqual(others)
    expect(await listKeys(admin.store)).toHaveLength(1)
  })

  it('are removed with many keys, also where the stack is as small as in a Worker', async () => {
    const digests = Array.from({ length: 1000 }, (_, i) => `${i}`.padStart(64, '0'))
    const record = 'plan= created=2026-11-26T18:00:00.000Z'
    await send('MSET', ...digests.flatMap(digest => [`sluice:{c:acme}:key:${digest}`, record]))
    await send('ZADD', 'sluice:{c:acme}:digests', ...digests.flatMap(digest => ['0', digest]))
    const run: AdminStore['run'] = (...command) => {
      if (command.length > 1000) throw new RangeError('Maximum call stack size exceeded')
      return admin.store.run(...command)
    }
    const inWorker = withActor({ ...admin.store, run }, { actor: { kind: 'operator', name: 'ops' } })
    expect(await removeConsumer(inWorker, 'acme', [])).toEqual({ keys: 1000 })
    expect(await text('KEYS', 'sluice:{c:*')).toBe('')
  })

  it.each<[string, () => Promise<unknown>]>([
    ['a key is revoked', async () => revokeKey(admin.store, { consumer: 'acme', digest: DIGEST })],
    ['a consumer is removed', async () => removeConsumer(admin.store, 'acme', [])],
  ])('leave nothing in the store if the connection breaks while %s, and it is repeated', async (_, act) => {
    for (let failing = 1, isOver = false; !isOver; failing++) {
      for (const isSent of [false, true]) {
        await send('FLUSHALL')
        await importKey(admin.store, { digest: DIGEST }, { consumer: 'acme' })
        let calls = 0
        admin.proxy.fault = (_, response, passOn) => {
          calls += 1
          if (calls !== failing) passOn()
          else if (isSent) passOn(() => response.destroy())
          else response.destroy()
        }
        const result = await act().catch(error => error)
        admin.proxy.fault = undefined
        isOver = calls < failing
        if (!isOver) expect(result).toMatchObject({ kind: 'store' })
        // As the commands do, which first look for the key or the consumer.
        if ((await listKeys(admin.store, 'acme')).length > 0) await act()
        expect(await send('EXISTS', `sluice:{k:${DIGEST}}`), `call ${failing}`).toBe(0)
      }
    }
  })
})

const DIGEST = 'a'.repeat(64)
