/** The calls of `acquire` that wait for one identity, on a clock that the tests move. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createWaitingLine, type WaitingLine } from '../../src/set-ups/limits/waiting-line.ts'
import { sized } from '../selection.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] }))
afterEach(() => void vi.useRealTimers())

const sleep = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms))
const clock = { elapsedMs: () => Date.now(), sleep }

const ADMITTED = { allowed: true, isEstimate: false }

/** A store that admits `burst` calls at once, and then one every `paceMs`. */
function storeOf({ burst, paceMs, tripMs }: { burst: number; paceMs: number; tripMs: number }) {
  let readyAt = Number.NEGATIVE_INFINITY
  const store = {
    trips: 0,
    async ask() {
      store.trips += 1
      await sleep(tripMs / 2)
      const time = Date.now()
      const emptyAt = Math.max(readyAt, time - (burst - 1) * paceMs)
      const isAllowed = emptyAt <= time
      if (isAllowed) readyAt = emptyAt + paceMs
      const further = Math.floor((time - readyAt) / paceMs) + 1
      const wait = { further: Math.max(0, further), pauseMs: Math.max(0, readyAt - time) }
      const answer = { ...wait, allowed: isAllowed, paceMs, isEstimate: false }
      await sleep(tripMs / 2)
      return { isAllowed, answer }
    },
  }
  return store
}

/** Moves the time until some work is done. */
async function untilDone(work: Promise<unknown>): Promise<void> {
  let isDone = false
  const ending = work.finally(() => {
    isDone = true
  })
  while (!isDone) await vi.advanceTimersByTimeAsync(10)
  await ending
}

/** As `acquire` does it. @returns whether it was admitted */
async function acquire(line: WaitingLine, { ask }: ReturnType<typeof storeOf>, deadline = Infinity) {
  const place = line.join(deadline)
  try {
    while (await place.turn()) {
      const { isAllowed, answer } = await ask()
      place.report(answer)
      if (isAllowed) return true
    }
    return false
  } finally {
    place.leave()
  }
}

