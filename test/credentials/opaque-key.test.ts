/** Opaque keys (made elsewhere and imported), and how an isolate remembers their consumers. */
import { afterEach, expect, it, vi } from 'vitest'
import type { Credential } from '../../src/credentials/credential.ts'
import { createOpaqueKeyFinder, isOpaqueKey, KeyMemory } from '../../src/credentials/opaque-key.ts'
import type { Verdict } from '../../src/script/evaluation.ts'

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

it('the consumer and the mode of a key are remembered for a while, or until the key is forgotten', () => {
  vi.useFakeTimers({ now: 0 })
  const memory = new KeyMemory({ rememberForMs: 1000 })
  memory.remember('a', { consumer: 'acme', mode: 'test' })
  memory.remember('b', { consumer: 'bcme', mode: 'live' })
  memory.forget('b')
  expect([memory.ownerOf('a'), memory.ownerOf('b')]).toEqual([{ consumer: 'acme', mode: 'test' }, undefined])
  vi.setSystemTime(1001)
  expect(memory.ownerOf('a')).toBeUndefined()
})

it('a refusal after too many guesses does not show the mode of a key, so the key is not remembered', () => {
  const finder = createOpaqueKeyFinder({ rememberForMs: 1000 }, 'sk', () => undefined)
  const find = () => finder.find({ bearer: 'an-old-partner-key-4711' }, new Headers()) as Credential
  const refused = (on: 'request' | 'auth-failure') => {
    const verdict = { rule: { on } } as Verdict
    finder.remember(find(), { status: 'refused', plan: '', consumer: 'acme', at: 0, verdicts: [verdict] })
    return find().subject.kind
  }
  expect([refused('auth-failure'), refused('request')]).toEqual(['pointer', 'key'])
})

it('only a bounded number of keys is remembered: the most recently used ones', () => {
  const memory = new KeyMemory({ rememberForMs: 60_000 })
  for (let i = 0; i < 50_000; i++) {
    memory.remember(`${i}`, { consumer: 'acme', mode: 'live' })
    memory.ownerOf('0')
  }
  const known = Array.from({ length: 50_000 }, (_, i) => memory.ownerOf(`${i}`)).filter(Boolean)
  expect(known.length).toBeLessThanOrEqual(20_000)
  expect(memory.ownerOf('49999')?.consumer).toBe('acme')
})
