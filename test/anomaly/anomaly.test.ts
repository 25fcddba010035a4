/**
 * Tests that the gateway follows its fallback for every fault in every call: no unexpected errors, no reply that takes too long, no
 * more requests above a limit than documented, and no units that stay held. docs/internals/reliability.md has the results.
 */
import { afterAll, beforeAll } from 'vitest'
import { armHttp, armShut } from '../support/fault-proxy.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { describeClients } from './clients.ts'
import { REDIS_FAULTS } from './faults-of-redis.ts'
import { STORE_FAULTS } from './faults-of-store.ts'
import { Lanes } from './lane.ts'
import { type AllLanes, describeMatrix, IS_WHOLE } from './matrix.ts'
import { MODES } from './modes.ts'
import { describeOrigins } from './origins.ts'
import { describeProcesses } from './processes.ts'
import type { Anomaly } from './scenario.ts'

let redis: TestRedis
let lanes: AllLanes
beforeAll(async () => {
  redis = await startRedis()
  // Each lane has its own Worker, whose start takes three seconds of CPU.
  const count = IS_WHOLE ? MODES.length : MODES.length - 1
  const [ordinary, leases] = await Promise.all([
    Lanes.start(count, redis.url),
    Lanes.start(IS_WHOLE ? count : 1, redis.url, 'leases'),
  ])
  lanes = { ordinary, leases }
})
afterAll(async () => {
  await lanes?.ordinary.close()
  await lanes?.leases.close()
  await redis?.close()
})

const overHttp = STORE_FAULTS.map(
  ({ fault, ...rest }): Anomaly => ({
    ...rest,
    arm: ({ store }, when) => (fault ? armHttp(store, fault, when) : armShut(store, when)),
  }),
)

describeMatrix('a store that', 'store', overHttp, () => lanes)
describeMatrix('a Redis behind the bridge that', 'redis', REDIS_FAULTS, () => lanes)
describeProcesses(() => lanes)
describeOrigins(() => lanes.ordinary)
describeClients(() => lanes.ordinary)
