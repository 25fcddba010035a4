/**
 * Every decision of the engine is finished exactly once, whatever happens to the request afterwards; a request that
 * the engine has not decided is not finished. On Node; test/e2e/endings.test.ts counts the endings that need workerd.
 */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { SYSTEM_TIMER } from '../../src/clock.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { evaluateOnCluster } from '../../src/limiter/cluster.ts'
import type { Decision } from '../../src/limiter/decision.ts'
import { createEngine } from '../../src/limiter/engine.ts'
import type { Ending } from '../../src/limiter/engine-shape.ts'
import { createLocalLimiter } from '../../src/limiter/outage/local.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import type { Platform } from '../../src/set-ups/gateway/app.ts'
import { createDecideRequest } from '../../src/set-ups/http/decide-request.ts'
import { createMatch } from '../../src/set-ups/http/match.ts'
import { createMatchByRequest } from '../../src/set-ups/http/match-by-request.ts'
import { classOfRequest } from '../../src/set-ups/http/traffic-class.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { configOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'
import { UNBOUNDED_LOG } from '../support/log.ts'
import { PATIENT } from '../support/patience.ts'

const window = { algorithm: 'fixed-window', limit: 1, period: '300d' } as const
const RULES: RuleInput[] = [{ name: 'one', by: 'address', ...window, onStoreFailure: 'closed' }]
const ANYONE: Partial<ConfigInput> = { credentials: { accept: ['api-key', 'anonymous'] } }

let finished: [Decision['kind'], Ending][]
let errors: string[]
const onFinish = (decision: Decision, ending: Ending) => void finished.push([decision.kind, ending])
beforeEach(() => {
  finished = []
  errors = []
  vi.spyOn(console, 'error').mockImplementation(line => void errors.push(String(line)))
})
afterEach(() => {
  vi.restoreAllMocks()
})

describe('a decision is finished once', () => {
  const gateway = useGateway()
  const app = (config: Partial<ConfigInput> = {}, platform: Platform = {}) =>
    gateway.app({ ...ANYONE, rules: RULES, ...config }, { ...platform, reporting: { onFinish } })
  const caller = { address: '192.0.2.1' }

  it('after the body of a reply has ended', async () => {
    const response = await app()('/', caller)
    expect([response.status, finished]).toEqual([200, []])
    await response.text()
    await vi.waitFor(() => expect(finished).toEqual([['allowed', 'complete']]), PATIENT)
  })

  it('when the reply has no body', async () => {
    expect((await app()('/', { ...caller, method: 'HEAD' })).status).toBe(200)
    expect(finished).toEqual([['allowed', 'complete']])
  })

  it('when the origin cannot be reached', async () => {
    const response = await app({ origin: 'http://127.0.0.1:1' })('/', caller)
    expect([response.status, finished]).toEqual([502, [['allowed', 'complete']]])
  })

  it('when a later step throws', async () => {
    const queue: RuleInput = {
      name: 'queue',
      by: 'address',
      algorithm: 'leaky-bucket',
      limit: 1,
      period: '5s',
    }
    const sleep = async () => {
      throw new Error('no timer left')
    }
    const ask = app({ rules: [{ ...queue, queue: 5 }] }, { sleep })
    await (await ask('/', caller)).text()
    await vi.waitFor(() => expect(finished).toEqual([['allowed', 'complete']]), PATIENT)
    const response = await ask('/', caller)
    expect(response.status).toBe(500)
    expect(finished).toEqual([
      ['allowed', 'complete'],
      ['allowed', 'failed'],
    ])
    expect(gateway.origin.received).toHaveLength(1)
  })

  it('when its listener throws; the reply is still sent', async () => {
    const listener = vi.fn(() => {
      throw new Error('a listener')
    })
    const reporting = { onFinish: listener }
    const ask = gateway.app({ ...ANYONE, rules: RULES, log: {} }, { reporting })
    expect((await ask('/', { ...caller, method: 'HEAD' })).status).toBe(200)
    expect((await ask('/', caller)).status).toBe(429)
    expect(listener).toHaveBeenCalledTimes(2)
    expect(errors).toHaveLength(2)
  })

  it('when it refuses, with 429 or 503', async () => {
    const ask = app({ refusals: { rememberFor: 0 } })
    await (await ask('/', { ...caller, method: 'HEAD' })).text()
    expect((await ask('/', caller)).status).toBe(429)
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    gateway.store.fault = (_, response) => void response.destroy()
    expect((await ask('/', caller)).status).toBe(503)
    expect(finished).toEqual([
      ['allowed', 'complete'],
      ['denied', 'complete'],
      ['unavailable', 'complete'],
    ])
  })

  it('when the store does not know the credential', async () => {
    expect((await app()('/', { ...caller, key: mintApiKey('acme') })).status).toBe(401)
    expect(finished).toEqual([['unknown-credential', 'complete']])
  })

  it.each<[string, number, string, RequestInit & { key?: string }]>([
    ['a bad credential that costs no trip', 401, '/', { headers: { 'x-api-key': 'slk_short' } }],
    ['the health check', 200, '/_sluice/health', {}],
    ['a reserved path', 404, '/_sluice/other', {}],
    [
      'a preflight',
      200,
      '/',
      {
        method: 'OPTIONS',
        headers: { origin: 'https://app.example', 'access-control-request-method': 'GET' },
      },
    ],
  ])('only if the engine makes one: not for %s', async (_, status, path, init) => {
    const response = await app()(path, { ...caller, ...init })
    await response.text()
    expect([response.status, finished]).toEqual([status, []])
  })
})

describe('a decision that has been made', () => {
  it('stays valid if its outcome cannot be remembered, and is still finished', async () => {
    const config = configOf({ rules: RULES, ...ANYONE })
    const clock = { now: () => 0 }
    const store = { run: async () => [[1, '', 1, 0, 0, 1]], ping: async () => {} }
    const board = { ...createSwitchBoard(clock), load: () => undefined, isOverdue: () => false }
    const engine = createEngine(config, store, {
      ...{ clock, board, log: UNBOUNDED_LOG, onFinish, credentials: 'refuse' },
      switchName: ({ name }) => name,
      local: createLocalLimiter(1, clock.now),
      timer: SYSTEM_TIMER,
      probe: async () => {},
      onCluster: evaluateOnCluster,
    })
    const decideRequest = createDecideRequest(config, {
      ...{
        ruleSet: gatewayRuleSet(config),
        engine,
        log: UNBOUNDED_LOG,
        classOfRequest,
        match: createMatch(config, createMatchByRequest),
      },
      identifier: {
        addressOf: () => undefined,
        identify: async () => ({ addressIdentity: '192.0.2.1' }),
        refuse: () => undefined,
        shareWith() {},
        remember() {
          throw new TypeError('a bug')
        },
        recall: () => undefined,
        useMode: caller => caller,
      },
    })
    const decided = await decideRequest(
      new Request('http://gateway.test/'),
      () => undefined,
      () => {},
    )
    expect(decided.ruling).toMatchObject({ kind: 'allowed', verdicts: [{ remaining: 0 }] })
    expect(errors).toHaveLength(1)
    decided.finish('complete')
    expect(finished).toEqual([['allowed', 'complete']])
  })
})
