/**
 * States that earlier versions have recorded (test/fixtures/README.md): this version reads them, and works together with isolates of those
 * versions on one Redis.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sized } from '../selection.ts'
import { startClockedRedis } from '../support/clocked-redis.ts'
import {
  type Answer,
  loadKeys,
  type RecordedState,
  type RecordedStep,
  readKeys,
  readRecordedState,
  type Trip,
} from '../support/recorded-state.ts'
import { startWorld, type World } from '../support/recorded-world.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'
import { STORE_KINDS, type StoreKind } from '../support/store-kinds.ts'
import { timeBy } from '../support/time-by.ts'

const FIXTURES = new URL('../fixtures/', import.meta.url)
const RECORDINGS = readdirSync(FIXTURES, { withFileTypes: true })
  .filter(each => each.isDirectory())
  .map(({ name }): [name: string, RecordedState] => [
    name,
    readRecordedState(new URL(name, FIXTURES).pathname),
  ])

/** Steps that this version answers differently on purpose, with the reason. */
const CHANGED: readonly (readonly [steps: RegExp, reason: string])[] = [
  [
    /^(usage of )?jwt|^cut off \d of (one|two)$|^free on another plan$|^(stats\?since=72h|metrics), at last$/,
    'The rule "key", by credential, counts a token without its signature: with other counts, and for others, since it is enforced for a part of all.',
  ],
  [
    /^resumed$/,
    'The end of a pause leaves an empty state for a second, so that only SETEX changes it. The same decision then has the longer form of its reply.',
  ],
  [
    /^refund spent to be refunded \d$|^peek fixed of refunded, later$/,
    'The totals of a refund have another key, which no deployment changes. While both versions run, each gives a receipt back once.',
  ],
]
const isChanged = ({ name }: RecordedStep) => CHANGED.some(([steps]) => steps.test(name))

const NEWER = 'the recorded versions did not have it'

const BY_CLUSTER = 'only a Redis Cluster has it; recordings are of one server'

/** Every kind of key of src/store/keys.ts, as it is written there: how its keys look, or why no recording has one. */
const KINDS: Readonly<Record<string, RegExp | string>> = {
  'sluice:{c:<consumer>}:consumer': /^\{c:\w+\}:consumer$/,
  'sluice:{c:<consumer>}:key:<sha256>': /^\{c:\w+\}:key:[0-9a-f]{64}$/,
  'sluice:{c:<consumer>}:digests': /^\{c:\w+\}:digests$/,
  'sluice:{k:<sha256>}': /^\{k:[0-9a-f]{64}\}$/,
  'sluice:{consumers}:names': /^\{consumers\}:names$/,
  'sluice:{t:<sha256>}': /^\{t:[0-9a-f]{64}\}$/,
  'sluice:{tokens}:digests': /^\{tokens\}:digests$/,
  'sluice:{idem:<sha256>}': /^\{idem:[0-9a-f]{64}\}$/,
  'sluice:{switches}': /^\{switches\}$/,
  'sluice:{signal:<name>}': /^\{signal:[\w-]+\}$/,
  'sluice:{signal:<name>}:reporters': /^\{signal:[\w-]+\}:reporters$/,
  'sluice:{c:<consumer>}:state': /^\{c:[^}]+\}:state$/,
  'sluice:{c:<consumer>}:state:<parts>': /^\{c:[^}]+\}:state:\w+=\w+$/,
  'sluice:{c:<consumer>}:test…': /^\{c:[^}]+\}:test/,
  'sluice:{ip:<address>}:state…': /^\{ip:[^}]+\}:state/,
  'sluice:{x:<parts>}:state': /^\{x:[^}]+\}:state$/,
  'sluice:{global}:state': /^\{global\}:state$/,
  'sluice:{l:<limit>}:state': /^\{l:\w+\}:state$/,
  'sluice:{l:<limit>}:state:<identity>': /^\{l:\w+\}:state:account=\w+$/,
  'sluice:{probe-<number>}:state': 'it lives for seconds, and nothing reads what it says',
  'sluice:{stats}:d:<date>': /^\{stats\}:d:\d{8}$/,
  'sluice:{stats}:<time>': 'the versions before the first recording have written it',
  'sluice:{stats}:callers:<time>': /^\{stats\}:callers:\d{10}$/,
  'sluice:{stats}:total': /^\{stats\}:total$/,
  'sluice:{audit}': /^\{audit\}$/,
  'sluice:{audits}': BY_CLUSTER,
  'sluice:{c:<consumer>}:job:<sha256>': NEWER,
  '…:state…:log:<tag>': /:state.*:log:\w{3}$/,
  '…:state…:log:<tag>:mid': /:state.*:log:\w{3}:mid$/,
  '…:state…:overrides': NEWER,
  'sluice:{l:<limit>}:overridden': NEWER,
  '…:state…:reserved': /:state.*:reserved$/,
  '…:state…:refunds:<number>': /:state.*:refunds:\d+$/,
  '…:state…:held:<tag>': /:state.*:held:\w{3}$/,
}

