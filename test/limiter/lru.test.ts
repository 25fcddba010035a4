/** A memory whose entries are bounded in number and age. */
import { afterEach, expect, it, vi } from 'vitest'
import { Lru } from '../../src/lru.ts'
import { randomFrom, SEED } from '../support/random.ts'

afterEach(() => void vi.useRealTimers())

it('keeps the entries that were used last, and at most twice the size', () => {
  const random = randomFrom(SEED)
  const size = 20
  const kept = new Set<string>()
  const memory = new Lru<string>({ size, onEviction: key => expect(kept.delete(key)).toBe(true) })
  /** In the order of their last use. */
  let used: string[] = []
  const use = (key: string) => {
    used = [...used.filter(each => each !== key), key]
  }
  for (let i = 0; i < 3000; i++) {
    const key = `${random.int(0, 99)}`
    const last = used.slice(1 - size)
    if (random.chance(0.5)) {
      memory.set(key, `${i}`)
      kept.add(key)
      use(key)
    } else if (random.chance(0.1)) {
      memory.delete(key)
      kept.delete(key)
      used = used.filter(each => each !== key)
    } else if (memory.get(key) !== undefined) use(key)
    const expected = [...last.filter(each => used.includes(each)), ...kept]
    const missing = expected.filter(each => memory.peek(each) === undefined)
    expect(missing, `seed ${SEED}`).toEqual([])
    expect(kept.size, `seed ${SEED}`).toBeLessThan(2 * size)
  }
})

it('returns the value that was set last, until it is deleted', () => {
  const memory = new Lru<number>({ size: 2 })
  memory.set('a', 1)
  memory.set('b', 2)
  memory.set('a', 3)
  expect([memory.get('a'), memory.peek('a'), memory.get('b'), memory.get('c')]).toEqual([3, 3, 2, undefined])
  memory.delete('a')
  expect([memory.get('a'), memory.get('b')]).toEqual([undefined, 2])
})

it('reports each evicted key once, and no key that is still there', () => {
  const gone: string[] = []
  const memory = new Lru<number>({ size: 2, onEviction: key => gone.push(key) })
  for (const key of ['a', 'b', 'c']) memory.set(key, 1)
  memory.get('a')
  expect(gone).toEqual(['b'])
  memory.set('c', 2)
  memory.set('d', 1)
  expect(gone).toEqual(['b', 'a'])
})

it('peek does not count as use', () => {
  const memory = new Lru<number>({ size: 2 })
  for (const key of ['a', 'b', 'c']) memory.set(key, 1)
  memory.peek('a')
  memory.set('d', 1)
  expect([memory.peek('a'), memory.peek('d')]).toEqual([undefined, 1])
})

it('a value expires at its maximum age, however often it is read; setting it again renews it', () => {
  vi.useFakeTimers({ now: 0 })
  const memory = new Lru<number>({ size: 2, maxAgeMs: 1000 })
  memory.set('a', 1)
  memory.set('b', 1)
  vi.setSystemTime(999)
  memory.set('b', 2)
  expect([memory.get('a'), memory.get('b')]).toEqual([1, 2])
  vi.setSystemTime(1000)
  expect([memory.get('a'), memory.peek('a'), memory.get('b')]).toEqual([undefined, undefined, 2])
})
