/** What a process sends to the store about places in a queue that its calls have given up. */
import { expect, it } from 'vitest'
import { createGivenUpPlaces, type Place } from '../../src/set-ups/limits/given-up-places.ts'
import { configOf } from '../support/engines.ts'

const { limits } = configOf({
  rules: [],
  limits: { queue: [{ name: 'queue', by: ['account'], algorithm: 'leaky-bucket', limit: 10, period: '1s' }] },
})
const queue = { rule: limits.get('queue')![0]!, key: 'a' }

/** How long a unit occupies the outlet (µs). */
const UNIT = 100_000

/** Two units that were taken at 0, one behind the other. */
const [FIRST, LAST] = [0, 1].map((ahead): Place => ({ at: 0, wait: ahead * UNIT, units: 1 }))

/** A store whose answers the test gives. Times are µs. */
function createStore() {
  const sent: {
    place: Place
    lose: () => void
    answer: (at: number, emptyAt: number) => Promise<unknown>
  }[] = []
  const giveUp = createGivenUpPlaces(async (_, place) => {
    const answered = Promise.withResolvers<{ at: number; emptyAt: number } | undefined>()
    const answer = (at: number, emptyAt: number) => {
      answered.resolve({ at, emptyAt })
      return new Promise(resolve => setImmediate(resolve))
    }
    sent.push({ place, answer, lose: () => answered.resolve(undefined) })
    const seen = await answered.promise
    return seen && ({ at: seen.at, verdicts: [{ resetAfter: seen.emptyAt - seen.at }] } as never)
  })
  return { sent, giveUp: (place: Place) => void giveUp(queue, place) }
}

it('a place is sent again once those behind it are gone, even if the answers come in another order', async () => {
  const { sent, giveUp } = createStore()
  giveUp(FIRST!)
  giveUp(LAST!)
  expect(sent.map(({ place }) => place)).toEqual([FIRST, LAST])
  // The store has refused the first one, and then taken the last one back.
  await sent[1]!.answer(2000, UNIT)
  await sent[0]!.answer(1000, 2 * UNIT)
  expect(sent.slice(2).map(({ place }) => place)).toEqual([FIRST])
})

it('a place is sent once more at most if the clock of the store was set back', async () => {
  const { sent, giveUp } = createStore()
  giveUp(FIRST!)
  await sent[0]!.answer(50_000, 3 * UNIT)
  const third = { at: 0, wait: 2 * UNIT, units: 1 }
  giveUp(third)
  // Someone has joined behind it since.
  for (let i = 1; i < Math.min(sent.length, 10); i++) await sent[i]!.answer(1000 + i, 4 * UNIT)
  expect(sent.slice(1).map(({ place }) => place)).toEqual([third, third])
})

it('a place is not sent again if the answer got lost: someone may have it by now', async () => {
  const { sent, giveUp } = createStore()
  giveUp(FIRST!)
  sent[0]!.lose()
  giveUp(LAST!)
  await sent[1]!.answer(1000, UNIT)
  expect(sent).toHaveLength(2)
})
