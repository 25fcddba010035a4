/** The end of a reply on Node, where the app runs in tests. test/e2e/endings.test.ts has the ends that need workerd. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { whenOver } from '../../src/edges/http/ending.ts'
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

/** A body that its test continues: an origin that takes its time. */
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
  it('comes after its body has ended', async () => {
    const { body, control } = controlledBody()
    const reply = whenOver(
      new Response(body, { status: 201, headers: { 'x-kept': 'yes' } }),
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

  it('is a cancellation when its reader stops, and the origin is left', async () => {
    const { body, cancel } = controlledBody()
    const reply = whenOver(new Response(body), background, over)
    await reply.body!.cancel()
    await settled()
    expect(endings).toEqual(['cancelled'])
    expect(cancel).toHaveBeenCalledOnce()
  })

  it('is a cancellation when the signal of the request fires, and the origin is left', async () => {
    const { body, cancel } = controlledBody()
    const client = new AbortController()
    const reply = whenOver(new Response(body), background, over, { clientGone: client.signal })
    const text = reply.text()
    client.abort()
    await expect(text).rejects.toThrow()
    await settled()
    expect(endings).toEqual(['cancelled'])
    expect(cancel).toHaveBeenCalledOnce()
  })

  it('is a failure when the body fails, and the reader sees it', async () => {
    const { body, control } = controlledBody()
    const reply = whenOver(new Response(body), background, over, { clientGone: new AbortController().signal })
    const text = reply.text()
    control.error(new Error('reset'))
    await expect(text).rejects.toThrow('reset')
    await settled()
    expect(endings).toEqual(['failed'])
  })

  it('has come at once when there is no body, or when the reply is the gateway’s own', () => {
    const bodiless = new Response(null, { status: 204 })
    expect(whenOver(bodiless, background, over)).toBe(bodiless)
    expect(endings).toEqual(['complete'])
    const own = new Response('refused', { status: 429 })
    expect(whenOver(own, background, over, { isOwnReply: true })).toBe(own)
    expect(endings).toEqual(['complete', 'complete'])
    expect(tasks).toEqual([])
  })
})

describe('a reply whose end cannot be observed', () => {
  it('goes out as it is, and its end is a failure', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const response = new Response('read already')
    const reader = response.body!.getReader()
    expect(whenOver(response, background, over)).toBe(response)
    expect(endings).toEqual(['failed'])
    expect(log).toHaveBeenCalledOnce()
    reader.releaseLock()
    expect(await response.text()).toBe('read already')
  })

  it('goes out whole when the platform takes no background task', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const reply = whenOver(new Response('whole'), () => expect.fail('no context'), over)
    expect(await reply.text()).toBe('whole')
    expect(endings).toEqual(['failed'])
    expect(log).toHaveBeenCalledOnce()
  })

  it('goes out whole when the report of its end throws', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const reply = whenOver(new Response('whole'), background, ending => {
      over(ending)
      throw new Error('a mistake in finish')
    })
    expect(await reply.text()).toBe('whole')
    await settled()
    expect(endings).toEqual(['complete'])
    expect(log).toHaveBeenCalledOnce()
  })
})