describe('calls that wait', () => {
  it.each([0, 4, 30, 200])(
    'are admitted in order, at the full rate and with one trip each (trips of %d ms)',
    async tripMs => {
      const [line, store] = [createWaitingLine(clock), storeOf({ burst: 5, paceMs: 20, tripMs })]
      const startedAt = Date.now()
      const order: number[] = []
      const all = Promise.all(
        Array.from({ length: 200 }, async (_, i) => {
          await acquire(line, store)
          order.push(i)
        }),
      )
      await untilDone(all)
      expect(store.trips).toBeLessThanOrEqual(1.2 * 200)
      // The first answer, 195 units at their pace, and the looks of the calls.
      expect(Date.now() - startedAt).toBeLessThan(1.2 * (195 * 20 + 2 * tripMs))
      expect(order).toEqual(order.toSorted((a, b) => a - b))
      expect(line.isEmpty()).toBe(true)
    },
  )

  it('ask when the next units are due, also if the last answer has made that sooner', async () => {
    const line = createWaitingLine(clock)
    const refusal = { allowed: false, further: 0, pauseMs: 1000, paceMs: 17_000, isEstimate: false }
    const [first, second] = [line.join(Infinity), line.join(Infinity)]
    const startedAt = Date.now()
    expect(await first.turn()).toBe(true)
    first.report({ ...refusal, allowed: true, further: 2 })
    // Both ask at once, and are refused. The first answer counts on units for the other one.
    expect(await first.turn()).toBe(true)
    expect(await second.turn()).toBe(true)
    first.report(refusal)
    const again = first.turn()
    await vi.advanceTimersByTimeAsync(100)
    second.report(refusal)
    const next = second.turn()
    await untilDone(again)
    expect(Date.now() - startedAt).toBeLessThan(1300)
    first.report({ ...refusal, allowed: true, further: 1, paceMs: 100 })
    first.leave()
    await untilDone(next)
    expect(Date.now() - startedAt).toBeLessThan(2000)
  })

  it('ask at once if the limit has units for all of them', async () => {
    const [line, store] = [createWaitingLine(clock), storeOf({ burst: 1000, paceMs: 1, tripMs: 30 })]
    const startedAt = Date.now()
    const all = Promise.all(Array.from({ length: 500 }, () => acquire(line, store)))
    await untilDone(all)
    expect([store.trips, Date.now() - startedAt < 150]).toEqual([500, true])
  })

  it('look the less often the more of them there are', async () => {
    const looks = vi.fn(sleep)
    const calls = sized(3000, 1000)
    const [line, store] = [
      createWaitingLine({ ...clock, sleep: looks }),
      storeOf({ burst: 1, paceMs: 1, tripMs: 10 }),
    ]
    const all = Promise.all(Array.from({ length: calls }, () => acquire(line, store)))
    await untilDone(all)
    expect(looks.mock.calls.length).toBeLessThan(30 * calls)
    expect(line.isEmpty()).toBe(true)
  })

  it('do not wait for a call that has ended without notice, whether it was waiting or asking', async () => {
    const [line, store] = [createWaitingLine(clock), storeOf({ burst: 1, paceMs: 100, tripMs: 10 })]
    const [first, ended] = [line.join(Infinity), line.join(Infinity)]
    await first.turn()
    first.report({ further: 2, pauseMs: 0, paceMs: Infinity, ...ADMITTED })
    await first.turn()
    await ended.turn()
    first.report({ further: 0, pauseMs: 100, paceMs: Infinity, ...ADMITTED })
    void first.turn()
    void line.join(Infinity).turn()
    let isAdmitted = false
    void acquire(line, store).then(admitted => {
      isAdmitted = admitted
    })
    await vi.advanceTimersByTimeAsync(120_000)
    expect(isAdmitted).toBe(true)
  })

  it('ask when the platform has ended the call that asked, however slowly units come back', async () => {
    const hourMs = 3600e3
    const line = createWaitingLine(clock)
    const first = line.join(Infinity)
    await first.turn()
    first.report({ further: 0, pauseMs: hourMs, paceMs: hourMs, ...ADMITTED })
    first.leave()
    // An hour later, this one asks, and never gets an answer.
    const ended = line.join(Infinity).turn()
    await vi.advanceTimersByTimeAsync(hourMs + 1000)
    expect(await ended).toBe(true)
    let isItsTurn = false
    void line
      .join(Infinity)
      .turn()
      .then(turn => {
        isItsTurn = turn
      })
    await vi.advanceTimersByTimeAsync(15_000)
    expect(isItsTurn).toBe(false)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(isItsTurn).toBe(true)
  })

  it('do not wait as long as a call of another cost had to, once that call has given up', async () => {
    const line = createWaitingLine(clock)
    const [costly, cheap] = [line.join(Infinity, '10'), line.join(Date.now() + 3000, '1')]
    await costly.turn()
    const isItsTurn = cheap.turn()
    costly.report({ allowed: false, further: 0, pauseMs: 10_000, paceMs: 10_000, isEstimate: false })
    costly.leave()
    await vi.advanceTimersByTimeAsync(20)
    expect(await isItsTurn).toBe(true)
    // A call of the same cost would get the same answer.
    const same = line.join(Date.now() + 3000, '1')
    cheap.report({ allowed: false, further: 0, pauseMs: 5000, paceMs: 1000, isEstimate: false })
    cheap.leave()
    expect(await same.turn()).toBe(false)
  })

  it('follow a release at once and in order, with one trip each', async () => {
    const [limit, jobs, jobMs, tripMs] = [10, 400, 20, 2]
    const awake = (ms: number, signal?: AbortSignal) =>
      new Promise<void>(resolve => {
        const timer = setTimeout(resolve, ms)
        signal?.addEventListener('abort', () => {
          clearTimeout(timer)
          resolve()
        })
      })
    const line = createWaitingLine({ ...clock, sleep: awake }, true)
    let [inFlight, trips, left] = [0, 0, jobs]
    const order: number[] = []
    async function job(): Promise<void> {
      const place = line.join(Infinity)
      const number = jobs - left--
      for (let allowed = false; !allowed && (await place.turn()); ) {
        trips += 1
        await sleep(tripMs)
        allowed = inFlight < limit
        if (allowed) inFlight += 1
        place.report({ allowed, further: limit - inFlight, pauseMs: 50, paceMs: Infinity, isEstimate: false })
      }
      place.leave()
      order.push(number)
      await sleep(jobMs)
      inFlight -= 1
      line.free()
    }
    const startedAt = Date.now()
    await untilDone(
      Promise.all(
        Array.from({ length: 50 }, async () => {
          while (left > 0) await job()
        }),
      ),
    )
    expect((jobs * jobMs) / limit / (Date.now() - startedAt)).toBeGreaterThan(0.8)
    expect(trips).toBeLessThan(1.2 * jobs)
    expect(order).toEqual(order.toSorted((a, b) => a - b))
  })

  it('are told at once if their turn comes too late, and in time if that is unknown', async () => {
    const [line, store] = [createWaitingLine(clock), storeOf({ burst: 1, paceMs: 10_000, tripMs: 10 })]
    const first = acquire(line, store)
    await vi.advanceTimersByTimeAsync(20)
    expect(await first).toBe(true)
    const startedAt = Date.now()
    const second = acquire(line, store, startedAt + 9000)
    await vi.advanceTimersByTimeAsync(20)
    expect(await second).toBe(false)
    // The answer to the call before takes a second.
    const other = createWaitingLine(clock)
    void acquire(other, storeOf({ burst: 1, paceMs: 10, tripMs: 1000 }))
    const impatient = acquire(other, store, Date.now() + 100)
    await vi.advanceTimersByTimeAsync(100)
    expect(await impatient).toBe(false)
  })
})
