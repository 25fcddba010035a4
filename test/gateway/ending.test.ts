/**
 * The end of a reply on Node, where the app runs in tests. test/e2e/endings.test.ts tests the endings that need
 * workerd.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { SYSTEM_TIMER, type Timer } from '../../src/clock.ts'
import type { Ending } from '../../src/limiter/engine-shape.ts'
import { observeEnd as observeEndOf, type ReplyContext } from '../../src/set-ups/http/ending.ts'
import { createReadOnSlots, createTapPump, type ReadOn } from '../../src/set-ups/http/tap-pump.ts'
import type { BodyTap } from '../../src/usage/usage.ts'
import { UNBOUNDED_LOG } from '../support/log.ts'
import { PATIENT } from '../support/patience.ts'

let endings: Ending[]
let tasks: Promise<unknown>[]
beforeEach(() => {
  endings = []
  tasks = []
})
afterEach(() => {
  vi.restoreAllMocks()
})

const background = (task: Promise<unknown>) => void tasks.push(task)
const IDLE_MS = 60_000

const observeEnd = (
  response: Response,
  onTask: Parameters<typeof observeEndOf>[1],
  onEnd: (ending: Ending) => void,
  context: Partial<ReplyContext> = {},
) =>
  observeEndOf(response, onTask, onEnd, {
    idleMs: IDLE_MS,
    timer: SYSTEM_TIMER,
    log: UNBOUNDED_LOG,
    ...context,
  })

const over = (ending: Ending) => void endings.push(ending)
const settled = () => Promise.all(tasks)

/** A body that the test continues step by step, like that of a slow origin. */
function controlledBody() {
  let control!: ReadableStreamDefaultController<Uint8Array>
  const cancel = vi.fn()
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      control = controller
    },
    cancel,
  })
  return { body, control, cancel }
}

describe('the end of a reply', () => {
  it.each([{}, { 'content-length': '5' }])('is reported after its body has ended, with %j', async length => {
    const { body, control } = controlledBody()
    const reply = observeEnd(
      new Response(body, { status: 201, headers: { 'x-kept': 'yes', ...length } }),
      background,
      over,
    )
    expect([reply.status, reply.headers.get('x-kept')]).toEqual([201, 'yes'])
    control.enqueue(new TextEncoder().encode('hello'))
    const text = reply.text()
    expect(endings).toEqual([])
    control.close()
    expect(await text).toBe('hello')
    await settled()
    expect(endings).toEqual(['complete'])
  })

  it('is a cancellation if its reader stops; the fetch from the origin is cancelled', async () => {
    const { body, cancel } = controlledBody()
    const reply = observeEnd(new Response(body), background, over)
    await reply.body!.cancel()
    await settled()
    expect(endings).toEqual(['cancelled'])
    expect(cancel).toHaveBeenCalledOnce()
  })

  it('is a cancellation if the signal of the request fires; the fetch from the origin is cancelled', async () => {
    const { body, cancel } = controlledBody()
    const client = new AbortController()
    const reply = observeEnd(new Response(body), background, over, { clientGone: client.signal })
    const text = reply.text()
    client.abort()
    await expect(text).rejects.toThrow()
    await settled()
    expect(endings).toEqual(['cancelled'])
    expect(cancel).toHaveBeenCalledOnce()
  })

  it('is a cancellation if the signal of the request fires while nothing reads the reply', async () => {
    const { body, control, cancel } = controlledBody()
    const client = new AbortController()
    observeEnd(new Response(body), background, over, { clientGone: client.signal })
    for (let chunk = 0; chunk < 3; chunk++) control.enqueue(new Uint8Array(10_000))
    await new Promise(setImmediate)
    client.abort()
    await vi.waitUntil(() => endings.length > 0, PATIENT)
    expect(endings).toEqual(['cancelled'])
    expect(cancel).toHaveBeenCalledOnce()
  })

  it('is a failure if the body fails, which the reader also sees', async () => {
    const { body, control } = controlledBody()
    const reply = observeEnd(new Response(body), background, over, {
      clientGone: new AbortController().signal,
    })
    const text = reply.text()
    control.error(new Error('reset'))
    await expect(text).rejects.toThrow('reset')
    await settled()
    expect(endings).toEqual(['failed'])
  })

  it('is reported at once without a body, or for a reply of the gateway itself', () => {
    const bodiless = new Response(null, { status: 204 })
    expect(observeEnd(bodiless, background, over)).toBe(bodiless)
    expect(endings).toEqual(['complete'])
    const own = new Response('refused', { status: 429 })
    expect(observeEnd(own, background, over, { isFromSluice: true })).toBe(own)
    expect(endings).toEqual(['complete', 'complete'])
    expect(tasks).toEqual([])
  })
})

