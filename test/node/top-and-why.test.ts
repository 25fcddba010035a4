/** `npx sluicegate top`, `why` and `stats --top` as a user runs them, with a store and without an answer. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { callFor } from '../../src/metrics/add-counts.ts'
import { createTopCallers } from '../../src/metrics/top-callers.ts'
import { watch } from '../../src/node/cli/top.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { runInProcess } from '../support/command-line.ts'
import { freePort } from '../support/free-port.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const token = 'a token for tests'
let redis: TestRedis
let bridge: Bridge
let env: Record<string, string>
beforeAll(async () => {
  redis = await startRedis()
  bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: PATIENT_MS })
  env = { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: token }
  await createKey(createAdminStore({ url: bridge.url, token }), { consumer: 'acme' })
  await sendRefusal()
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

/** An isolate sends a refusal of acme. */
async function sendRefusal() {
  const store = createAdminStore({ url: bridge.url, token })
  const isolate = createTopCallers('consumers')
  const verdicts = [{ rule: { name: 'consumer-minute' }, mode: 'enforce', allowed: false }] as const
  isolate.record({ outcome: 'limited', verdicts }, { consumer: 'acme' })
  const call = callFor(
    [
      ['request limited - -', 1],
      ['rule limited consumer-minute - free', 1],
    ],
    new Date(),
  )
  await store.decisions.run([isolate.addTo(call, new Date()).call])
}

it('print text, or JSON', async () => {
  const run = async (...args: string[]) => {
    const { code, stdout, stderr } = await runInProcess(args, env)
    expect([code, stderr]).toEqual([0, ''])
    return stdout
  }
  // Without a terminal, `top` prints once.
  expect(await run('top')).toMatch(/^consumer-minute +1 +100 % +\d a minute, new +one caller: acme$/m)
  expect(JSON.parse(await run('top', '--json')).rules).toMatchObject([
    { rule: 'consumer-minute', count: 1, spread: 'one caller', callers: [{ name: 'acme', count: 1 }] },
  ])
  expect(await run('stats', '--top', 'consumers')).toMatch(
    /^consumer-minute +1 +one caller +acme +1 +100 % /m,
  )
  expect(await run('stats', '--top', 'consumers', '--shadow')).toContain(
    'no rule would have refused a request',
  )
  expect(
    JSON.parse(await run('stats', '--top', 'consumers', '--rule', 'address-hour', '--json')).rules,
  ).toEqual([])
  expect(await run('why', 'acme')).toMatch(
    /^acme is refused by `consumer-minute` \(120 per minute\) since .*\n\nRULE /,
  )
  expect(JSON.parse(await run('why', 'acme', '--json'))).toMatchObject({
    ...{ caller: 'acme', state: 'partly', plan: 'free' },
    refusals: [{ rule: 'consumer-minute', mode: 'enforce', atLeast: 1, byMinute: [1, 0, 0, 0, 0, 0] }],
  })
})

it('name wrong arguments', async () => {
  const fails = async (...args: string[]) => {
    const { code, stderr } = await runInProcess(args, env)
    return [code, stderr.split('\n')[0]]
  }
  expect(await fails('stats', '--shadow')).toEqual([2, '--shadow needs --top consumers. Add it.'])
  expect(await fails('stats', '--top', 'consumers', '--since', '30d')).toEqual([
    2,
    '--since 30 days: callers are kept for 8 days. Use at most 7d with --top.',
  ])
  expect((await fails('stats', '--top', 'consumers', '--rule', 'nowhere'))[0]).toBe(1)
  expect((await fails('why', 'not a consumer'))[0]).toBe(2)
})

it('forget a consumer that is removed, also if isolates send refusals afterwards', async () => {
  const remove = () => runInProcess(['consumers', 'remove', 'acme', '--yes'], env)
  const shown = async () => (await runInProcess(['stats', '--top', 'consumers'], env)).stdout
  expect((await remove()).code).toBe(0)
  expect(await shown()).not.toContain('acme')
  await sendRefusal()
  expect(await shown()).toContain('acme')
  expect((await remove()).code).toBe(0)
  expect(await shown()).not.toContain('acme')
  expect((await remove()).stderr).toMatch(/^The store has no consumer 'acme'/)
})

it('say what cannot be known if the store does not answer', async () => {
  const down = { ...env, UPSTASH_REDIS_REST_URL: `http://127.0.0.1:${await freePort()}` }
  const why = await runInProcess(['why', 'acme'], down)
  expect([why.code, why.stdout]).toEqual([1, ''])
  expect(why.stderr).toMatch(/^Redis did not answer: The store at .* cannot be reached\.\n/)
  expect(why.stderr).toContain('cannot be known: whether the caller is refused, blocked or has a valid key;')
  expect(why.stderr).toContain('consumer-second, consumer-minute, consumer-hour, address-second')
  const wrong = await runInProcess(['why', 'acme'], { ...env, UPSTASH_REDIS_REST_TOKEN: 'wrong' })
  expect(wrong.stderr).toMatch(/^Redis refused to answer: .* answered with an error: WRONGPASS/)
  const top = await runInProcess(['top', '--once'], down)
  expect(top.code).toBe(1)
  expect(top.stderr).toMatch(
    /^Redis did not answer: .*\nUntil it does, it cannot be known what rules refuse, and whom\./,
  )
})

it('the screen is drawn again at each interval, also after an outage, until it is stopped', async () => {
  const drawn: string[] = []
  let reads = 0
  const read = async () => {
    reads += 1
    if (reads === 2) throw new Error('down')
    return `screen ${reads}`
  }
  await watch({
    read,
    describe: error => (error as Error).message,
    draw: screen => void drawn.push(screen),
    pause: async () => reads < 3,
  })
  expect(drawn).toEqual(['screen 1', 'down', 'screen 3'])
})
