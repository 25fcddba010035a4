/**
 * Live switches on two Worker processes with one store. Their clocks are real, so the tests wait until both Workers have received a
 * change. test/gateway/switches.test.ts uses its own clock, and tests from which request on a change applies.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import type { Stack } from '../../src/node/start/stack.ts'
import { type AdminStore, createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { resetRule, switchRule } from '../../src/ops/switches.ts'
import type { SwitchMode } from '../../src/switches/switches.ts'
import { runInProcess, runProcess } from '../support/command-line.ts'
import { startOrigin, type TestOrigin } from '../support/origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startTestStack } from '../support/stack.ts'

let origin: TestOrigin
const workers: Stack[] = []
let admin: AdminStore
let consumers = 0
let key: string

beforeAll(async () => {
  origin = await startOrigin()
  workers.push(await startTestStack('switches.config.ts', { origin: origin.url }))
  workers.push(await startTestStack('switches.config.ts', { origin: origin.url, rest: workers[0]!.rest }))
  admin = createAdminStore(workers[0]!.rest)
})
afterAll(async () => {
  for (const worker of workers.toReversed()) await worker.close()
  await origin?.close()
})
beforeEach(async () => {
  key = (await createKey(admin, { consumer: `acme-${++consumers}` })).key
})

/** Sends a request to each Worker, in turn. */
async function ask(credential = key) {
  const replies = []
  for (const { url } of workers) {
    const { status, headers } = await fetch(url, { headers: { 'x-api-key': credential } })
    replies.push({
      status,
      degraded: headers.get('sluice-degraded'),
      policy: headers.get('ratelimit-policy'),
    })
  }
  return replies
}

type Reply = Awaited<ReturnType<typeof ask>>[number]

/** Sends requests of another consumer, which no test uses, until both Workers have received a change. */
async function untilBoth(hasIt: (reply: Reply) => boolean) {
  const { key: other } = await createKey(admin, { consumer: `other-${consumers}` })
  await vi.waitUntil(async () => (await ask(other)).every(hasIt), { timeout: 50_000, interval: 100 })
}
const limits =
  (...rules: string[]) =>
  ({ policy }: Reply) =>
    ['two', 'none'].every(rule => (policy ?? '').includes(`"${rule}"`) === rules.includes(rule))

const statuses = async () => (await ask()).map(({ status }) => status)
const set = (mode: SwitchMode, rule = 'two') => switchRule(admin, rule, { at: new Date(), by: 'ops', mode })

/** Runs the command as an operator would. @returns the standard output */
async function sluice(args: string[], runIt = runInProcess): Promise<string> {
  const { url, token } = workers[0]!.rest
  const env = { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token }
  const { code, stdout, stderr } = await runIt(['switch', ...args], env)
  expect([code, stderr]).toEqual([0, ''])
  return stdout
}

describe('two Workers', () => {
  it.each(['off', 'shadow'] as const)('switch a rule to %s, and back again', async mode => {
    expect(await statuses()).toEqual([200, 200])
    expect(await statuses()).toEqual([429, 429])
    await set(mode)
    await untilBoth(limits())
    expect(await statuses()).toEqual([200, 200])
    expect(await statuses()).toEqual([200, 200])

    await resetRule(admin, 'two')
    await untilBoth(limits('two'))
    expect(await statuses()).toEqual([429, 429])
  })

  it('enforce a rule that is off in the config, with a common count', async () => {
    await set('off')
    await set('enforce', 'none')
    await untilBoth(limits('none'))
    // The limit is one request for both Workers together.
    expect(await statuses()).toEqual([200, 429])
    await resetRule(admin, 'none')
    await resetRule(admin, 'two')
    await untilBoth(limits('two'))
    expect(await statuses()).toEqual([200, 200])
  })

  it('admit every request with a valid credential while the kill switch is on', async () => {
    expect(await statuses()).toEqual([200, 200])
    expect(await statuses()).toEqual([429, 429])
    expect(await sluice(['kill', 'on', '--yes', '--for', '1h', '--by', 'ops'], runProcess)).toContain(
      'The kill switch is ON',
    )
    await untilBoth(({ degraded }) => degraded === 'kill-switch')
    const passed = { status: 200, degraded: 'kill-switch', policy: null }
    for (let i = 0; i < 3; i++) expect(await ask()).toEqual([passed, passed])
    expect((await ask(mintApiKey('nobody'))).map(({ status }) => status)).toEqual([401, 401])
    expect(JSON.parse(await sluice(['--json']))).toMatchObject({ kill: { by: 'ops', status: 'applies' } })
    expect(await sluice(['kill', 'off'])).toBe('The kill switch is off: limits apply.\n')
    await untilBoth(({ degraded }) => degraded === null)
    expect(await statuses()).toEqual([429, 429])
  })

  it('block a consumer from the next request, and accept it soon after the block is lifted', async () => {
    const consumer = `acme-${consumers}`
    // A unit is left: a Worker that remembers that the limit is reached answers 429 for up to a second, and does not ask the store.
    const used = await fetch(workers[0]!.url, { headers: { 'x-api-key': key } })
    expect(used.status).toBe(200)
    await sluice(['block', consumer, '--yes', '--for', '1h'])
    expect(await statuses()).toEqual([403, 403])
    expect(await sluice(['unblock', consumer])).toBe(`Consumer '${consumer}' is no longer blocked.\n`)
    // Each Worker remembers the block for at most a second.
    await vi.waitUntil(async () => !(await statuses()).includes(403), { timeout: PATIENT_MS })
    expect(await statuses()).toEqual([429, 429])
  })
})
