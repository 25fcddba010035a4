/** The client in virtual time, against APIs that answer in various ways. */
import { getEventListeners } from 'node:events'
import { describe, expect, expectTypeOf, it } from 'vitest'
import type { ClientLimiter, ClientOptions } from '../../src/client/client.ts'
import { LimitError } from '../../src/client/limit-error.ts'
import { type Api, createFleet, type Fleet, sluiceApi } from './fleet.ts'

const URL_X = 'https://api.test/x'

/** Runs until nothing is left to do. @returns the results, with rejections as values */
async function settled<T>(fleet: Fleet, calls: readonly Promise<T>[], ms = 120_000): Promise<(T | Error)[]> {
  const results = Promise.all(calls.map(call => call.catch((error: Error) => error)))
  await new Promise(resolve => setImmediate(resolve))
  await fleet.clock.run(fleet.clock.nowMs + ms)
  return results
}

const many = <T>(count: number, make: (i: number) => Promise<T>) =>
  Array.from({ length: count }, (_, i) => make(i))
const statusesOf = (results: (Response | Error)[]) =>
  results.map(result => (result instanceof Response ? result.status : result.name))
const reply = (status: number, headers: Record<string, string> = {}) =>
  new Response(null, { status, headers })

/** An API that admits some calls in each fixed window, and says with a refusal only when to come back. */
function retryAfterOnly(limit: number, windowMs: number, seconds = `${windowMs / 1e3}`): Api {
  let [window, count] = [-1, 0]
  return now => {
    if (Math.floor(now / windowMs) !== window) [window, count] = [Math.floor(now / windowMs), 0]
    count += 1
    return count <= limit ? reply(200) : reply(429, { 'retry-after': seconds })
  }
}

describe('an API without limits', () => {
  it('costs nothing: after the first reply, calls go out at once', async () => {
    const fleet = createFleet(() => reply(200))
    const get = fleet.client(0)
    await settled(fleet, [get(URL_X)], 100)
    const start = fleet.clock.nowMs
    await settled(
      fleet,
      many(200, () => get(URL_X)),
      100,
    )
    expect(fleet.arrivals.slice(1).every(({ at }) => at - start < 10)).toBe(true)
  })

  it.each([
    // One more each ms after 80 ms, and at most 32 before the first reply.
    ['GET', {}, 32, 112],
    ['POST', {}, 1, 0],
    ['GET', { maxRetries: 0 }, 1, 0],
  ])(
    'that answers slowly holds calls up for a second at most: %s %j',
    async (method, options, few, fewMs) => {
      const fleet = createFleet(() => reply(200))
      const start = fleet.clock.nowMs
      const sentAt: number[] = []
      const get = fleet.client(0, {
        ...options,
        fetch: (async () => {
          sentAt.push(fleet.clock.nowMs - start)
          await fleet.clock.pass(20_000)
          return reply(200)
        }) as typeof fetch,
      })
      await settled(
        fleet,
        many(50, () => get(URL_X, { method })),
      )
      expect(sentAt).toHaveLength(50)
      expect(sentAt[few - 1]).toBeLessThanOrEqual(fewMs)
      expect(sentAt.slice(1, few).every(at => at > 80)).toBe(true)
      expect(sentAt.slice(few)).toEqual(Array(50 - few).fill(1000))
    },
  )

  it('that answers at once is called by one call first', async () => {
    const fleet = createFleet(() => reply(200), { latencyMs: 20 })
    const get = fleet.client(0)
    await settled(
      fleet,
      many(10, () => get(URL_X)),
    )
    const [first, ...others] = fleet.arrivals
    expect(others.every(({ at }) => at - first!.at > 20)).toBe(true)
  })

  it.each([
    { ratelimit: '"a";r=0;t=99999999999' },
    { ratelimit: '"a";r=NaN;t=-1', 'ratelimit-policy': '"a";q=-5;w=0' },
    { ratelimit: 'limit=5, remaining=0x0, reset=9000', 'x-ratelimit-remaining': '-3' },
    { ratelimit: '"a";r=0', 'x-ratelimit-reset': 'Infinity' },
    { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '1e300', 'retry-after': '-7' },
  ])('is not slowed down by broken headers: %o', async headers => {
    const fleet = createFleet(() => reply(200, headers as Record<string, string>))
    const get = fleet.client(0)
    expect(
      statusesOf(
        await settled(
          fleet,
          many(30, () => get(URL_X)),
          3000,
        ),
      ),
    ).toEqual(Array(30).fill(200))
  })
})

