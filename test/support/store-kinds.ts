/** The implementations of the store port. Suites of the port run on each of them. */
import { connectRedisStore } from '../../src/node/redis-store/redis-store.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { upstashConnection } from '../../src/ops/upstash-connection.ts'
import type { AdminConnection } from '../../src/store/admin-connection.ts'
import type { DeadlineClock } from '../../src/store/deadline.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { PATIENT_MS } from './patience.ts'

export interface OpenStore {
  store: Store
  admin: AdminConnection
  close(): Promise<void>
}

export interface OpenOptions {
  /** Default: as long as tests wait. */
  deadlineMs?: number
  /** For the connection to Redis. Default: as long as tests wait. */
  connectMs?: number
  environment?: string
  cluster?: boolean
  clock?: DeadlineClock
}

export interface StoreKind {
  name: string
  isDirect: boolean
  /** Opens a store on a Redis that answers. */
  open(redisUrl: string, options?: OpenOptions): Promise<OpenStore>
}

const TOKEN = 'a token for tests'

export const STORE_KINDS: readonly StoreKind[] = [
  {
    name: 'over HTTP and the REST bridge',
    isDirect: false,
    async open(redisUrl, { connectMs = PATIENT_MS, deadlineMs = PATIENT_MS, clock, ...options } = {}) {
      const bridge = await startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs: connectMs })
      const at = { url: bridge.url, token: TOKEN, keyLocking: true, ...options }
      return {
        store: upstashStore({ ...at, deadlineMs }, clock),
        admin: upstashConnection(at),
        close: () => bridge.close(),
      }
    },
  },
  {
    name: 'over a direct connection',
    isDirect: true,
    open: (url, { deadlineMs = PATIENT_MS, connectMs = PATIENT_MS, cluster: _, ...options } = {}) =>
      connectRedisStore({ url, deadlineMs, connectMs, ...options }),
  },
]
