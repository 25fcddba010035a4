/** What the gateway tells the shedder and the adaptive limit about each request, through the whole gateway on Node. */
import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Parts } from '../../src/edges/http/parts.ts'
import type { EndedRequest } from '../../src/shedding/adaptive-limit.ts'
import type { SignalReporter } from '../../src/shedding/signal-board.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { PATIENT_MS } from '../support/patience.ts'

const ORIGIN: RuleInput = { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 100, adaptive: {} }
const ANYONE = { accept: ['anonymous'] }
const SHEDDING: NonNullable<ConfigInput['shedding']> = {
  classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'reads' }],
  fleetUsage: { capacity: 1000 },
  workerUtilization: { signals: ['header', 'in-flight'] },
}
const NEVER_DUE: SignalReporter = {
  isDue: () => false,
  isOverdue: () => false,
  isUnanswered: () => false,
  startReport: () => {
    throw new Error('It is not due.')
  },
}

/** Parts that write down what they are told; the adaptive limit is always 20. */
function recorder() {
  const answered: EndedRequest[] = []
  const inFlight: number[] = []
  const signals: boolean[] = []
  let refusals = 0
  const parts: Partial<Parts> = {
    createAdaptiveLimit: () => ({
      limit: () => 20,
      observe: each => void answered.push(each),
      observeRefusal: () => {
        refusals += 1
      },
      board: NEVER_DUE,
    }),
    createWorkerUtilization: () => ({
      shedder: {
        evaluate: () => undefined,
        observeReply: (_, counts) => void signals.push(counts),
        observeInFlight: share => void inFlight.push(share),
      },
      board: NEVER_DUE,
    }),
  }
  return { parts, answered, inFlight, signals, refusals: () => refusals }
}

// The origin fails here on purpose.
beforeEach(() => void vi.spyOn(console, 'error').mockImplementation(() => {}))

const read = async (reply: Promise<Response>) => void (await (await reply).text())

describe('a limit that follows the origin', () => {
  const gateway = useGateway()

  function recorded(config: Partial<ConfigInput> = {}) {
    const seen = recorder()
    const app = gateway.app({ rules: [ORIGIN], credentials: ANYONE, ...config }, { parts: seen.parts })
    return { app, ...seen }
  }

  it('learns of each request how the origin has answered, and what was in flight with it', async () => {
    const { app, answered } = recorded()
    const held = [await app('/'), await app('/')]
    await read(app('/error'))
    expect(answered.map(({ hasFailed, inFlight }) => [hasFailed, inFlight])).toEqual([
      [false, 1],
      [false, 2],
      [true, 3],
    ])
    for (const reply of held) await reply.text()
  })

  it('learns of each request that it has refused', async () => {
    const { app, refusals } = recorded()
    const held: Response[] = []
    for (let i = 0; i < 22; i++) held.push(await app('/'))
    expect(refusals()).toBe(2)
    for (const reply of held) await reply.text()
  })

  it.each<[string, (app: App) => Promise<void>]>([
    ['a reply from a cache', app => read(app('/?age=60'))],
    ['a long upload', app => read(app('/', { method: 'POST', body: 'x'.repeat(100_000) }))],
    ['an upload that breaks off', app => read(app('/drop', { method: 'POST', body: 'short' }))],
    [
      'a request whose client leaves',
      async app => {
        const client = new AbortController()
        const left = app('/hang', { signal: client.signal })
        await vi.waitFor(() => expect(gateway.origin.received).toHaveLength(1), PATIENT_MS)
        client.abort()
        await read(left)
      },
    ],
  ])('learns nothing from %s', async (_, ask) => {
    const { app, answered } = recorded({ originDeadline: '500ms' })
    await ask(app)
    expect(answered).toEqual([])
  })

  it('learns from a request with a short body', async () => {
    const { app, answered } = recorded()
    const headers = { 'content-length': '5' }
    await read(app('/', { method: 'POST', body: 'short', headers }))
    expect(answered).toHaveLength(1)
  })

  it('learns nothing while the store does not decide, and then admits the local share of what it is', async () => {
    const { app, answered } = recorded({ store: { localShare: 0.1 } })
    gateway.store.fault = (_, response) => response.writeHead(503).end()
    const replies: Response[] = []
    for (let i = 0; i < 4; i++) replies.push(await app('/'))
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 503, 503])
    expect(answered).toEqual([])
    for (const reply of replies) await reply.text()
  })

  it('leaves what the shedder learns to the fleet', async () => {
    const { app, inFlight, answered } = recorded({ shedding: SHEDDING })
    const held = [await app('/'), await app('/')]
    expect(inFlight).toEqual([0.001, 0.002])
    expect(answered.map(({ inFlight }) => inFlight)).toEqual([1, 2])
    for (const reply of held) await reply.text()
  })

  it('learns nothing from requests that its rule is not for', async () => {
    const rules = [{ ...ORIGIN, match: { path: '/a' } } as RuleInput]
    const { app, answered } = recorded({ rules, shedding: SHEDDING })
    await read(app('/error'))
    expect(answered).toEqual([])
  })
})

describe('the shedder by worker utilization', () => {
  const gateway = useGateway()

  it('learns of the signal of every reply, and that it does not count where it is not of the origin now', async () => {
    const { parts, signals } = recorder()
    const app = gateway.app({ rules: [ORIGIN], credentials: ANYONE, shedding: SHEDDING }, { parts })
    await read(app('/?utilization=0.9'))
    await read(app('/?utilization=0.9&age=60'))
    await read(app('/drop'))
    expect(signals).toEqual([true, false, false])
  })

  it('learns nothing of what is in flight while the store does not decide', async () => {
    const { parts, inFlight } = recorder()
    const app = gateway.app({ rules: [ORIGIN], credentials: ANYONE, shedding: SHEDDING }, { parts })
    gateway.store.fault = (_, response) => response.writeHead(503).end()
    await read(app('/'))
    expect(inFlight).toEqual([])
  })
})
