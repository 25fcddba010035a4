/** The ways to a store. Suites of the store port run on each of them. */
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { Cluster, Redis } from 'ioredis'
import { createClient, createCluster } from 'redis'
import { targetOfClient } from '../../src/node/redis-store/client-target.ts'
import { connectRedisStore } from '../../src/node/redis-store/redis-store.ts'
import { parseRedisUrl, type RedisTarget } from '../../src/node/redis-store/redis-url.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { upstashConnection } from '../../src/ops/upstash-connection.ts'
import type { AdminConnection } from '../../src/store/admin-connection.ts'
import type { DeadlineClock } from '../../src/store/deadline.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { listen } from './listen.ts'
import { PATIENT_MS } from './patience.ts'
import { commandOf, endOfCommand } from './resp.ts'

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
  /** Over HTTP: the URL at which the store reaches the bridge. Default: its own. */
  reach?: (bridgeUrl: string) => Promise<string>
}

export interface StoreKind {
  name: string
  isDirect: boolean
  /** Whether the store can be a Redis Cluster. */
  hasCluster: boolean
  /** Opens a store on a Redis that answers. */
  open(redisUrl: string, options?: OpenOptions): Promise<OpenStore>
}

const TOKEN = 'a token for tests'

export const STORE_KINDS: readonly StoreKind[] = [
  {
    name: 'over HTTP and the REST bridge',
    isDirect: false,
    hasCluster: true,
    async open(redisUrl, options = {}) {
      const {
        connectMs = PATIENT_MS,
        deadlineMs = PATIENT_MS,
        clock,
        reach = async url => url,
        ...at
      } = options
      const bridge = await startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs: connectMs })
      const rest = { url: await reach(bridge.url), token: TOKEN, keyLocking: true, ...at }
      return {
        store: upstashStore({ ...rest, deadlineMs }, clock),
        admin: upstashConnection(rest),
        close: () => bridge.close(),
      }
    },
  },
  direct('over a direct connection', url => url),
  direct('at the address of a client of ioredis', (url, { cluster }) => {
    const lazyConnect = true
    return targetOfClient(cluster ? new Cluster([url], { lazyConnect }) : new Redis(url, { lazyConnect }))
  }),
  direct('at the address of a client of node-redis', (url, { cluster }) => {
    const { protocol, pathname: path } = new URL(url)
    const options = protocol === 'unix:' ? { socket: { path, tls: false as const } } : { url }
    return targetOfClient(cluster ? createCluster({ rootNodes: [{ url }] }) : createClient(options))
  }),
  {
    ...direct('behind a Sentinel', url => url),
    hasCluster: false,
    async open(url, options = {}) {
      const sentinel = await startFakeSentinel()
      const target = parseRedisUrl(`redis+sentinel://127.0.0.1:${sentinel.port}/mymaster`)
      const opened = await openDirect({ ...target, urlOf: () => url } as RedisTarget, options)
      return {
        ...opened,
        async close() {
          await opened.close()
          await sentinel.close()
        },
      }
    },
  },
]

function direct(
  name: string,
  targetOf: (url: string, options: OpenOptions) => string | RedisTarget,
): StoreKind {
  return {
    ...{ name, isDirect: true, hasCluster: true },
    open: (url, options = {}) => openDirect(targetOf(url, options), options),
  }
}

const openDirect = (url: string | RedisTarget, options: OpenOptions) => {
  const { deadlineMs = PATIENT_MS, connectMs = PATIENT_MS, cluster: _, reach: _reach, ...others } = options
  return connectRedisStore({ url, deadlineMs, connectMs, ...others })
}

/** Answers as a Sentinel that knows a master. The store takes its address from elsewhere. */
async function startFakeSentinel(): Promise<{ port: number; close(): Promise<void> }> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket.on('error', () => {}))
    let coming: Buffer = Buffer.alloc(0)
    socket.on('data', bytes => {
      coming = Buffer.concat([coming, bytes])
      for (let end = endOfCommand(coming); end > 0; end = endOfCommand(coming)) {
        const isQuestion = coming.subarray(0, end).includes('GET-MASTER-ADDR-BY-NAME')
        socket.write(isQuestion ? commandOf('master', '1') : '+OK\r\n')
        coming = coming.subarray(end)
      }
    })
  })
  await listen(server, 0)
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise(resolve => server.close(resolve))
    },
  }
}
