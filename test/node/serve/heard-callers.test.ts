/** What a worker that starts later learns about callers. */
import { describe, expect, it } from 'vitest'
import { CallerMemory, type CallerNews } from '../../../src/credentials/caller-memory.ts'
import { createHeardCallers } from '../../../src/node/serve/heard-callers.ts'

const SEEN_FOR_MS = 600_000
const AT = 1e15
const keyOf = (digest: string, consumer = 'acme', planInOutage?: string) => ({
  ...{ digest, consumer },
  subject: {
    kind: 'key',
    consumerKey: 'c',
    credentialKey: 'k',
    ...(planInOutage && { planInOutage }),
  } as const,
})
const admitted = { status: 'admitted', plan: 'pro', at: AT } as const
const blocked = { status: 'blocked', plan: '', at: AT, blockedUntil: AT + 60e6 } as const
const unknown = { status: 'unknown-credential', plan: '', at: AT } as const

function setUp(signedForMs?: number) {
  let now = 0
  const heard = createHeardCallers(() => now)
  const settings = { seenForMs: SEEN_FOR_MS, signedForMs } as never
  return {
    tell: (credential: CallerNews['credential'], answer: CallerNews['answer']) =>
      heard.add({ credential, answer }),
    pass(ms: number) {
      now += ms
    },
    /** A worker that starts now. Messages are JSON. */
    start() {
      const memory = new CallerMemory(settings, () => now)
      memory.shareWith({
        publish: () => {},
        subscribe: learn => JSON.parse(JSON.stringify(heard.all())).forEach(learn),
      })
      return memory
    },
  }
}

describe('a worker that starts later', () => {
  it('knows the admissions, revocations and blocks that the others have told', () => {
    const { tell, start } = setUp()
    for (const [digest, consumer] of [
      ['a', 'one'],
      ['b', 'two'],
      ['c', 'three'],
    ] as const)
      tell(keyOf(digest, consumer), admitted)
    tell(keyOf('b', 'two'), unknown)
    tell(keyOf('c', 'three'), blocked)
    const memory = start()
    expect(memory.recall(keyOf('a', 'one'))).toMatchObject({ plan: 'pro', consumer: 'one' })
    expect(memory.recall(keyOf('b', 'two'))?.plan).toBeUndefined()
    expect(memory.recall(keyOf('c', 'three'))).toMatchObject({ isBlocked: true })
    tell(keyOf('c', 'three'), admitted)
    expect(start().recall(keyOf('c', 'three'))?.isBlocked).toBeUndefined()
  })

  it('knows for no longer than the others, and when a block ends', () => {
    const { tell, pass, start } = setUp()
    tell(keyOf('a', 'one'), admitted)
    tell(keyOf('b', 'two'), blocked)
    pass(59_000)
    const memory = start()
    expect(memory.recall(keyOf('b', 'two'))).toMatchObject({ isBlocked: true })
    pass(1000)
    expect(memory.recall(keyOf('b', 'two'))?.isBlocked).toBeUndefined()
    pass(SEEN_FOR_MS - 60_001)
    expect([memory.hasAdmitted(keyOf('a', 'one')), start().hasAdmitted(keyOf('a', 'one'))]).toEqual([
      true,
      true,
    ])
    pass(1)
    expect([memory.hasAdmitted(keyOf('a', 'one')), start().hasAdmitted(keyOf('a', 'one'))]).toEqual([
      false,
      false,
    ])
  })

  it('refuses a signed key that was revoked, although others were admitted since', () => {
    const { tell, start } = setUp(86_400_000)
    // The others had admitted it, so they have not checked its signature.
    tell(keyOf('revoked'), unknown)
    for (let i = 0; i < 20_000; i++) tell(keyOf(`key ${i}`, `consumer ${i}`), admitted)
    expect(start().recall(keyOf('revoked', 'acme', 'pro'))).toMatchObject({ isUnknown: true })
  })

  it('is told a bounded number', () => {
    const heard = createHeardCallers()
    for (let i = 0; i < 25_000; i++) heard.add({ credential: keyOf(`key ${i}`), answer: admitted })
    expect(heard.all()).toHaveLength(10_000)
  })
})
