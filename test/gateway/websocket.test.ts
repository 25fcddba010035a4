/** The ends of a relayed WebSocket that need a peer which does not answer. test/e2e/ending-cases.ts has the others, in workerd. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { Ending } from '../../src/limiter/engine-shape.ts'
import { relayWebSocket } from '../../src/set-ups/http/websocket.ts'

/** Refuses the codes that workerd refuses. Never answers a close frame by itself. */
class SilentSocket extends EventTarget {
  readonly closes: unknown[][] = []
  binaryType = ''
  accept(): void {}
  send(): void {}
  close(...code: [code?: number, reason?: string]): void {
    const [sent = 1000] = code
    const isReserved = [1004, 1005, 1006, 1015].includes(sent)
    if (sent < 1000 || sent >= 5000 || isReserved)
      throw new TypeError(`Invalid WebSocket close code: ${sent}.`)
    if (this.closes.length > 0) throw new TypeError('The WebSocket is closed.')
    this.closes.push(code)
  }
  receiveClose(code: number): void {
    this.dispatchEvent(Object.assign(new Event('close'), { code, reason: '' }))
  }
}

let client: SilentSocket
let origin: SilentSocket
let endings: Ending[]
let timers: { ms: number; run: () => void; isOff: boolean }[]

const timer = (ms: number, run: () => void) => {
  const started = { ms, run, isOff: false }
  timers.push(started)
  return () => {
    started.isOff = true
  }
}

/** Node cannot construct a reply with status 101. */
class Handshake {
  readonly init: unknown
  constructor(_: null, init: unknown) {
    this.init = init
  }
}

beforeEach(() => {
  client = new SilentSocket()
  origin = new SilentSocket()
  endings = []
  timers = []
  vi.stubGlobal(
    'WebSocketPair',
    class {
      readonly 0 = {}
      readonly 1 = client
    },
  )
  vi.stubGlobal('Response', Handshake)
  const handshake = { status: 101, statusText: '', headers: {} } as Response
  relayWebSocket(
    handshake,
    origin as never,
    () => {},
    ending => endings.push(ending),
    timer,
  )
})
afterEach(() => vi.unstubAllGlobals())

it('ends when both sides are closed', () => {
  client.receiveClose(4001)
  expect([origin.closes, client.closes, endings]).toEqual([[[4001, '']], [], []])
  origin.receiveClose(4001)
  expect([origin.closes, client.closes, endings]).toEqual([[[4001, '']], [[4001, '']], ['complete']])
  expect(timers.map(({ isOff }) => isOff)).toEqual([true])
})

it.each([
  ['client', 'complete'],
  ['origin', 'complete'],
] as const)(
  'ends with both sides closed if the other side never answers the close frame of the %s',
  (side, ending) => {
    const [from, to] = side === 'client' ? [client, origin] : [origin, client]
    from.receiveClose(1000)
    expect(endings).toEqual([])
    expect(timers.map(({ ms }) => ms)).toEqual([10_000])
    timers[0]!.run()
    expect([to.closes, from.closes, endings]).toEqual([[[1000, '']], [[1011, undefined]], [ending]])
  },
)

it.each([0, 999, 1004, 1015, 5000, 65_535])('closes the other side with 1002 for the code %d', code => {
  client.receiveClose(code)
  expect(origin.closes).toEqual([[1002]])
  origin.receiveClose(1002)
  expect([client.closes, endings]).toEqual([[[1002, '']], ['complete']])
})

it.each([
  ['client', 'cancelled', 1001],
  ['origin', 'failed', 1011],
] as const)('closes the other side if the %s vanishes, and is %s', (side, ending, code) => {
  const [from, to] = side === 'client' ? [client, origin] : [origin, client]
  from.dispatchEvent(new Event('error'))
  from.receiveClose(1006)
  expect(to.closes).toEqual([[code, undefined]])
  to.receiveClose(code)
  expect(endings).toEqual([ending])
})
