/**
 * The end of a reply on Node, where the app runs in tests. test/e2e/endings.test.ts tests the endings that need
 * workerd.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { observeEnd } from '../../src/edges/http/ending.ts'
import type { Ending } from '../../src/limiter/engine.ts'

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
    expect(observeEnd(own, background, over, { isOwnReply: true })).toBe(own)
    expect(endings).toEqual(['complete', 'complete'])
    expect(tasks).toEqual([])
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
