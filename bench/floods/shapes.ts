/** The floods that are measured. */
import { LIMITS } from './config.ts'

/** Who floods. */
export interface Shape {
  what: string
  path: '/flooded' | '/anonymous'
  /** How many callers, each with a key of its own unless it guesses or is anonymous. */
  callers: number
  sends: 'own keys' | 'no key' | 'api-key' | 'opaque-key'
  /** Each request comes from another address, not only each caller. */
  hasManyAddresses?: true
  /** What the isolate and the store know before the flood. */
  before?: 'seen' | 'spent'
  /** Requests of each caller that may reach the origin. */
  limit: number
}

const ONE_KEY = { path: '/flooded', callers: 1, sends: 'own keys' } as const

export interface Burst extends Shape {
  kind: 'burst'
  /** Absent: each request has one of its own. More requests than these are pipelined. */
  mostConnections?: number
}

export interface Stream extends Shape {
  kind: 'stream'
}

/**
 * Where every request is admitted: workerd takes two file descriptors for each connection, from the client, to the origin and to the
 * store, and ends when it has none left. 20,000 did not suffice for 5,000 requests on 2,500 connections: for most of the flood, a
 * connection to the origin is not used again.
 */
const MOST_ADMITTED = 1000

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
    what: 'one address with unknown API keys, each request with another',
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 1, sends: 'opaque-key', limit: 0 },
    what: 'one address with unknown opaque keys, each request with another',
  },
  {
    ...{ kind: 'burst', path: '/anonymous', callers: 1, sends: 'no key', limit: LIMITS.address },
    what: 'one anonymous caller',
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 100, sends: 'own keys', hasManyAddresses: true },
    ...{ before: 'seen', limit: LIMITS.consumer, mostConnections: MOST_ADMITTED },
    what: '100 consumers within their limits, seen before, each request from another address',
  },
  {
    ...{ kind: 'burst', path: '/flooded', callers: 100, sends: 'own keys', hasManyAddresses: true },
    ...{ limit: LIMITS.consumer, mostConnections: MOST_ADMITTED },
    what: '100 consumers within their limits, not seen before, each request from another address',
  },
]

export const STREAMS: readonly Stream[] = [
  ...[1, 10, 1000].map(
    (callers): Stream => ({
      ...{ kind: 'stream', path: '/flooded', callers, sends: 'own keys', before: 'spent', limit: 0 },
      what: `${callers === 1 ? 'one consumer' : `${callers.toLocaleString('en')} consumers`} over the limit`,
    }),
  ),
  {
    ...{ kind: 'stream', path: '/flooded', callers: 1, sends: 'api-key', limit: 0 },
    what: 'one address with unknown API keys, each request with another',
  },
]
