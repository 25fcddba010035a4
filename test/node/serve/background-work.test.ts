import { expect, it } from 'vitest'
import { trackBackgroundWork } from '../../../src/node/serve/background-work.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

it('runs its timers when it is finished, and waits for the work that follows', async () => {
  const clock = new VirtualClock()
  const work = trackBackgroundWork((ms, run) => clock.after(ms, run))
  const done: string[] = []
  const later = (ms: number, what: string) =>
    new Promise<void>(resolve => {
      work.timer(ms, () => {
        done.push(what)
        resolve()
      })
    })
  work.waitUntil(later(10_000, 'statistics').then(() => later(250, 'units')))
  work.timer(10_000, () => done.push('cancelled'))()
  const startedAt = clock.nowMs
  const finished = work.finish(5000)
  expect(done).toEqual(['statistics'])
  await new Promise(resolve => setImmediate(resolve))
  await clock.run(startedAt + 100)
  expect([await finished, done]).toEqual([true, ['statistics', 'units']])
})

it('gives up work that does not end, and ignores work that fails', async () => {
  const clock = new VirtualClock()
  const work = trackBackgroundWork((ms, run) => clock.after(ms, run))
  work.waitUntil(Promise.reject(new Error('lost')))
  expect(await work.finish(5000)).toBe(true)
  work.waitUntil(new Promise(() => {}))
  const finished = work.finish(5000)
  await clock.run(clock.nowMs + 6000)
  expect(await finished).toBe(false)
})
