/** Processes that share what the store has answered about callers. */
import { describe, expect, it } from 'vitest'
import {
  type CallerExchange,
  CallerMemory,
  type CallerNews,
  isAdmitted,
} from '../../src/credentials/caller-memory.ts'

const SEEN_FOR_MS = 600_000
const CREDENTIAL = {
  ...{ digest: 'd', consumer: 'acme', mode: 'test' as const },
  subject: { kind: 'key', consumerKey: 'c', credentialKey: 'k' },
} as const
const AT = 1e15
const admitted = { status: 'admitted', plan: 'pro', at: AT } as const
const blocked = { status: 'blocked', plan: '', at: AT, blockedUntil: AT + 60e6 } as const
const unknown = { status: 'unknown-credential', plan: '', at: AT } as const

/** Memories of processes, as the primary process connects them. Messages are JSON. */
function processes(count: number) {
  let now = 0
  const sent: string[] = []
  const listeners: ((news: CallerNews) => void)[] = []
  const memories = Array.from({ length: count }, (_, own) => {
    const exchange: CallerExchange = {
      publish(news) {
        const text = JSON.stringify(news)
        sent.push(text)
        for (const [i, listen] of listeners.entries()) if (i !== own) listen(JSON.parse(text))
      },
      subscribe: learn => void listeners.push(learn),
    }
    const memory = new CallerMemory({ seenForMs: SEEN_FOR_MS, signedForMs: undefined } as never, () => now)
    memory.shareWith(exchange)
    return memory
  })
  const pass = (ms: number) => {
    now += ms
  }
  return { memories, sent, pass }
}

describe('what the store answers to one process', () => {
  it('is known to the others: an admission, a block, the end of the block, and a revocation', () => {
    const { memories } = processes(3)
    const [first, second, third] = memories as [CallerMemory, CallerMemory, CallerMemory]
    first.remember(CREDENTIAL, admitted)
    for (const each of [second, third])
      expect(each.recall(CREDENTIAL)).toMatchObject({ plan: 'pro', consumer: 'acme', mode: 'test' })
    second.remember(CREDENTIAL, blocked)
    expect(first.recall(CREDENTIAL)).toMatchObject({ isBlocked: true })
    third.remember(CREDENTIAL, admitted)
    expect(first.recall(CREDENTIAL)?.isBlocked).toBeUndefined()
    third.remember(CREDENTIAL, unknown)
    expect(first.recall(CREDENTIAL)).toEqual({ isUnknown: true })
    expect(second.hasAdmitted(CREDENTIAL)).toBe(false)
  })

  it('is sent once, and again after half of the time for which it is remembered', () => {
    const { memories, sent, pass } = processes(2)
    const [first, second] = memories as [CallerMemory, CallerMemory]
    for (let i = 0; i < 100; i++) first.remember(CREDENTIAL, admitted)
    expect(sent).toHaveLength(1)
    second.remember(CREDENTIAL, admitted)
    expect(sent).toHaveLength(1)
    pass(SEEN_FOR_MS / 2)
    for (let i = 0; i < 100; i++) first.remember(CREDENTIAL, admitted)
    expect(sent).toHaveLength(2)
    pass(SEEN_FOR_MS - 1)
    expect(second.hasAdmitted(CREDENTIAL)).toBe(true)
  })

  it('is overtaken by no earlier answer, such as an admission before a block or a revocation', () => {
    const { memories } = processes(2)
    const [first, second] = memories as [CallerMemory, CallerMemory]
    first.remember(CREDENTIAL, admitted)
    for (const refused of [blocked, unknown]) {
      second.remember(CREDENTIAL, { ...refused, at: AT + 2 })
      first.remember(CREDENTIAL, { ...admitted, at: AT + 1 })
      for (const each of memories) expect(isAdmitted(each.recall(CREDENTIAL))).toBe(false)
      first.remember(CREDENTIAL, { ...admitted, at: AT + 3 })
      for (const each of memories) expect(isAdmitted(each.recall(CREDENTIAL))).toBe(true)
    }
  })

  it('is sent again if a block lasts longer, or begins again after it has lapsed', () => {
    const { memories, sent, pass } = processes(2)
    const [first, second] = memories as [CallerMemory, CallerMemory]
    first.remember(CREDENTIAL, admitted)
    for (const until of [60e6, 120e6, 120.5e6])
      first.remember(CREDENTIAL, { ...blocked, blockedUntil: AT + until })
    expect(sent).toHaveLength(3)
    pass(90_000)
    expect(second.recall(CREDENTIAL)).toMatchObject({ isBlocked: true })
    pass(60_000)
    expect(second.recall(CREDENTIAL)?.isBlocked).toBeUndefined()
    const at = AT + 150e6
    for (let i = 0; i < 100; i++) first.remember(CREDENTIAL, { status: 'blocked', plan: '', at })
    expect(sent).toHaveLength(4)
    expect(second.recall(CREDENTIAL)).toMatchObject({ isBlocked: true })
  })

  it('is not sent with each request of a caller with tokens of two plans', () => {
    const { memories, sent } = processes(2)
    const token = { ...CREDENTIAL, subject: { kind: 'token', consumerKey: 'c', plan: 'pro' } } as const
    for (let i = 0; i < 100; i++)
      memories[0]!.remember(token, { ...admitted, plan: i % 2 > 0 ? 'pro' : 'free' })
    expect(sent).toHaveLength(1)
  })

  it('reaches the others if it is a revocation, and the process has not admitted the key for a long time', () => {
    const { memories, pass } = processes(2)
    const [first, second] = memories as [CallerMemory, CallerMemory]
    first.remember(CREDENTIAL, admitted)
    pass(SEEN_FOR_MS * 0.4)
    second.remember(CREDENTIAL, admitted)
    pass(SEEN_FOR_MS * 0.7)
    expect([first.hasAdmitted(CREDENTIAL), second.hasAdmitted(CREDENTIAL)]).toEqual([false, true])
    first.remember(CREDENTIAL, unknown)
    expect(second.hasAdmitted(CREDENTIAL)).toBe(false)
  })

  it('is not sent for made-up keys, and for refusals by limits', () => {
    const { memories, sent } = processes(2)
    memories[0]!.remember(CREDENTIAL, unknown)
    memories[0]!.remember(CREDENTIAL, { status: 'refused', plan: 'pro', at: AT } as never)
    expect(sent).toEqual([])
    expect(memories[1]!.recall(CREDENTIAL)).toBeUndefined()
  })
})