describe('a silent body', () => {
  let log: ReturnType<typeof vi.spyOn>
  beforeEach(() => {
    log = vi.spyOn(console, 'warn').mockImplementation(() => {})
  })

  /** Timers that the test lets run out, one after the other. @returns how long they took (ms) */
  function steppedTimer() {
    const pending = new Set<{ ms: number; run: () => void }>()
    const timer: Timer = (ms, run) => {
      const entry = { ms, run }
      pending.add(entry)
      return () => pending.delete(entry)
    }
    const step = () => {
      const [next] = pending
      pending.delete(next!)
      next!.run()
      return next!.ms
    }
    return { timer, pending, step }
  }

  it('without a length is cut off after the limit, at both ends', async () => {
    const { timer, step, pending } = steppedTimer()
    const { body, cancel } = controlledBody()
    const reply = observeEnd(new Response(body), background, over, { timer })
    const isRejected = expect(reply.text()).rejects.toThrow()
    let silentMs = 0
    while (endings.length === 0 && pending.size > 0) {
      silentMs += step()
      await new Promise(setImmediate)
    }
    expect(silentMs).toBeGreaterThanOrEqual(IDLE_MS)
    expect(silentMs).toBeLessThanOrEqual(1.25 * IDLE_MS)
    await isRejected
    await settled()
    expect([endings, cancel.mock.calls.length]).toEqual([['failed'], 1])
    expect(log.mock.calls.map(([line]: unknown[]) => JSON.parse(String(line)))).toEqual([
      {
        level: 'warn',
        event: 'idle',
        detail: expect.stringMatching(/ silent for 60000 ms \(idleDeadline\)/),
        skipped: 0,
      },
    ])
  })

  it('is silent only from its last chunk on', async () => {
    const { timer, step, pending } = steppedTimer()
    const { body, control } = controlledBody()
    const reply = observeEnd(new Response(body), background, over, { timer })
    const reader = reply.body!.getReader()
    for (let i = 0; i < 20; i++) {
      for (let j = 0; j < 3; j++) step()
      control.enqueue(new Uint8Array([i]))
      expect((await reader.read()).value).toEqual(new Uint8Array([i]))
      await new Promise(setImmediate)
    }
    control.close()
    expect((await reader.read()).done).toBe(true)
    await settled()
    expect([endings, pending.size, log.mock.calls]).toEqual([['complete'], 0, []])
  })

  it('with a length gets the limit and a second for each kB', async () => {
    const { timer, step, pending } = steppedTimer()
    const { body, control, cancel } = controlledBody()
    const headers = { 'content-length': '5000' }
    const reply = observeEnd(new Response(body, { headers }), background, over, { timer })
    const isRejected = expect(reply.text()).rejects.toThrow()
    control.enqueue(new Uint8Array(4000))
    expect(step()).toBe(IDLE_MS + 5000)
    await isRejected
    await settled()
    expect([endings, cancel.mock.calls.length, pending.size]).toEqual([['failed'], 1, 0])
    expect(log).toHaveBeenCalledOnce()
  })

  it('costs no memory for each chunk', async () => {
    let left = 200_000
    const body = new ReadableStream({
      pull(control) {
        if (left-- > 0) control.enqueue(new Uint8Array(1))
        else control.close()
      },
    })
    const client = new AbortController()
    const listen = vi.spyOn(AbortSignal.prototype, 'addEventListener')
    const reply = observeEnd(new Response(body), background, over, { clientGone: client.signal })
    for await (const _ of reply.body!);
    await settled()
    expect(endings).toEqual(['complete'])
    expect(listen.mock.calls.length).toBeLessThan(10)
  })
})

