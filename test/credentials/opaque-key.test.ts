/** Opaque keys (made elsewhere and imported), and how an isolate remembers their consumers. */
import { afterEach, expect, it, vi } from 'vitest'
import { isOpaqueKey, KeyMemory } from '../../src/credentials/opaque-key.ts'

afterEach(() => void vi.useRealTimers())

it.each([
  ['0123456789abcdef', true],
  ['sk-proj-Abc_123.~!/+=$', true],
  ['x'.repeat(512), true],
  ['x'.repeat(513), false],
  ['too-short', false],
  ['with a space in it', false],
  ['schlüssel-aus-text', false],
  [`with-a-nul-${'\0'}-byte`, false],
  ['', false],
])('%j can be an opaque key: %s', (text, expected) => {
  expect(isOpaqueKey(text)).toBe(expected)
})

it('the consumer of a key is remembered for a while, or until it is forgotten', () => {
  vi.useFakeTimers({ now: 0 })
  const memory = new KeyMemory({ rememberForMs: 1000 })
  memory.remember('a', 'acme')
  memory.remember('b', 'bcme')
  memory.forget('b')
  expect([memory.consumerOf('a'), memory.consumerOf('b')]).toEqual(['acme', undefined])
  vi.setSystemTime(1001)
  expect(memory.consumerOf('a')).toBeUndefined()
})

it('only a bounded number of keys is remembered: the most recently used ones', () => {
  const memory = new KeyMemory({ rememberForMs: 60_000 })
  for (let i = 0; i < 50_000; i++) {
    memory.remember(`${i}`, 'acme')
    memory.consumerOf('0')
  }
  const known = Array.from({ length: 50_000 }, (_, i) => memory.consumerOf(`${i}`)).filter(Boolean)
  expect(known.length).toBeLessThanOrEqual(20_000)
  expect(memory.consumerOf('49999')).toBe('acme')
})
