/** Reading and erasing the callers that rules have refused, and what `stats --top` and `top` show of them. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { callFor } from '../../src/metrics/add-counts.ts'
import type { Batch } from '../../src/metrics/counters.ts'
import { createTopCallers } from '../../src/metrics/top-callers.ts'
import { topCallersText, topText } from '../../src/node/cli/top-output.ts'
import { hasRefusals } from '../../src/ops/erase-caller.ts'
import { createKey } from '../../src/ops/keys.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { switchRule } from '../../src/ops/switches.ts'
import { readTop } from '../../src/ops/top.ts'
import { readTopCallers } from '../../src/ops/top-callers.ts'
import { startAdmin, type TestAdmin } from '../support/admin.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

let admin: TestAdmin<TestRedis>
beforeAll(async () => {
  admin = await startAdmin(await startRedis())
})
afterAll(() => admin?.close())
beforeEach(async () => {
  await admin.redis.connection.send(['FLUSHALL'])
})

const NOW = new Date('2026-11-21T08:03:30Z')
const minutesAgo = (minutes: number) => new Date(NOW.getTime() - minutes * 60e3)

/** What an isolate sends at a time: refusals of consumers by a rule. */
async function send(
  counts: Record<string, number>,
  at = NOW,
  { rule = 'minute', mode = 'enforce' as 'enforce' | 'shadow', batch = [] as Batch } = {},
) {
  const isolate = createTopCallers('consumers')
  for (const [consumer, count] of Object.entries(counts))
    for (let i = 0; i < count; i++)
      isolate.record(
        { outcome: 'limited', verdicts: [{ rule: { name: rule }, mode, allowed: false }] },
        consumer === '-'
          ? {}
          : { consumer: consumer.replace(' test', ''), ...(consumer.endsWith(' test') && { mode: 'test' }) },
      )
  await admin.store.decisions.run([isolate.addTo(callFor([...batch, ['lost', 1]], at), at).call])
}

const read = async (since: Date) => (await readTopCallers(admin.store, since, NOW)).rules

describe('refused callers', () => {
  it('are added up over hours, with the time since which they are refused without a pause', async () => {
    await send({ acme: 5 }, minutesAgo(90))
    for (const ago of [7, 5, 2, 0]) await send({ acme: 10, beta: 1 }, minutesAgo(ago))
    const [minute] = await read(minutesAgo(120))
    expect(minute).toMatchObject({ rule: 'minute', mode: 'enforce', sum: 49, spread: 'one caller' })
    expect(minute!.callers).toEqual([
      {
        ...{ name: 'acme', atLeast: 45, atMost: 45 },
        // Refused at 6:33 too, but with a pause after it.
        ...{ since: new Date('2026-11-21T07:56:00Z'), last: new Date('2026-11-21T08:03:00Z') },
        byMinute: [10, 0, 10, 0, 0, 10],
      },
      expect.objectContaining({ name: 'beta', atLeast: 4 }),
    ])
  })

  it('are many, one, or not known, by half of the refusals', async () => {
    await send({ a: 3, b: 3, c: 3 })
    await send({ a: 5, b: 3, c: 2 }, NOW, { rule: 'hour' })
    await send({ a: 1, '-': 2 }, NOW, { rule: 'day', mode: 'shadow' })
    expect((await read(NOW)).map(({ rule, spread }) => [rule, spread])).toEqual([
      ['hour', 'one caller'],
      ['minute', 'many callers'],
      ['day', 'not known'],
    ])
  })

  it('have bounds if a record had no room for all', async () => {
    const crowd = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`c-${i}`, 3]))
    await send({ acme: 50 }, minutesAgo(60))
    await send(crowd)
    const [minute] = await read(minutesAgo(60))
    expect(minute!.callers[0]).toMatchObject({ name: 'acme', atLeast: 50, atMost: 53 })
  })

  it('of a consumer are apart for its test keys, which records of earlier versions do not know', async () => {
    await send({ acme: 3, 'acme test': 2 }, NOW, {
      batch: [
        ['request limited - -', 5],
        ['rule limited minute - free', 5],
      ],
    })
    const [minute] = await read(NOW)
    expect(minute!.callers).toMatchObject([
      { name: 'acme', atLeast: 3 },
      { name: 'acme', callerMode: 'test', atLeast: 2 },
    ])
    expect(minute!.callers[0]).not.toHaveProperty('callerMode')
    expect(topText(await readTop(admin.store, NOW))).toMatch(/^acme \(test\) +minute +2 /m)
    expect(topCallersText([minute!], { since: NOW, now: NOW }, {})).toMatch(/ acme \(test\) +2 +40 % /)
  })

  it('are read in one request, and those of another environment are not', async () => {
    await send({ acme: 1 })
    admin.proxy.count()
    await read(minutesAgo(24 * 60))
    expect(admin.proxy.count()).toBe(1)
    expect((await readTopCallers(admin.storeOf({ environment: 'live' }), NOW, NOW)).rules).toEqual([])
  })

  it('are erased together with their consumer, in limits by name too, and no others are', async () => {
    const now = new Date()
    await createKey(admin.store, { consumer: 'acme' })
    await send({ acme: 5, 'acme test': 1, 'acme-2 test': 1, beta: 2 }, now)
    await send({ acme: 5 }, now, { rule: 'hour' })
    const isolate = createTopCallers('consumers')
    for (const account of ['acme', 'acme-2'])
      isolate.record(
        {
          limit: 'mail',
          outcome: 'limited',
          verdicts: [{ rule: { name: 'day' }, mode: 'enforce', allowed: false }],
        },
        { identity: { account } },
      )
    await admin.store.decisions.run([isolate.addTo(callFor([['lost', 1]], now), now).call])
    expect(await hasRefusals(admin.store, 'acme')).toBe(true)
    await removeConsumer(admin.store, 'acme', [])
    expect(await hasRefusals(admin.store, 'acme')).toBe(false)
    const { rules } = await readTopCallers(admin.store, now)
    expect(rules.map(({ rule, sum, callers }) => [rule, sum, callers.map(({ name }) => name)])).toEqual([
      ['minute', 3, ['beta', 'acme-2']],
      ['mail/day', 1, ['account=acme-2']],
    ])
  })
})

