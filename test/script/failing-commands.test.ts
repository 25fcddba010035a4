/**
 * Scripts whose commands fail: Redis is full or a replica, or the user may not run one of them. A decision that fails has spent nothing
 * under any of its rules, and a decision that stands has spent under all of them.
 */
import { describe, expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile.ts'
import { prepareDecide, prepareSettle } from '../../src/limiter/prepared-call.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'
import { addressStateKey, chunksKey, consumerStateKey, reservedKey, sideKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { RedisEngine, rulesOf } from '../support/engines.ts'
import { useLimitedUser } from '../support/limited-user.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { describeOnRedis } from '../support/redis.ts'
import { ruleSetOf } from '../support/rule-set.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'

const PERIOD_MS = 60_000
const LIMIT = 150

const [window, log, inFlight] = rulesOf(
  { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 1e6, period: '1h' },
  { name: 'log', by: 'address', algorithm: 'sliding-log', limit: LIMIT, period: '1m' },
  { name: 'in-flight', by: 'address', algorithm: 'concurrency', limit: 1000, ttl: '1m' },
) as [Rule, Rule, Rule]

const [ACME, ADDRESS] = [consumerStateKey('acme'), addressStateKey('192.0.2.1')]

/** Makes commands fail, and lets them run again. */
interface Fault {
  begin(): Promise<unknown>
  end(): Promise<unknown>
}

describeOnRedis('a script whose command fails', (start, kind) => {
  // The embedded Redis has no users, and is never full.
  describe.skipIf(kind === 'embedded')('', () => {
    const user = useLimitedUser(start)
    const { send, forbid, allow } = user
    const without = (command: string): Fault => ({
      begin: () => forbid(command),
      end: () => allow(command),
    })
    const faults: [string, Fault][] = [
      ...['setex', 'hset', 'hget', 'hdel', 'hlen', 'expire', 'unlink', 'bitfield', 'mget'].map(
        (command): [string, Fault] => [`may not run ${command}`, without(command)],
      ),
      [
        'is a replica',
        {
          begin: () => send('REPLICAOF', '127.0.0.1', '1'),
          end: () => send('REPLICAOF', 'NO', 'ONE'),
        },
      ],
      [
        'is full',
        {
          begin: () => send('CONFIG', 'SET', 'maxmemory', '1'),
          end: () => send('CONFIG', 'SET', 'maxmemory', '0'),
        },
      ],
    ]

    /**
     * Makes requests, every third one with a fault.
     * @param rulesOf the rules of the i-th request
     * @returns when requests were admitted (µs)
     */
    async function run(
      engines: { whole: RedisEngine; faulty: RedisEngine },
      fault: Fault,
      requests: number,
      { everyMs, rulesOf }: { everyMs: number; rulesOf(i: number): BoundRule[] },
    ): Promise<number[]> {
      const admitted: number[] = []
      const left = async (i: number, now: number) =>
        (await engines.whole.peek(evaluationOf(rulesOf(i), now))).verdicts.map(({ remaining }) => remaining)
      for (let i = 0; i < requests; i++) {
        const now = NOON + i * everyMs * 1000
        const before = await left(i, now)
        const isFaulty = i % 3 === 1
        if (isFaulty) await fault.begin()
        const answer = (isFaulty ? engines.faulty : engines.whole).evaluate(evaluationOf(rulesOf(i), now))
        const isAdmitted = await answer.then(
          ({ status }) => status === 'admitted',
          () => false,
        )
        if (isFaulty) await fault.end()
        if (isAdmitted) admitted.push(now)
        const spent = isAdmitted ? 1 : 0
        expect(await left(i, now), `request ${i}`).toEqual(before.map(units => units - spent))
      }
      return admitted
    }

    const engines = (hasLoops: boolean) => {
      const [whole, faulty] = [new RedisEngine(user.redis.connection), new RedisEngine(user.limited)]
      return hasLoops ? { whole: whole.withLoops(), faulty: faulty.withLoops() } : { whole, faulty }
    }

    it.each(
      faults.flatMap(([name, fault]) => [
        [name, 'alone', false, true, fault] as const,
        [name, 'after another rule', false, false, fault] as const,
        [name, 'after another rule, with loops', true, false, fault] as const,
      ]),
    )(
      'spends under no rule or under all, and a log never admits too much: %s (the log is %s)',
      async (_, _place, hasLoops, isAlone, fault) => {
        await send('FLUSHALL')
        const admitted = await run(engines(hasLoops), fault, 500, {
          everyMs: 300,
          rulesOf: () => (isAlone ? [bound(log, ADDRESS)] : [bound(window, ACME), bound(log, ADDRESS)]),
        })
        expect(admitted.length).toBeGreaterThan(LIMIT)
        for (const at of admitted) {
          const within = admitted.filter(other => other > at - PERIOD_MS * 1000 && other <= at)
          expect(within.length).toBeLessThanOrEqual(LIMIT)
        }
      },
      PATIENT_MS,
    )

    it.each(faults)(
      'holds units under no rule or under all: %s',
      async (_, fault) => {
        await send('FLUSHALL')
        // More than 64 holders, so that their records are written in place.
        const rulesOf = (i: number) => {
          const holder = `holder${String(i % 75).padStart(2, '0')}`
          const holding = { holder, epoch: 1, started: Math.floor(i / 75), ended: 0 }
          return [bound(window, ACME), { ...bound(inFlight, ADDRESS), holding }]
        }
        await run(engines(false), fault, 200, { everyMs: 10, rulesOf })
      },
      PATIENT_MS,
    )

    // Those of the scripts that reserve and settle.
    const ofSets = ['setex', 'zadd', 'zrem', 'pexpire', 'zrangebyscore', 'zmscore', 'mget'].map(
      (command): [string, Fault] => [`may not run ${command}`, without(command)],
    )
    it.each([...ofSets, ...faults.slice(-2)])(
      'reserves and settles both in the state and in the set, or in neither: %s',
      async (_, fault) => {
        await send('FLUSHALL')
        const { whole, faulty } = engines(false)
        const terms = { ttlMs: 3000, onUnsettled: 'release', aboveLimit: 'clamp' } as const
        const rule: Rule = { ...window, settlement: terms }
        const keyed = [rule, log].map((rule, i) => ({ rule, key: [ACME, ADDRESS][i]! }))
        const ruleSet = ruleSetOf(keyed)
        const look = async (now: number) => {
          const { verdicts } = await whole.peek({
            ...{ ruleSet, now, plans: [] },
            rules: keyed.map(({ rule, key }) => bound(rule, key, 0, now / 1e3)),
          })
          const live = await send('ZCOUNT', reservedKey(ACME), `${Math.floor(now / 1000) + 1}`, '+inf')
          return { spent: verdicts.map(({ rule, remaining }) => rule.limit - remaining), live: Number(live) }
        }
        let [failures, now] = [0, NOON]
        const live: { id: string; spentAt: number; endsAt: number }[] = []
        for (let i = 0; i < 150; i++) {
          now += 100_000
          const before = await look(now)
          // Each reservation that has not ended has ten units, and nothing else is spent.
          expect(before.spent[0], `step ${i}`).toBe(10 * before.live)
          expect(before.live).toBe(live.filter(({ endsAt }) => endsAt > now).length)
          const isFaulty = i % 3 === 1
          if (isFaulty) await fault.begin()
          const engine = isFaulty ? faulty : whole
          const id = `request${String(i).padStart(5, '0')}`
          const settles = i % 4 === 3 ? live.shift() : undefined
          const rules = keyed.map(({ rule, key }, i) => bound(rule, key, i === 0 ? 10 : 1, now / 1e3))
          const settlement = settles && {
            ...{ ruleSet, rules: rules.slice(0, 1), now },
            requests: [{ ...settles, amounts: [{ reserved: 10, actual: 0 }] }],
          }
          const asked: Promise<unknown> = settlement
            ? engine.ask(prepareSettle(settlement))
            : engine.ask(prepareDecide({ ruleSet, rules, reservationId: id, now }))
          const isDone = await asked.then(
            () => true,
            () => false,
          )
          if (isFaulty) await fault.end()
          if (!isDone) failures += 1
          if (settles && !isDone) live.unshift(settles)
          if (!settles && isDone) live.push({ id, spentAt: now, endsAt: now + 3e6 })
        }
        expect(failures).toBeGreaterThan(0)
      },
      PATIENT_MS,
    )

    it('fails, and spends nothing, if the chunks of the log are a key of another type', async () => {
      await send('FLUSHALL')
      const { whole } = engines(false)
      const rules = [bound(window, ACME), bound(log, ADDRESS)]
      const ask = (i: number) => whole.evaluate(evaluationOf(rules, NOON + i))
      for (let i = 0; i < 97; i++) await ask(i)
      const chunks = chunksKey(sideKey(ADDRESS, 'log', log.tag))
      await send('DEL', chunks)
      await send('SET', chunks, 'x')
      const before = (await whole.peek(evaluationOf(rules, NOON + 97))).verdicts
      let failures = 0
      for (let i = 97; i < 200; i++) await ask(i).catch(() => failures++)
      const after = (await whole.peek(evaluationOf(rules, NOON + 200))).verdicts
      expect(failures).toBeGreaterThan(0)
      const spent = before.map(({ remaining }, i) => remaining - after[i]!.remaining)
      expect(spent).toEqual([103 - failures, 103 - failures])
    })
  })
})