describe('calls that are refused', () => {
  it('at the same moment make at most one retry per Retry-After', async () => {
    const fleet = createFleet(() => reply(429, { 'retry-after': '2' }))
    const get = fleet.client(0)
    const results = await settled(
      fleet,
      many(40, () => get(URL_X)),
      60_000,
    )
    const start = fleet.arrivals[0]!.at
    // One goes first, and is refused; then one probes every 2 s, for as long as calls wait at all.
    expect(fleet.arrivals.length).toBeLessThanOrEqual(16)
    for (const [i, { at }] of fleet.arrivals.entries()) expect(at - start).toBeGreaterThanOrEqual(i * 2000)
    expect(statusesOf(results).every(result => result === 'LimitError')).toBe(true)
  })

  it('go through one after the other when the limit admits again', async () => {
    const fleet = createFleet(retryAfterOnly(10, 1000))
    const get = fleet.client(0)
    await settled(fleet, [get(URL_X)], 1000)
    const results = await settled(
      fleet,
      many(40, () => get(URL_X)),
    )
    expect(statusesOf(results)).toEqual(Array(40).fill(200))
    const refusedAt = fleet.arrivals.filter(({ status }) => status === 429).map(({ at }) => at)
    const first = refusedAt[0]!
    const later = refusedAt.filter(at => at > first + 500)
    for (let i = 1; i < later.length; i++) expect(later[i]! - later[i - 1]!).toBeGreaterThan(900)
  })

  it('wait longer and longer if the server says nothing but 429, and get its reply in the end', async () => {
    const fleet = createFleet(() => reply(429))
    const get = fleet.client(0)
    const [status] = statusesOf(await settled(fleet, [get(URL_X)]))
    expect(status).toBe(429)
    const gaps = fleet.arrivals.slice(1).map(({ at }, i) => Math.round((at - fleet.arrivals[i]!.at) / 1000))
    expect(gaps).toEqual([1, 2, 4, 8])
  })

  it('by a 503 with Retry-After are repeated, and those by a 503 without one are not', async () => {
    let count = 0
    const fleet = createFleet((_, url) =>
      count++ > 0 ? reply(200) : reply(503, url.endsWith('y') ? {} : { 'retry-after': '1' }),
    )
    const get = fleet.client(0)
    expect(statusesOf(await settled(fleet, [get(URL_X)]))).toEqual([200])
    count = 0
    expect(statusesOf(await settled(fleet, [get('https://other.test/y')]))).toEqual([503])
  })

  it('with Retry-After-Ms alone are repeated after that time, also after a 503', async () => {
    let count = 0
    const fleet = createFleet(() => (count++ > 0 ? reply(200) : reply(503, { 'retry-after-ms': '2500' })))
    expect(statusesOf(await settled(fleet, [fleet.client(0)(URL_X)]))).toEqual([200])
    const [first, second] = fleet.arrivals
    expect(second!.at - first!.at).toBeGreaterThan(2500)
    expect(second!.at - first!.at).toBeLessThan(3000)
  })

  it('are repeated at most maxRetries times', async () => {
    const fleet = createFleet(() => reply(429, { 'retry-after': '1' }))
    const get = fleet.client(0, { maxRetries: 2 })
    expect(statusesOf(await settled(fleet, [get(URL_X)]))).toEqual([429])
    expect(fleet.arrivals).toHaveLength(3)
  })

  it.each<[string, RequestInit, 'all' | undefined, number]>([
    ['HEAD', { method: 'HEAD' }, undefined, 200],
    ['POST', { method: 'POST', body: 'a' }, undefined, 429],
    [
      'POST with an Idempotency-Key',
      { method: 'POST', body: 'a', headers: { 'Idempotency-Key': '7' } },
      undefined,
      200,
    ],
    ["POST with retry: 'all'", { method: 'POST', body: 'a' }, 'all', 200],
    [
      "a stream with retry: 'all'",
      { method: 'POST', body: new Blob(['a']).stream(), duplex: 'half' } as RequestInit,
      'all',
      429,
    ],
  ])('by 429 are repeated if that is safe: %s', async (_, init, retry, status) => {
    let count = 0
    const fleet = createFleet(() => (count++ > 0 ? reply(200) : reply(429, { 'retry-after': '1' })))
    const send = fleet.client(0, retry && { retry })
    expect(statusesOf(await settled(fleet, [send(URL_X, init)]))).toEqual([status])
  })

  it('are told when to come back if that is too long to wait', async () => {
    const fleet = createFleet(() => reply(429, { 'retry-after': '86400', ratelimit: '"daily";r=0;t=86400' }))
    const get = fleet.client(0)
    const [error, later] = await settled(fleet, [get(URL_X), get(URL_X)])
    expect(error).toBeInstanceOf(LimitError)
    expect(error).toMatchObject({ name: 'LimitError', origin: 'https://api.test', policy: 'daily' })
    const { retryAfterMs, retryAt } = error as LimitError
    expect(retryAfterMs).toBeGreaterThanOrEqual(86_400_000)
    expect(retryAt.getTime() - Date.now()).toBeGreaterThan(86_000_000)
    // The second one was not sent.
    expect(later).toBeInstanceOf(LimitError)
    expect(fleet.arrivals).toHaveLength(1)
  })

  it('stop a limit no longer than an hour without asking again', async () => {
    let count = 0
    const fleet = createFleet(() => (count++ > 0 ? reply(200) : reply(429, { 'retry-after': '86400' })))
    const get = fleet.client(0)
    expect(statusesOf(await settled(fleet, [get(URL_X)], 3_500_000))).toEqual(['LimitError'])
    expect(statusesOf(await settled(fleet, [get(URL_X)], 101_000))).toEqual(['LimitError'])
    const calls = many(5, () => get(URL_X))
    expect(statusesOf(await settled(fleet, calls, 5000))).toEqual(Array(5).fill(200))
  })

  it('by a server that names a time are not repeated earlier, however short calls wait', async () => {
    const fleet = createFleet(() => reply(429, { 'retry-after': '60' }))
    const get = fleet.client(0, { maxWaitMs: 100 })
    for (let i = 0; i < 30; i++)
      expect(statusesOf(await settled(fleet, [get(URL_X)], 1000))).toEqual(['LimitError'])
    expect(fleet.arrivals).toHaveLength(1)
  })

  it.each(['0.001', '0', '-1'])('are repeated after 1, 2, 4 … 64 s with Retry-After: %s', async seconds => {
    const fleet = createFleet(() => reply(429, { 'retry-after': seconds }))
    const get = fleet.client(0, { maxRetries: 8, maxWaitMs: 1e6 })
    expect(statusesOf(await settled(fleet, [get(URL_X)], 1e6))).toEqual([429])
    const gaps = fleet.arrivals.slice(1).map(({ at }, i) => Math.round((at - fleet.arrivals[i]!.at) / 1000))
    for (const [i, gap] of gaps.entries()) {
      expect(gap).toBeGreaterThanOrEqual(2 ** Math.min(i, 6))
      expect(gap).toBeLessThanOrEqual(2 ** Math.min(i, 6) + 1)
    }
  })

  it('are repeated even if the body of the refusal has failed', async () => {
    let count = 0
    const broken = () =>
      new ReadableStream({ start: controller => controller.error(new Error('connection reset')) })
    const fleet = createFleet(() =>
      count++ > 0 ? reply(200) : new Response(broken(), { status: 429, headers: { 'retry-after': '1' } }),
    )
    expect(statusesOf(await settled(fleet, [fleet.client(0)(URL_X)]))).toEqual([200])
  })
})

