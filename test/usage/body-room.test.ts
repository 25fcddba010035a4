import { describe, expect, it } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import { type BodyHold, createBodyRoom } from '../../src/usage/body-room.ts'
import { readLlmRequest } from '../../src/usage/llm-request.ts'

/** How many bodies of a size find room, if none of them ends. */
function fill(open: (i: number) => BodyHold, bytes: number, most = 1000): number {
  for (let count = 0; count < most; count++) if (!open(count).take(bytes)) return count
  return most
}

describe('the room for bodies', () => {
  it('has a quarter for callers that were not admitted, of which an address takes at most half', () => {
    const room = createBodyRoom(1_000_000)
    const made = (i: number) => room.open(`made up ${i}`, false, '192.0.2.1')
    expect(fill(made, 40_000)).toBe(3)
    // Another address has the same share of what is left, and both have room for small bodies.
    expect(fill(i => room.open(`key ${i}`, false, '192.0.2.2'), 40_000)).toBe(1)
    expect(room.open('another', false, '192.0.2.1').take(1000)).toBe(true)
    expect(room.open('another', false, '192.0.2.3').take(1000)).toBe(true)
  })

  it('has three quarters for callers that were admitted, whatever others do', () => {
    const room = createBodyRoom(1_000_000)
    room.remember('acme')
    expect(fill(i => room.open(`made up ${i}`, false, `address ${i}`), 1000)).toBeGreaterThan(200)
    expect(fill(() => room.open('acme', false, '192.0.2.1'), 40_000)).toBe(9)
    expect(fill(() => room.open('verified', true, '192.0.2.1'), 40_000)).toBe(4)
  })

  it('is free again when bodies end', () => {
    const room = createBodyRoom(1_000_000)
    const holds = Array.from({ length: 3 }, (_, i) => room.open(`made up ${i}`, false, '192.0.2.1'))
    for (const hold of holds) expect(hold.take(40_000)).toBe(true)
    expect(room.open('x', false, '192.0.2.1').take(40_000)).toBe(false)
    holds[0]!.give(30_000)
    holds[0]!.give(30_000)
    holds[1]!.give()
    holds[1]!.give()
    expect(fill(() => room.open('x', false, '192.0.2.1'), 40_000)).toBe(2)
  })
})

describe('310 connections with made-up keys', () => {
  const URL = 'https://api.test/v1/chat/completions'
  const json = { 'content-type': 'application/json' }
  const never: Timer = () => () => {}
  const body = JSON.stringify({ messages: [], stream: true })
  const read = (hold: BodyHold) =>
    readLlmRequest(new Request(URL, { method: 'POST', body, headers: json }), { includeUsage: true, hold })

  it('take no room from callers that were admitted before, and are refused themselves', async () => {
    const room = createBodyRoom()
    room.remember('acme')
    let held = 0
    const stuck = Array.from({ length: 310 }, (_, i) => {
      const first = `{"messages":["${'x'.repeat(i < 60 ? 254_000 : 1)}`
      const stream = new ReadableStream<Uint8Array>({
        start: controller => controller.enqueue(new TextEncoder().encode(first)),
      })
      const init = { method: 'POST', body: stream, headers: json, duplex: 'half' } as RequestInit
      const hold = room.open(`made up ${i}`, false, '192.0.2.1')
      const take: BodyHold['take'] = bytes => {
        const isTaken = hold.take(bytes)
        if (isTaken) held += bytes
        return isTaken
      }
      return readLlmRequest(new Request(URL, init), { hold: { ...hold, take }, timer: never })
    })
    const refused = stuck.map(request => request.then(({ refusal }) => refusal()))
    const settled = await Promise.all(
      refused.map(each =>
        Promise.race([each, new Promise<undefined>(resolve => setTimeout(() => resolve(undefined), 50))]),
      ),
    )
    expect(held).toBeLessThan(8_000_000)
    const full = settled.filter(refusal => refusal?.reason === 'full').length
    expect(full).toBeGreaterThanOrEqual(50)

    const honest = await read(room.open('acme', false, '192.0.2.1'))
    expect([honest.how, honest.hidesUsage()]).toEqual(['read', true])
    const newcomer = await read(room.open('new', false, '192.0.2.2'))
    expect([newcomer.how, newcomer.hidesUsage()]).toEqual(['read', true])
  })

  it('let callers wait for room that were admitted before, and no others', async () => {
    const room = createBodyRoom(100_000)
    room.remember('acme')
    const first = room.open('acme', false, 'a')
    expect(first.take(37_500)).toBe(true)
    let waits = 0
    const timer: Timer = (ms, run) => {
      if (ms !== 50) return () => {}
      waits += 1
      if (waits === 3) first.give()
      queueMicrotask(run)
      return () => {}
    }
    const request = () =>
      new Request(URL, { method: 'POST', body: `{"a":"${'x'.repeat(10_000)}"}`, headers: json })
    expect(await readLlmRequest(request(), { hold: room.open('acme', false, 'a'), timer })).toMatchObject({
      how: 'read',
    })
    expect(waits).toBe(3)
    const refused = await readLlmRequest(request(), { hold: room.open('new', false, 'a'), timer })
    expect([refused.refusal(), waits]).toEqual([{ reason: 'full' }, 3])
  })
})
