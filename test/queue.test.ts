/** The queue, compared with a Set. */
import { expect, it } from 'vitest'
import { type Place, Queue } from '../src/queue.ts'
import { randomFrom, SEED } from './support/random.ts'

interface Item {
  place: Place<Item> | undefined
}

const newQueue = () => new Queue<'place', Item>('place')
const newItems = (count: number) => Array.from({ length: count }, (): Item => ({ place: undefined }))

it(`has the order of a Set, whatever enters and leaves (SEED=${SEED})`, () => {
  const random = randomFrom(SEED)
  const queue = newQueue()
  const set = new Set<Item>()
  const items = newItems(8)
  for (let i = 0; i < 2000; i++) {
    const item = random.pick(items)
    if (random.chance(0.5)) {
      queue.add(item)
      set.add(item)
    } else expect(queue.delete(item)).toBe(set.delete(item))
    const found = [...queue].map(item => items.indexOf(item))
    expect(found).toEqual([...set].map(item => items.indexOf(item)))
    expect(queue.first).toBe([...set][0])
    expect(queue.size).toBe(set.size)
  }
})

it('goes on with the next item if the current one leaves, or moves to the end', () => {
  const queue = newQueue()
  const items = newItems(3)
  for (const item of items) queue.add(item)
  const seen: number[] = []
  for (const item of queue) {
    seen.push(items.indexOf(item))
    queue.delete(item)
    if (item === items[0]) queue.add(item)
    if (seen.length === 3) break
  }
  expect(seen).toEqual([0, 1, 2])
  expect([...queue]).toEqual([items[0]])
})