describe('a wait', () => {
  it('ends at once when the signal aborts', async () => {
    const fleet = createFleet(() => reply(429, { 'retry-after': '20' }))
    const get = fleet.client(0)
    const controller = new AbortController()
    fleet.clock.after(5000, () => controller.abort(new Error('enough')))
    const start = fleet.clock.nowMs
    let endedAt = 0
    const call = get(URL_X, { signal: controller.signal }).finally(() => {
      endedAt = fleet.clock.nowMs
    })
    const [error] = await settled(fleet, [call])
    expect(error).toMatchObject({ message: 'enough' })
    expect(endedAt - start).toBe(5000)
  })

  it.each([
    ['is over', 20_000],
    ['was aborted', 500],
  ])('that %s leaves no listener behind', async (_, abortAfterMs) => {
    const fleet = createFleet(retryAfterOnly(1, 1000))
    const get = fleet.client(0)
    const { signal } = new AbortController()
    const own = new AbortController()
    fleet.clock.after(abortAfterMs, () => own.abort())
    await settled(
      fleet,
      [...many(3, () => get(URL_X, { signal })), get(URL_X, { signal: own.signal })],
      20_000,
    )
    for (const each of [signal, own.signal]) expect(getEventListeners(each, 'abort')).toEqual([])
  })

  it('does not block the calls behind if the platform has ended its request', async () => {
    const fleet = createFleet(retryAfterOnly(1, 3000))
    const get = fleet.client(0)
    await settled(fleet, [get(URL_X), get(URL_X, { method: 'POST' })], 100)
    // The timer of the first call that waits is lost.
    let isLost = false
    const { after } = fleet.clock
    fleet.clock.after = (ms, run) => {
      const isFirst = !isLost
      isLost = true
      return after.call(fleet.clock, ms, isFirst ? () => {} : run)
    }
    void get(URL_X)
    const results = await settled(fleet, [get(URL_X)], 30_000)
    expect(statusesOf(results)).toEqual([200])
  })

  it('does not block the calls behind when it is aborted', async () => {
    const fleet = createFleet(retryAfterOnly(1, 3000))
    const get = fleet.client(0)
    const controller = new AbortController()
    fleet.clock.after(1000, () => controller.abort())
    const calls = [get(URL_X), get(URL_X, { signal: controller.signal }), get(URL_X), get(URL_X)]
    expect(statusesOf(await settled(fleet, calls))).toEqual([200, 'AbortError', 200, 200])
  })

  it('of many calls wakes only the next one, also if they wait for two policies in turns', async () => {
    let left = 100
    const fleet = createFleet((_, url) => {
      left -= 1
      return reply(200, {
        'ratelimit-policy': `"${url.at(-1)}";q=100;w=100`,
        ratelimit: `"${url.at(-1)}";r=${Math.max(0, left)};t=100`,
      })
    })
    const get = fleet.client(0, { maxWaitMs: 10_000 })
    const urls = [URL_X, 'https://api.test/y']
    for (const url of urls) await settled(fleet, [get(url)], 100)
    left = 30
    let timers = 0
    const { after } = fleet.clock
    fleet.clock.after = (ms, run) => {
      timers += 1
      return after.call(fleet.clock, ms, run)
    }
    const results = await settled(
      fleet,
      many(400, i => get(urls[i % 2]!)),
      11_000,
    )
    expect(results).toHaveLength(400)
    // Each call looks about once a second, and when the one before it has left.
    expect(timers).toBeLessThan(400 * 15)
  })

  it.each([
    [{ 'ratelimit-policy': '"a";q=0;w=10', ratelimit: '"a";r=0;t=1' }],
    [{ 'ratelimit-policy': '"a";q=20;w=0', ratelimit: '"a";r=0;t=1' }],
  ])('spreads calls again after a reply with %j', async wrong => {
    const api = sluiceApi('gcra', 20, 1000)
    let isWrong = false
    const fleet = createFleet((now, url) => (isWrong ? reply(200, wrong) : api(now, url)))
    const get = fleet.client(0)
    const run = async (calls: number) =>
      await settled(
        fleet,
        many(calls, () => get(URL_X)),
        10_000,
      )
    await run(60)
    isWrong = true
    await run(2)
    isWrong = false
    const from = fleet.arrivals.length
    expect(statusesOf(await run(100))).toEqual(Array(100).fill(200))
    expect(fleet.arrivals.slice(from).filter(({ status }) => status === 429).length).toBeLessThan(5)
  })

  it('is not affected by calls with another policy', async () => {
    const fleet = createFleet((_, url) =>
      reply(200, { ratelimit: url.includes('search') ? '"search";r=0;t=20' : '"core";r=900;t=60' }),
    )
    const get = fleet.client(0)
    await settled(fleet, [get('https://api.test/search')], 100)
    await settled(fleet, [get(URL_X)], 25_000)
    const start = fleet.clock.nowMs
    await settled(fleet, [get('https://api.test/search')], 100)
    void settled(fleet, [get('https://api.test/search'), ...many(5, () => get(URL_X))], 100)
    await new Promise(resolve => setTimeout(resolve, 20))
    expect(fleet.arrivals.filter(({ at }) => at > start).length).toBe(6)
  })

  it('keeps a burst of few calls within a large budget free', async () => {
    let left = 5000
    const fleet = createFleet(() =>
      reply(200, {
        'x-ratelimit-limit': '5000',
        'x-ratelimit-remaining': `${--left}`,
        'x-ratelimit-reset': '3000',
      }),
    )
    const get = fleet.client(0)
    const start = fleet.clock.nowMs
    await settled(
      fleet,
      many(300, () => get(URL_X)),
      1000,
    )
    expect(fleet.arrivals).toHaveLength(300)
    expect(fleet.arrivals.at(-1)!.at - start).toBeLessThan(100)
  })

  it('that is too long says whether the limit is used up or its calls are only spread', async () => {
    let left = 4
    const fleet = createFleet(() => {
      left -= 1
      return reply(left < 0 ? 429 : 200, {
        'ratelimit-policy': '"ten";q=5;w=10',
        ratelimit: `"ten";r=${Math.max(0, left)};t=10`,
      })
    })
    const get = fleet.client(0, { maxWaitMs: 3000 })
    await settled(fleet, [get(URL_X)], 10)
    const results = await settled(
      fleet,
      many(5, () => get(URL_X)),
      3100,
    )
    const spread = results.find(result => result instanceof LimitError)
    expect(left).toBeGreaterThan(0)
    expect(spread).toMatchObject({ policy: 'ten', isUsedUp: false })
    expect(String(spread)).toMatch(
      /^LimitError: https:\/\/api\.test ten: calls are spread, next call in \d+ s$/,
    )
    left = 1
    await settled(fleet, [get(URL_X)], 4000)
    const [usedUp] = await settled(fleet, [get(URL_X)], 3100)
    expect(left).toBe(0)
    expect(usedUp).toMatchObject({ policy: 'ten', isUsedUp: true })
    expect(String(usedUp)).toMatch(/used up, next call in \d+ s$/)
  })

  it('for a probe that does not answer is one for a limit that is used up', async () => {
    const fleet = createFleet(() => reply(200))
    let count = 0
    const get = fleet.client(0, {
      maxWaitMs: 3000,
      fetch: () =>
        count++ > 0 ? new Promise(() => {}) : Promise.resolve(reply(429, { 'retry-after': '2' })),
    })
    const results = await settled(
      fleet,
      [get(URL_X), get(URL_X)].map(call =>
        Promise.race([call, fleet.clock.pass(9000).then(() => reply(504))]),
      ),
      9500,
    )
    expect(statusesOf(results)).toEqual(expect.arrayContaining(['LimitError', 504]))
    expect(results.find(result => result instanceof LimitError)).toMatchObject({ isUsedUp: true })
  })

  it('spreads the last half of a budget over the time left', async () => {
    let left = 51
    const fleet = createFleet(now =>
      reply(200, {
        'x-ratelimit-limit': '100',
        'x-ratelimit-remaining': `${Math.max(0, --left)}`,
        'x-ratelimit-reset': `${Math.ceil((start + 20_000 - now) / 1e3)}`,
      }),
    )
    const start = fleet.clock.nowMs
    const get = fleet.client(0)
    await settled(
      fleet,
      many(50, () => get(URL_X)),
      25_000,
    )
    const times = fleet.arrivals.map(({ at }) => at - start)
    expect(times.filter(at => at < 10_000).length).toBeLessThan(30)
    expect(times.filter(at => at < 20_000).length).toBeGreaterThan(44)
  })
})

