/** Keys that were not made here, and what an isolate remembers of them. */
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

it('whose a key is is remembered for a while, or until it turns out to be wrong', () => {
  vi.useFakeTimers({ now: 0 })
  const memory = new KeyMemory({ rememberForMs: 1000 })
  memory.remember('a', 'acme')
  memory.remember('b', 'bcme')
  memory.forget('b')
  expect([memory.consumerOf('a'), memory.consumerOf('b')]).toEqual(['acme', undefined])
  vi.setSystemTime(1001)
  expect(memory.consumerOf('a')).toBeUndefined()
})

it('no more than so many are remembered, those that were seen last', () => {
  const memory = new KeyMemory({ rememberForMs: 60_000 })
  for (let i = 0; i < 50_000; i++) {
    memory.remember(`${i}`, 'acme')
    memory.consumerOf('0')
  }
  const known = Array.from({ length: 50_000 }, (_, i) => memory.consumerOf(`${i}`)).filter(Boolean)
  expect(known.length).toBeLessThanOrEqual(20_000)
  expect(memory.consumerOf('49999')).toBe('acme')
})
