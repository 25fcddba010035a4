/** The floods that are measured. */
import { LIMITS } from './config.ts'
import type { GuessedKey } from './requests.ts'

/** The callers of a flood. */
export interface Shape {
  what: string
  path: '/flooded' | '/anonymous' | '/several' | '/several-anonymous'
  /** Number of callers. Each has its side key, unless it guesses keys or is anonymous. */
  callers: number
  /** Or guessed keys of this kind. */
  sends: 'own keys' | 'no key' | GuessedKey
  /** Every request comes from a different address. */
  hasManyAddresses?: true
  /** Before the flood, the isolate has verified the keys (`seen`), or the limits are spent as well (`spent`). */
  before?: 'seen' | 'spent'
  /** Requests of each caller that may reach the origin. */
  limit: number
}

const ONE_KEY = { path: '/flooded', callers: 1, sends: 'own keys' } as const

export interface Burst extends Shape {
  kind: 'burst'
  /** Absent: each request has its own connection. Further requests are pipelined. */
  mostConnections?: number
}

export interface Stream extends Shape {
  kind: 'stream'
  /** So many isolates share the flood, each in a workerd of its own, without Miniflare (bare-workerd.ts). Absent: one, in Miniflare. */
  bareIsolates?: number
}

/** A stream to the gateway in Node, without sockets between callers and gateway (node-gateway.ts). */
export interface NodeStream extends Shape {
  kind: 'node'
}

export type Flood = Burst | Stream | NodeStream

/**
 * The most connections of floods in which every request is admitted. workerd needs two file descriptors for each connection from the
 * client, to the origin and to the store, and ends when it has none left. 20,000 did not suffice for 5,000 requests on 2,500
 * connections, because most connections to the origin are not reused during the flood.
 */
const MAX_ADMITTED = 1000

export const BURSTS: readonly Burst[] = [
  {
    ...{ ...ONE_KEY, kind: 'burst', before: 'seen', limit: LIMITS.consumer },
    what: 'one caller with a good key that the isolate has seen',
  },
  {
    ...{ ...ONE_KEY, kind: 'burst', limit: LIMITS.consumer },
    what: 'one caller with a good key that the isolate has not seen',
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 1, sends: 'api-key', limit: 0 },
    what: 'one address with unknown API keys, each request with a different key',
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 1, sends: 'opaque-key', limit: 0 },
    what: 'one address with unknown opaque keys, each request with a different key',
  },
  {
    ...{ kind: 'burst', path: '/anonymous', callers: 1, sends: 'no key', limit: LIMITS.address },
    what: 'one anonymous caller',
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 100, sends: 'own keys', hasManyAddresses: true },
    ...{ before: 'seen', limit: LIMITS.consumer, mostConnections: MAX_ADMITTED },
    what: '100 consumers within their limits, seen before, each request from another address',
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 100, sends: 'own keys', hasManyAddresses: true },
    ...{ limit: LIMITS.consumer, mostConnections: MAX_ADMITTED },
    what: '100 consumers within their limits, not seen before, each request from another address',
  },
  {
    ...{ kind: 'burst', path: '/several', callers: 10, sends: 'own keys' },
    ...{ before: 'seen', limit: LIMITS.each.consumer },
    what: `10 consumers far above their limit of ${LIMITS.each.consumer}, seen before`,
  },
  {
    ...{ kind: 'burst', path: '/several', callers: 10, sends: 'own keys', limit: LIMITS.each.consumer },
    what: `10 consumers far above their limit of ${LIMITS.each.consumer}, not seen before`,
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 20, sends: 'api-key', limit: 0 },
    what: '20 addresses with unknown API keys, each request with a different key',
  },
  {
    ...{
      kind: 'burst',
      path: '/several-anonymous',
      callers: 20,
      sends: 'no key',
      limit: LIMITS.each.address,
    },
    what: `20 anonymous addresses above their limit of ${LIMITS.each.address}`,
  },
]

const UNKNOWN_KEYS: Shape = {
  ...{ path: '/flooded', callers: 1, sends: 'api-key', limit: 0 },
  what: 'one address with unknown API keys, each request with a different key',
}

const WRONG_SIGNATURES: Shape = {
  ...{ path: '/flooded', callers: 1, sends: 'signed-key', limit: 0 },
  what: 'one address with made-up signed keys, each request with a different key',
}

export const STREAMS: readonly Stream[] = [
  ...[1, 10, 1000].map((callers): Stream => ({ ...overTheLimit(callers), kind: 'stream' })),
  { ...UNKNOWN_KEYS, kind: 'stream' },
  { ...WRONG_SIGNATURES, kind: 'stream' },
  ...[1, 2].map(
    (bareIsolates): Stream => ({
      ...{ ...WRONG_SIGNATURES, kind: 'stream', bareIsolates },
      what: `${WRONG_SIGNATURES.what}, to ${bareIsolates === 1 ? 'one isolate' : `${bareIsolates} isolates`} in workerd alone`,
    }),
  ),
]

export const NODE_STREAMS: readonly NodeStream[] = [
  ...[1, 10].map((callers): NodeStream => ({ ...overTheLimit(callers), kind: 'node' })),
  { ...UNKNOWN_KEYS, kind: 'node' },
  { ...WRONG_SIGNATURES, kind: 'node' },
  {
    ...{ kind: 'node', path: '/anonymous', callers: 1, sends: 'no key', limit: LIMITS.address },
    what: 'one anonymous caller',
  },
]

function overTheLimit(callers: number): Shape {
  return {
    ...{ path: '/flooded', callers, sends: 'own keys', before: 'spent', limit: 0 },
    what: `${callers === 1 ? 'one consumer' : `${callers.toLocaleString('en')} consumers`} over the limit`,
  }
}