it('takes a function as `fetch` that has no other members, whatever the types of the platform say', () => {
  // Those of Bun and Workers declare members, such as `preconnect`.
  expectTypeOf<(...args: Parameters<typeof fetch>) => Promise<Response>>().toEqualTypeOf<
    NonNullable<ClientOptions['fetch']>
  >()
})

describe('memory', () => {
  it('is shared by the clients of a process', async () => {
    const fleet = createFleet(() => reply(429, { 'retry-after': '20' }))
    await settled(fleet, [fleet.client(0)(URL_X, { method: 'POST' })], 100)
    void settled(fleet, [fleet.client(0)(URL_X)], 100)
    await new Promise(resolve => setTimeout(resolve, 20))
    expect(fleet.arrivals).toHaveLength(1)
  })

  it('tells partitions apart', async () => {
    const fleet = createFleet(() => reply(429, { 'retry-after': '20' }))
    await settled(fleet, [fleet.client(0, { partition: 'a' })(URL_X, { method: 'POST' })], 100)
    await settled(fleet, [fleet.client(0, { partition: 'b' })(URL_X, { method: 'POST' })], 100)
    expect(fleet.arrivals).toHaveLength(2)
  })

  it('is bounded: a forgotten origin is new', async () => {
    const fleet = createFleet((_, url) =>
      url.includes('host0') ? reply(429, { 'retry-after': '20' }) : reply(200),
    )
    const send = fleet.client(0)
    const post = (i: number) => send(`https://host${i}.test/`, { method: 'POST' })
    await settled(fleet, [post(0)], 100)
    for (let i = 1; i <= 100; i++) await settled(fleet, [post(i)], 20)
    await settled(fleet, [post(0)], 100)
    expect(fleet.arrivals).toHaveLength(102)
  })

  it('of a policy is forgotten together with its paths', async () => {
    const reset = (path: number) => (path === 0 ? 3600 : 1)
    const fleet = createFleet((_, url) => {
      const path = Number(new URL(url).pathname.slice(1))
      return reply(200, { ratelimit: `"${path}";r=0;t=${reset(path)}` })
    })
    const get = fleet.client(0)
    const visit = async (path: number) =>
      statusesOf(await settled(fleet, [get(`https://api.test/${path}`)], 2000))
    // An unknown path has the limits of the last reply.
    for (let path = 49; path >= 0; path--) expect(await visit(path)).toEqual([200])
    expect(await visit(0)).toEqual(['LimitError'])
    for (let path = 1; path < 50; path++) expect(await visit(path)).toEqual([200])
    for (let path = 50; path < 60; path++) expect(await visit(path)).toEqual([200])
    expect(await visit(0)).toEqual([200])
  })

  it('attributes the reply after a redirect to the origin that has answered', async () => {
    let count = 0
    const fleet = createFleet((_, url) => {
      if (!url.includes('front')) return reply(200)
      count += 1
      const response = count === 1 ? reply(429, { 'retry-after': '5' }) : reply(200)
      return Object.defineProperties(response, {
        redirected: { value: true },
        url: { value: 'https://back.test/y' },
      })
    })
    const get = fleet.client(0)
    const start = fleet.clock.nowMs
    const calls = [get('https://front.test/x'), fleet.clock.pass(100).then(() => get('https://back.test/y'))]
    expect(statusesOf((await settled(fleet, calls)) as Response[])).toEqual([200, 200])
    for (const { at } of fleet.arrivals.slice(1)) expect(at - start).toBeGreaterThan(5000)
  })
})