it('the recordings have every kind of key, except those that are left out with a reason', () => {
  const source = readFileSync(new URL('../../src/store/keys.ts', import.meta.url), 'utf8')
  const written = [...source.matchAll(/^ \* {5}((?:sluice:|…).*?) {2,}/gm)].map(([, kind]) => kind)
  expect(written).toEqual(Object.keys(KINDS))
  const keys = RECORDINGS.flatMap(([, state]) =>
    state.keys.map(({ key }) => key.replace(/^sluice:(\w+:)?/, '')),
  )
  const patterns = Object.entries(KINDS).filter((each): each is [string, RegExp] => each[1] instanceof RegExp)
  const missing = patterns.filter(([, pattern]) => !keys.some(key => pattern.test(key)))
  expect(missing).toEqual([])
  expect(keys.filter(key => !patterns.some(([, pattern]) => pattern.test(key)))).toEqual([])
})

const [OVER_HTTP, DIRECT] = STORE_KINDS as [StoreKind, StoreKind]

/** Which steps this version does, and how it reaches Redis. The version of the recording does the others. */
const MIXTURES: readonly [name: string, isNew: (i: number) => boolean, kind: StoreKind][] = [
  ['each second step', i => i % 2 === 0, DIRECT],
  ['the other steps', i => i % 2 === 1, DIRECT],
  ['every step', () => true, OVER_HTTP],
]

describe.each(RECORDINGS)('the state %s', (_, recording) => {
  const { about, steps, scripts } = recording
  const answerTo = (name: string): Answer => steps.find(step => step.name === name)!.answer!

  // What the tests below compare with: that the earlier version was right.
  describe('has answers of its version, by which', () => {
    it('keys and tokens pass until they end, and those that were revoked or blocked do not', () => {
      const statuses = (when: string, names: readonly string[]) =>
        names.map(name => [name, answerTo(`${name}, ${when}`).status])
      const expectAll = (when: string, status: number, names: readonly string[]) =>
        expect(statuses(when, names)).toEqual(names.map(name => [name, status]))
      const keys = ['free', 'test', 'pro', 'soon', 'rotated', 'successor', 'overridden', 'unsigned']
      const others = ['opaqueTest', 'jwt', 'jwtOfOdd', 'tenant', 'staging']
      const tokens = ['token user', 'token rotatedToken', 'token nextToken']
      for (const when of ['at first', 'later']) {
        expectAll(when, 200, [...keys, ...others, ...tokens])
        expectAll(when, 401, ['revoked', 'removed', 'token revokedToken', 'a live key in staging'])
        expectAll(when, 403, ['blocked', 'blockedForNow', 'token reader'])
        expectAll(when, 409, ['a repeated creation'])
      }
      // Revoked in between.
      expectAll('at first', 200, ['expiring', 'opaque'])
      expectAll('later', 401, ['expiring', 'opaque'])
      expectAll('at last', 200, ['blocked no longer'])
      expectAll('at last', 401, ['ended'])
    })

    it('plans and overrides apply', () => {
      const policy = (name: string) =>
        answerTo(`${name} in one isolate, at first`).headers['ratelimit-policy']
      expect(policy('free')).toContain('"minute";q=60;w=60;sluice-burst=10')
      expect(policy('pro')).toContain('"minute";q=120;w=60;sluice-burst=20')
      expect(policy('overridden')).toContain('"minute";q=30;w=60;sluice-burst=4')
      expect(policy('jwt')).toContain('"minute";q=120;w=60;sluice-burst=20')
    })

    it('budgets are fresh, used, used up and in debt', () => {
      const left = (limit: string, account: string) => {
        const { rules } = answerTo(`peek ${limit} of ${account}, at first`).body as {
          rules: { remaining: number }[]
        }
        return rules.map(({ remaining }) => remaining)
      }
      for (const limit of ['fixed', 'berlin', 'week', 'sliding', 'log', 'bucket', 'gcra']) {
        const [fresh = 0, part = 0, full = 0] = ['fresh', 'part', 'full'].flatMap(name => left(limit, name))
        expect([part < fresh, full < part], limit).toEqual([true, true])
      }
      expect([...left('queue', 'queued'), ...left('queue', 'fresh')]).toEqual([2, 5])
      expect(left('llm', 'debt')).toEqual([99, 0, 0, 0, 0])
      expect(left('jobs', 'full')[0]).toBe(0)
    })

    it('reservations are settled once, and holds and pauses end', () => {
      const applied = (...names: string[]) =>
        names.map(name => (answerTo(`settle ${name}`).body as { applied: boolean }).applied)
      expect(applied('llm open 0', 'llm open 1', 'llm debt 2', 'llm many 29 29')).toEqual([
        ...[true, false, false, true],
      ])
      expect(applied('llm open too, too late', 'credits, too late')).toEqual([false, false])
      expect(answerTo('renew job 0').status).toBe(200)
      expect(answerTo('renew job full 0 0').status).toBe(422)
      expect(answerTo('renew a job, too late').status).toBe(422)
      const allowed = (name: string) => (answerTo(name).body as { allowed: boolean }).allowed
      expect(['paused', 'resumed', 'paused again', 'paused no longer'].map(allowed)).toEqual([
        ...[false, true, false, true],
      ])
      expect(['job of the free unit', 'job of no unit', 'a job of an ended one'].map(allowed)).toEqual([
        ...[true, false, true],
      ])
    })
  })

  describeOnRedis('the recorded state', start => {
    let redis: TestRedis
    beforeAll(async () => {
      redis = await start()
    })
    afterAll(() => redis?.close())

    /** Does all steps on the recorded state. @returns those that ended otherwise than recorded */
    async function run(
      doStep: (world: World, step: RecordedStep, i: number) => Promise<unknown>,
      kind = DIRECT,
    ) {
      await redis.connection.send(['FLUSHALL'])
      let now = () => about.recordedAt
      const putBack = timeBy(() => Math.floor(now() / 1000))
      await loadKeys(redis.connection, recording.keys)
      const clocked = await startClockedRedis(redis, about.recordedAt)
      now = clocked.now
      const world = await startWorld({ about, redis: clocked, kind })
      const differences: unknown[] = []
      try {
        for (const [i, step] of steps.entries()) {
          const difference = await doStep(world, step, i)
          if (difference && !isChanged(step)) differences.push({ step: step.name, difference })
        }
      } finally {
        putBack()
        await world.close()
        await clocked.close()
      }
      return differences
    }

    /** With the calls that the earlier version has sent. */
    async function doBefore(world: World, step: RecordedStep) {
      const replies = await world.replay(step, scripts)
      return differenceOf(
        replies.map((each, i) => inOrder(step.trips[i]!, each)),
        step.trips.map(trip => inOrder(trip, trip.replies)),
      )
    }

    async function doNow(world: World, step: RecordedStep) {
      const { answer } = await world.perform(step)
      world.replace(step.answer?.receipt, answer?.receipt)
      return differenceOf(comparable(step, answer), comparable(step, step.answer))
    }

    it('is loaded as it was recorded', async () => {
      await redis.connection.send(['FLUSHALL'])
      await loadKeys(redis.connection, recording.keys)
      const withoutExpiry = ({ leftMs: _, ...key }: (typeof recording.keys)[number]) => key
      expect((await readKeys(redis.connection)).map(withoutExpiry)).toEqual(recording.keys.map(withoutExpiry))
    })

    it('answers the calls of its version, to the letter', async () => {
      expect(await run(doBefore)).toEqual([])
    })

    it.each(sized(MIXTURES, MIXTURES.slice(0, 1)))(
      'has the same budgets, keys, reservations and holds for both versions: this one does %s',
      async (_, isNew, kind) => {
        const isByNew = new Map<string, boolean>(about.isolates.map(name => [name, false]))
        const differences = await run(async (world, step, i) => {
          const isolate = step.isolate ?? step.name
          const number = isolate.endsWith(' one') ? 0 : isolate.endsWith(' two') ? 1 : i
          // One isolate is of one version. Reading changes nothing.
          const byNew = isByNew.get(isolate) ?? (isReading(step) || isNew(number))
          isByNew.set(isolate, byNew)
          return await (byNew ? doNow(world, step) : doBefore(world, step))
        }, kind)
        expect(differences).toEqual([])
      },
    )
  })
})