describe('npx sluicegate stats --top consumers', () => {
  it('shows for each rule its most refused callers, and in one word whether it is one', async () => {
    await send({ acme: 97, beta: 3 }, minutesAgo(2))
    await send({ 'auth0~user%7C1': 2, beta: 2, '-': 3 }, NOW, { rule: 'hour' })
    const { since, rules } = await readTopCallers(admin.store, minutesAgo(60), NOW)
    expect(topCallersText(rules, { since, now: NOW }, {})).toBe(
      `Since 2026-11-21 07:00 UTC, the start of an hour:

RULE    REFUSED  WHO           CALLER             COUNT  SHARE   LAST RUN (UTC)
minute  100      one caller    acme               97     97 %    08:01 to 08:01
                               beta               3      3 %     08:01 to 08:01
hour    7        many callers  (no name is kept)  3      42.9 %  08:03 to 08:03
                               auth0~user%7C1     2      28.6 %  08:03 to 08:03
                               beta               2      28.6 %  08:03 to 08:03

One caller: at least half of the refusals of the rule are its own. A run has no pause of more than 5 minutes.`,
    )
  })

  it('says how many there were of callers that are too many to name', async () => {
    for (let i = 0; i < 5; i++)
      await send(Object.fromEntries(Array.from({ length: 32 }, (_, j) => [`c-${i}-${j}`, 1])))
    const { since, rules } = await readTopCallers(admin.store, NOW, NOW)
    expect(topCallersText(rules, { since, now: NOW }, {})).toContain(
      'minute  160      many callers  (too many to name any)',
    )
  })
})

describe('npx sluicegate top', () => {
  const refused = (limited: number, allowed = 0): Batch => [
    ['rule limited minute - free', limited],
    ['request limited - -', limited],
    ...(allowed
      ? ([
          ['rule allowed minute - free', allowed],
          ['request allowed - -', allowed],
        ] as const)
      : []),
  ]
  const show = async () => topText(await readTop(admin.store, NOW)).replace(/in \d+ ms/, 'in 1 ms')

  it('shows what is refused and whom, and whether the last minute is better or worse', async () => {
    // Of an hour ago.
    await send({ gamma: 500 }, minutesAgo(60), { batch: refused(500) })
    for (const ago of [5, 4, 3, 2])
      await send({ acme: 10, beta: 10 }, minutesAgo(ago), { batch: refused(20, 80) })
    await send({ acme: 70 }, minutesAgo(1), { batch: refused(70, 80) })
    await send({ acme: 35 }, NOW, { batch: refused(35, 40) })
    admin.proxy.count()
    expect(await show()).toBe(`08:03:30 UTC. The last 5 minutes; Redis answered in 1 ms.

OF        OUTCOME  CAUSE  COUNT  SHARE   LAST MINUTE
requests  allowed         440    70.4 %  80 a minute, steady
requests  limited         185    29.6 %  70 a minute, getting worse

RULE    REFUSED  SHARE   LAST MINUTE                 WHO
minute  185      29.6 %  70 a minute, getting worse  one caller: acme

CALLER  RULE    REFUSED  LAST MINUTE                 SINCE (UTC)
acme    minute  145      70 a minute, getting worse  07:58
beta    minute  40       over                        07:58`)
    expect(admin.proxy.count()).toBe(1)
  })

  it('shows causes, calls of limits by name, shadows and switches', async () => {
    await send({ acme: 3 }, NOW, {
      ...{ rule: 'day', mode: 'shadow' },
      batch: [
        ['rule shadow_limited day - free', 3],
        ['request failed_open store-timeout -', 3],
        ['call limited - mail', 2],
      ],
    })
    await switchRule(admin.store, 'minute', { at: NOW, by: 'ops', mode: 'off' })
    const text = await show()
    expect(text).toContain("Rule 'minute' is switched to off, since 2026-11-21 08:03 UTC by ops")
    expect(text).toContain('requests  failed_open  store-timeout  3      100 %')
    expect(text).toContain('mail      limited                     2      100 %')
    expect(text).toContain('day (shadow)  3        100 %  2 a minute, new  one caller: acme')
  })

  it('leaves out what was counted only before these five minutes', async () => {
    await send({ acme: 3 }, minutesAgo(60), { batch: [...refused(3), ['call limited - mail', 2]] })
    await send({}, NOW, { batch: [['request allowed - -', 5]] })
    const text = await show()
    expect(text).toContain('requests  allowed         5      100 %')
    expect(text).not.toMatch(/NaN|mail|limited/)
  })

  it('says that nothing was counted', async () => {
    expect(await show()).toContain('No request and no call was counted.')
  })
})