describe('with a limiter', () => {
  function limiterOf(allowed = true) {
    const log: unknown[] = []
    const limiter: ClientLimiter = {
      async acquire(...args) {
        log.push(['acquire', ...args])
        return { allowed, retryAfterMs: 90_000, release: () => void log.push('release') }
      },
      async pause(name, identity, pause) {
        log.push(['pause', name, identity, pause.forMs])
      },
    }
    return { log, limiter }
  }
  const identity = { account: '42' }

  it('takes numbers in the identity, as the limiter does', async () => {
    const { log, limiter } = limiterOf()
    const fleet = createFleet(() => reply(200))
    await settled(fleet, [fleet.client(0, { limiter, limit: 'stripe', identity: { account: 42 } })(URL_X)])
    expect(log[0]).toEqual(['acquire', 'stripe', { account: 42 }, { timeoutMs: expect.any(Number) }])
  })

  it('acquires before each call, pauses the limit after a refusal, and repeats', async () => {
    const { log, limiter } = limiterOf()
    let count = 0
    const fleet = createFleet(() => (count++ > 0 ? reply(200) : reply(429, { 'retry-after': '7' })))
    const get = fleet.client(0, { limiter, limit: 'stripe', identity })
    expect(statusesOf(await settled(fleet, [get(URL_X)]))).toEqual([200])
    const acquire = ['acquire', 'stripe', identity, { timeoutMs: expect.any(Number) }]
    const pause = ['pause', 'stripe', identity, expect.toSatisfy(ms => ms >= 7000 && ms < 8000)]
    expect(log).toEqual([acquire, pause, 'release', acquire, 'release'])
  })

  it('pauses for the time that RateLimit names', async () => {
    const { log, limiter } = limiterOf()
    const fleet = createFleet(() => reply(429, { ratelimit: '"a";r=0;t=9' }))
    await settled(fleet, [fleet.client(0, { limiter, limit: 'stripe', identity })(URL_X, { method: 'POST' })])
    const [, , , forMs] = log.find(entry => Array.isArray(entry) && entry[0] === 'pause') as unknown[]
    expect(forMs).toBeGreaterThanOrEqual(9000)
  })

  it('works with one that cannot pause', async () => {
    const { acquire } = limiterOf().limiter
    let count = 0
    const fleet = createFleet(() => (count++ > 0 ? reply(200) : reply(429, { 'retry-after': '7' })))
    expect(
      statusesOf(await settled(fleet, [fleet.client(0, { limiter: { acquire }, limit: 'stripe' })(URL_X)])),
    ).toEqual([200])
  })

  it('stops waiting for a pause that hangs when the signal aborts', async () => {
    const { limiter } = limiterOf()
    const fleet = createFleet(() => reply(429, { 'retry-after': '7' }))
    const hanging = { ...limiter, pause: () => new Promise(() => {}) }
    const controller = new AbortController()
    fleet.clock.after(1000, () => controller.abort())
    const call = fleet.client(0, { limiter: hanging, limit: 'stripe' })(URL_X, { signal: controller.signal })
    expect(statusesOf(await settled(fleet, [call], 2000))).toEqual(['AbortError'])
  })

  it('names a valid time even if no wait helps', async () => {
    const limiter: ClientLimiter = {
      acquire: async () => ({ allowed: false, retryAfterMs: -1, release() {} }),
    }
    const fleet = createFleet(() => reply(200))
    const [error] = await settled(fleet, [fleet.client(0, { limiter, limit: 'stripe' })(URL_X)])
    const { retryAfterMs, retryAt } = error as LimitError
    expect(retryAfterMs).toBe(Number.POSITIVE_INFINITY)
    expect(retryAt.toISOString()).toBe('+275760-09-13T00:00:00.000Z')
  })

  it('says which limit did not admit in time', async () => {
    const { limiter } = limiterOf(false)
    const fleet = createFleet(() => reply(200))
    const [error] = await settled(fleet, [fleet.client(0, { limiter, limit: 'stripe' })(URL_X)])
    expect(error).toMatchObject({ name: 'LimitError', policy: 'stripe', retryAfterMs: 90_000 })
    expect(fleet.arrivals).toEqual([])
  })

  it('stops waiting for it when the signal aborts, and releases what comes late', async () => {
    const { log, limiter } = limiterOf()
    const fleet = createFleet(() => reply(200))
    const late: ClientLimiter = {
      acquire: (...args) => fleet.clock.pass(5000).then(() => limiter.acquire(...args)),
    }
    const controller = new AbortController()
    fleet.clock.after(1000, () => controller.abort())
    const call = fleet.client(0, { limiter: late, limit: 'stripe' })(URL_X, { signal: controller.signal })
    expect(statusesOf(await settled(fleet, [call]))).toEqual(['AbortError'])
    expect(log.at(-1)).toBe('release')
    expect(log[0]).toMatchObject(['acquire', 'stripe', {}, { signal: controller.signal }])
    expect(fleet.arrivals).toEqual([])
  })
})