describe('a body that is read on its way', () => {
  const bytesOf = (text: string) => new TextEncoder().encode(text)
  const textOf = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes)

  /** Records what it sees. It takes time for each chunk, until the test continues. */
  function slowTap(changes: Partial<BodyTap> = {}) {
    const seen: string[] = []
    let resume = () => {}
    const tap: BodyTap = {
      changesBytes: false,
      pass: chunk => chunk,
      rest: () => new Uint8Array(),
      see(chunk) {
        seen.push(textOf(chunk))
        return new Promise(resolve => {
          resume = resolve
        })
      },
      ...changes,
    }
    return { tap, seen, resume: () => resume() }
  }

  it.each([{}, { 'content-length': '6' }])(
    'arrives before it was read, and no chunk is read ahead of that, with %j',
    async headers => {
      const { body, control } = controlledBody()
      const { tap, seen, resume } = slowTap()
      const reply = observeEnd(new Response(body, { headers }), background, over, {
        pump: createTapPump(tap),
      })
      const reader = reply.body!.getReader()
      for (const text of ['ab', 'cd', 'ef']) control.enqueue(bytesOf(text))
      control.close()
      for (const [i, text] of ['ab', 'cd', 'ef'].entries()) {
        expect(textOf((await reader.read()).value)).toBe(text)
        await new Promise(setImmediate)
        expect(seen).toHaveLength(i + 1)
        expect(endings).toEqual([])
        resume()
      }
      expect((await reader.read()).done).toBe(true)
      await settled()
      expect([seen, endings]).toEqual([['ab', 'cd', 'ef'], ['complete']])
    },
  )

  it('is only read as fast as its client reads', async () => {
    let pulled = 0
    const body = new ReadableStream<Uint8Array>(
      {
        pull(control) {
          pulled += 1
          control.enqueue(bytesOf('chunk'))
        },
      },
      { highWaterMark: 0 },
    )
    const { tap, seen } = slowTap({})
    const reply = observeEnd(new Response(body), background, over, {
      pump: createTapPump({ ...tap, see: () => undefined }),
    })
    for (let i = 0; i < 5; i++) await new Promise(setImmediate)
    expect(pulled).toBeLessThanOrEqual(2)
    await reply.body!.cancel()
    await settled()
    expect([endings, seen]).toEqual([['cancelled'], []])
  })

  it('can be changed: its parts, its end, and so its length', async () => {
    const tap: BodyTap = {
      changesBytes: true,
      pass: chunk => (textOf(chunk) === 'secret' ? new Uint8Array() : chunk),
      rest: () => bytesOf('!'),
      see: () => undefined,
    }
    const { body, control } = controlledBody()
    const reply = observeEnd(new Response(body), background, over, { pump: createTapPump(tap) })
    for (const text of ['a', 'secret', 'b']) control.enqueue(bytesOf(text))
    control.close()
    expect(await reply.text()).toBe('ab!')
    await settled()
    expect(endings).toEqual(['complete'])
  })

  it('ends if its client leaves, also while a chunk is read without end', async () => {
    const { body, control, cancel } = controlledBody()
    const { tap } = slowTap()
    const client = new AbortController()
    const reply = observeEnd(new Response(body), background, over, {
      pump: createTapPump(tap),
      clientGone: client.signal,
    })
    const reader = reply.body!.getReader()
    control.enqueue(bytesOf('a'))
    await reader.read()
    client.abort()
    await settled()
    expect([endings, cancel.mock.calls.length]).toEqual([['cancelled'], 1])
  })

  it('ends if it fails, after its last chunk was read', async () => {
    const { body, control } = controlledBody()
    const { tap, seen, resume } = slowTap()
    const reply = observeEnd(new Response(body), background, over, { pump: createTapPump(tap) })
    const reader = reply.body!.getReader()
    control.enqueue(bytesOf('a'))
    await reader.read()
    control.error(new Error('reset'))
    resume()
    await expect(reader.read()).rejects.toThrow('reset')
    await settled()
    expect([endings, seen]).toEqual([['failed'], ['a']])
  })
})

