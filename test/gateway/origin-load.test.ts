/** The measurements that the gateway passes to the shedder and the adaptive limit, through the whole gateway on Node. */
import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Parts } from '../../src/set-ups/http/parts.ts'
import type { EndedRequest } from '../../src/shedding/adaptive-limit.ts'
import type { Rider } from '../../src/trips/rider.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'

const ORIGIN: RuleInput = { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 100, adaptive: {} }
const ANYONE = { accept: ['anonymous'] }
const SHEDDING: NonNullable<ConfigInput['shedding']> = {
  classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'reads' }],
  fleetUsage: { capacity: 1000 },
  workerUtilization: { signals: ['header', 'in-flight'] },
}
const NEVER_DUE: Rider = { load: () => undefined }

/** Parts that record their calls. The adaptive limit is always 20. */
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
    createUtilizationShedderAndBoard: () => ({
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

// The origin fails on purpose.
beforeEach(() => void vi.spyOn(console, 'error').mockImplementation(() => {}))

const read = async (reply: Promise<Response>) => void (await (await reply).text())

describe('an adaptive limit', () => {
  const gateway = useGateway()

  function recordingApp(config: Partial<ConfigInput> = {}) {
    const seen = recorder()
    const app = gateway.app({ rules: [ORIGIN], credentials: ANYONE, ...config }, { parts: seen.parts })
    return { app, ...seen }
  }

  it('gets the result of each request, and the number in flight with it', async () => {
    const { app, answered } = recordingApp()
    const held = [await app('/'), await app('/')]
    await read(app('/error'))
    expect(answered.map(({ hasFailed, inFlight }) => [hasFailed, inFlight])).toEqual([
      [false, 1],
      [false, 2],
      [true, 3],
    ])
    for (const reply of held) await reply.text()
  })

  it('gets each refusal', async () => {
    const { app, refusals } = recordingApp()
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
        await vi.waitFor(() => expect(gateway.origin.received).toHaveLength(1), PATIENT)
        client.abort()
        await read(left)
      },
    ],
  ])('ignores %s', async (_, ask) => {
    const { app, answered } = recordingApp({ originDeadline: '500ms' })
    await ask(app)
    expect(answered).toEqual([])
  })

  it('gets a request with a short body', async () => {
    const { app, answered } = recordingApp()
    const headers = { 'content-length': '5' }
    await read(app('/', { method: 'POST', body: 'short', headers }))
    expect(answered).toHaveLength(1)
  })

  it('gets nothing while the store does not decide; meanwhile the local share of the limit applies', async () => {
    const { app, answered } = recordingApp({ store: { localShare: 0.1 } })
    gateway.store.fault = (_, response) => response.writeHead(503).end()
    const replies: Response[] = []
    for (let i = 0; i < 4; i++) replies.push(await app('/'))
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 503, 503])
    expect(answered).toEqual([])
    for (const reply of replies) await reply.text()
  })

  it('does not replace the number in flight that the shedder gets from the fleet rule', async () => {
    const { app, inFlight, answered } = recordingApp({ shedding: SHEDDING })
    const held = [await app('/'), await app('/')]
    expect(inFlight).toEqual([0.001, 0.002])
    expect(answered.map(({ inFlight }) => inFlight)).toEqual([1, 2])
    for (const reply of held) await reply.text()
  })

  it('ignores requests that its rule does not apply to', async () => {
    const rules = [{ ...ORIGIN, match: { path: '/a' } } as RuleInput]
    const { app, answered } = recordingApp({ rules, shedding: SHEDDING })
    await read(app('/error'))
    expect(answered).toEqual([])
  })
})

describe('the shedder by worker utilization', () => {
  const gateway = useGateway()

  it('gets the signal of every reply, and whether it is current', async () => {
    const { parts, signals } = recorder()
    const app = gateway.app({ rules: [ORIGIN], credentials: ANYONE, shedding: SHEDDING }, { parts })
    await read(app('/?utilization=0.9'))
    await read(app('/?utilization=0.9&age=60'))
    await read(app('/drop'))
    expect(signals).toEqual([true, false, false])
  })

  it('gets no number in flight while the store does not decide', async () => {
    const { parts, inFlight } = recorder()
    const app = gateway.app({ rules: [ORIGIN], credentials: ANYONE, shedding: SHEDDING }, { parts })
    gateway.store.fault = (_, response) => response.writeHead(503).end()
    await read(app('/'))
    expect(inFlight).toEqual([])
  })
})
