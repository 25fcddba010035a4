/**
 * The program of everything-parity.test.ts on a Redis Cluster, where the slot of its keys moves to another node beside every fourth step: no call is lost, and
 * none runs twice.
 */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { slotOf } from '../../src/node/rest-bridge/key-slot.ts'
import { connectRedis } from '../../src/node/rest-bridge/redis-connection.ts'
import { describeOnCluster, type TestCluster, type TestNode } from '../support/cluster.ts'
import { RedisEngine } from '../support/engines.ts'
import { OF_EVERYTHING, runEverything } from '../support/everything.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { FC_PATH, SEED } from '../support/random.ts'

const CASES = Number(process.env.PARITY_REQUESTS ?? 1200) / 20

describeOnCluster('leases, overrides, reservations and pauses together', start => {
  let cluster: TestCluster
  beforeAll(async () => {
    cluster = await start()
  })
  // Its slots are not where another suite expects them.
  afterAll(() => cluster?.end())

  /** Moves a slot with its keys to the next node, as redis-cli does. */
  async function move(slot: number): Promise<void> {
    const from = await ownerOf(slot)
    const to = cluster.nodes[(cluster.nodes.indexOf(from) + 1) % cluster.nodes.length]!
    await to.ask('CLUSTER', 'SETSLOT', String(slot), 'IMPORTING', await from.id())
    await from.ask('CLUSTER', 'SETSLOT', String(slot), 'MIGRATING', await to.id())
    for (;;) {
      const keys = ((await from.ask('CLUSTER', 'GETKEYSINSLOT', String(slot), '1')) as Buffer[]).map(String)
      if (keys.length === 0) break
      await from.ask('MIGRATE', '127.0.0.1', String(to.port), '', '0', '5000', 'KEYS', ...keys)
    }
    for (const node of [to, ...cluster.nodes.filter(node => node !== to)])
      await node.ask('CLUSTER', 'SETSLOT', String(slot), 'NODE', await to.id())
  }

  /** The node that considers itself the owner. */
  async function ownerOf(slot: number): Promise<TestNode> {
    for (const node of cluster.nodes) {
      const ranges = (await node.ask('CLUSTER', 'SLOTS')) as [number, number, [Buffer, number]][]
      const range = ranges.find(([from, to]) => from <= slot && slot <= to)
      if (range?.[2][1] === node.port) return node
    }
    throw new Error(`No node has slot ${slot}.`)
  }

  it(`are as the model predicts while slots move (SEED=${SEED})`, {
    timeout: 60_000 + 2000 * CASES,
  }, async () => {
    const redis = await connectRedis(cluster.url, PATIENT_MS)
    let moves = 0
    try {
      const occurred = await runEverything(
        CASES,
        [new RedisEngine(redis, undefined, 'redis-server')],
        async key => {
          moves += 1
          await move(slotOf(key))
        },
      )
      if (FC_PATH) return
      expect(moves).toBeGreaterThan(CASES)
      for (const what of OF_EVERYTHING) expect(occurred.get(what) ?? 0, what).toBeGreaterThan(CASES / 20)
    } finally {
      redis.close()
    }
  })
})