describe('a body that is read on after its client has left', () => {
  const chunk = (i: number) => new Uint8Array([i])

  function tapped() {
    const seen: number[] = []
    const tap: BodyTap = {
      changesBytes: false,
      pass: bytes => bytes,
      rest: () => new Uint8Array(),
      see: ([byte]) => void seen.push(byte!),
    }
    return { tap, seen }
  }

  /** A client that reads one chunk and leaves. */
  async function leaveAfterOne(
    how: 'by its signal' | 'by cancelling',
    readOn: ReadOn,
    timer: Timer = SYSTEM_TIMER,
  ) {
    const { body, control, cancel } = controlledBody()
    const { tap, seen } = tapped()
    const client = new AbortController()
    const reply = observeEnd(new Response(body), background, over, {
      pump: createTapPump(tap, { readOn, timer }),
      clientGone: client.signal,
    })
    const reader = reply.body!.getReader()
    control.enqueue(chunk(1))
    await reader.read()
    if (how === 'by cancelling') await reader.cancel()
    else client.abort()
    await new Promise(setImmediate)
    return { control, cancel, seen }
  }

  it.each(['by its signal', 'by cancelling'] as const)('is seen to its end: %s', async how => {
    const begin = createReadOnSlots(1)
    const { control, cancel, seen } = await leaveAfterOne(how, { forMs: 25_000, begin })
    expect([endings, cancel.mock.calls.length, begin()]).toEqual([[], 0, undefined])
    for (const i of [2, 3]) control.enqueue(chunk(i))
    control.close()
    await settled()
    expect([seen, endings]).toEqual([[1, 2, 3], ['cancelled']])
    expect(begin()).toBeTypeOf('function')
  })

  it('is cancelled after a while', async () => {
    let runOut = () => {}
    const timer: Timer = (ms, run) => {
      if (ms === 25_000) runOut = run
      return () => {}
    }
    const begin = createReadOnSlots(1)
    const { control, cancel, seen } = await leaveAfterOne('by its signal', { forMs: 25_000, begin }, timer)
    control.enqueue(chunk(2))
    await new Promise(setImmediate)
    runOut()
    await settled()
    expect([seen, endings, cancel.mock.calls.length]).toEqual([[1, 2], ['cancelled'], 1])
    expect(begin()).toBeTypeOf('function')
  })

  it('is cancelled at once if too many are read on', async () => {
    const { cancel } = await leaveAfterOne('by its signal', { forMs: 25_000, begin: createReadOnSlots(0) })
    await settled()
    expect([endings, cancel.mock.calls.length]).toEqual([['cancelled'], 1])
  })

  it('is over if it fails', async () => {
    const begin = createReadOnSlots(1)
    const { control } = await leaveAfterOne('by its signal', { forMs: 25_000, begin })
    control.error(new Error('reset'))
    await settled()
    expect(endings).toEqual(['cancelled'])
    expect(begin()).toBeTypeOf('function')
  })

  it('finds the place that a body which failed by itself has not taken', async () => {
    const begin = createReadOnSlots(1)
    const { body, control } = controlledBody()
    const pump = createTapPump(tapped().tap, { readOn: { forMs: 25_000, begin } })
    const reply = observeEnd(new Response(body), background, over, { pump })
    control.error(new Error('reset'))
    await expect(reply.text()).rejects.toThrow('reset')
    await settled()
    await new Promise(setImmediate)
    expect(endings).toEqual(['failed'])
    expect(begin()).toBeTypeOf('function')
  })
})

describe('a reply whose end cannot be observed', () => {
  it('is sent unchanged, and its end is reported as a failure', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const response = new Response('read already')
    const reader = response.body!.getReader()
    expect(observeEnd(response, background, over)).toBe(response)
    expect(endings).toEqual(['failed'])
    expect(log).toHaveBeenCalledOnce()
    reader.releaseLock()
    expect(await response.text()).toBe('read already')
  })

  it('is sent completely if the platform refuses background tasks', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const reply = observeEnd(new Response('whole'), () => expect.fail('no context'), over)
    expect(await reply.text()).toBe('whole')
    expect(endings).toEqual(['failed'])
    expect(log).toHaveBeenCalledOnce()
  })

  it('is sent completely if the report of its end throws', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const reply = observeEnd(new Response('whole'), background, ending => {
      over(ending)
      throw new Error('a mistake in finish')
    })
    expect(await reply.text()).toBe('whole')
    await settled()
    expect(endings).toEqual(['complete'])
    expect(log).toHaveBeenCalledOnce()
  })
})