const isReading = ({ request = '' }: RecordedStep) => /^GET \/_sluice|\/peek$/.test(request)

/** @returns the first place where `now` has not what was recorded; it may have more members */
function differenceOf(now: unknown, recorded: unknown, place = ''): string | undefined {
  if (typeof recorded !== 'object' || recorded === null)
    return now === recorded
      ? undefined
      : `${place} is ${JSON.stringify(now)} and was ${JSON.stringify(recorded)}`
  const members = (now ?? {}) as Record<string, unknown>
  if (Array.isArray(recorded) && recorded.length !== members.length)
    return `${place} has ${members.length} items and had ${recorded.length}`
  return Object.entries(recorded)
    .map(([name, member]) => differenceOf(members[name], member, `${place}/${name}`))
    .find(difference => difference !== undefined)
}

/** Redis replies the fields of a hash in any order. */
const inOrder = ({ calls }: Trip, replies: readonly unknown[]) =>
  replies.map((reply, i) => {
    if (calls[i]!.command[0] !== 'HGETALL') return reply
    const list = (reply as string[]).map(String)
    return Object.fromEntries(list.flatMap((field, at) => (at % 2 === 0 ? [[field, list[at + 1]]] : [])))
  })

/** What is compared of an answer, without explanations. Statistics are fields of a hash, so they are in any order. */
function comparable({ request = '' }: RecordedStep, answer: Answer | undefined): unknown {
  if (!answer) return undefined
  const { receipt: _, ...sent } = answer
  if (request.endsWith('/metrics')) {
    const lines = String(sent.body).split('\n')
    return { ...sent, body: lines.filter(line => !line.startsWith('# HELP')).sort() }
  }
  return request.includes('/stats') ? sorted(sent) : sent
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value))
    return value.map(sorted).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, sorted(member)]))
}
