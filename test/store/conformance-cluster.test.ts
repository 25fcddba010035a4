/** What every store does on a Redis Cluster. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SLOTS, slotOf } from '../../src/node/rest-bridge/key-slot.ts'
import { createScript } from '../../src/script/create-script.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { describeOnCluster, type TestCluster } from '../support/cluster.ts'
import { startTcpProxy, type TcpFault, targetOf } from '../support/fault-proxy.ts'
import { PATIENT } from '../support/patience.ts'
import { endOfCommand } from '../support/resp.ts'
import { type OpenStore, STORE_KINDS } from '../support/store-kinds.ts'

/** A key for each of the three nodes, which own a third of the slots each. */
const KEYS = [0, 1, 2].map(third => {
  const keys = Array.from({ length: 100 }, (_, i) => `sluice:{t${i}}:state`)
  return keys.find(key => Math.floor((slotOf(key) * 3) / SLOTS) === third)!
})
const [A, B, C] = KEYS as [string, string, string]

/** In a slot of the first node. */
const MOVING = Array.from({ length: 100 }, (_, i) => `sluice:{m${i}}:state`).find(
  key => slotOf(key) < SLOTS / 3,
)!

const call = (text: string, ...keys: string[]): ScriptCall => ({
  ...{ script: createScript(text), keys, args: [] },
})
const increment = (key: string) => call("return redis.call('INCR', KEYS[1])", key)

describeOnCluster('a store', start => {
  describe.each(STORE_KINDS.filter(({ hasCluster }) => hasCluster))('$name', ({ open, isDirect }) => {
    let cluster: TestCluster
    let opened: OpenStore
    beforeAll(async () => {
      cluster = await start()
      // Over HTTP, the bridge must give up first: otherwise the whole request is late.
      const deadlineMs = isDirect ? 1500 : 6000
      opened = await open(cluster.url, { cluster: true, deadlineMs, connectMs: 1500 })
    })
    afterAll(async () => {
      await opened?.close()
      await cluster?.close()
    })
    const run = (...calls: Parameters<OpenStore['store']['run']>[0]) => opened.store.run(calls)
    const outcomes = async (...calls: ScriptCall[]) => {
      const replies = await run(...calls).catch(error => calls.map(() => error))
      return replies.map(reply => reply?.code ?? reply)
    }

    it('runs the calls of one trip at the nodes that own their keys', async () => {
      expect(opened.store.isCluster).toBe(true)
      await run(...KEYS.map(increment))
      expect(await run(...KEYS.map(increment), increment(A), { command: 'GET', key: A })).toEqual([
        ...[2, 2, 2, 3],
        '3',
      ])
      for (const [i, key] of KEYS.entries())
        expect(String(await cluster.nodes[i]!.ask('GET', key))).toMatch(/^\d$/)
      await opened.store.ping()
    })

    it('loads a script into every node that lacks it', async () => {
      const once = (key: string) => call("return redis.call('INCRBY', KEYS[1], 10)", key)
      await cluster.empty()
      expect(await run(...[A, A, B, C, B].map(once))).toEqual([10, 20, 10, 10, 20])
      await cluster.nodes[1]!.ask('SCRIPT', 'FLUSH')
      expect(await run(...[A, B, C].map(once))).toEqual([30, 30, 20])
    })

    it('refuses a call with keys of several slots, which does not run', async () => {
      await cluster.empty()
      const crossing = call("return redis.call('INCR', KEYS[1])", A, B)
      expect(await outcomes(crossing, increment(C))).toEqual(['ERR_STORE_REFUSED', 1])
      expect(await run({ command: 'GET', key: A })).toEqual([null])
    })

    it('follows a slot that moves, call by call, and each call runs once', async () => {
      await cluster.empty()
      const [from, to] = cluster.nodes as [(typeof cluster.nodes)[0], (typeof cluster.nodes)[0]]
      const slot = String(slotOf(MOVING))
      expect(await run(increment(MOVING))).toEqual([1])
      await to.ask('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await from.id())
      await from.ask('CLUSTER', 'SETSLOT', slot, 'MIGRATING', await to.id())
      // The key is still at its old node, the new one is created at the new node.
      const other = MOVING.replace('state', 'other')
      expect(await run(increment(MOVING), increment(other))).toEqual([2, 1])
      await from.ask('MIGRATE', '127.0.0.1', String(to.port), MOVING, '0', '5000')
      expect(await run(increment(MOVING), increment(other))).toEqual([3, 2])
      for (const node of [to, from, cluster.nodes[2]!])
        await node.ask('CLUSTER', 'SETSLOT', slot, 'NODE', await to.id())
      expect(await run(increment(MOVING), increment(other), increment(C))).toEqual([4, 3, 1])
      expect(String(await to.ask('GET', MOVING))).toBe('4')
    })

    it('administrates on every node, and refuses a transaction over several slots', async () => {
      const { admin } = opened
      await cluster.empty()
      await admin.runEach(KEYS.map(key => ['SET', key, 'x']))
      expect((await admin.run<string[]>('KEYS', '*')).sort()).toEqual([...KEYS].sort())
      expect(
        await admin.transact([
          ['SET', A, '1'],
          ['INCR', A],
        ]),
      ).toEqual(['OK', 2])
      await expect(
        admin.transact([
          ['INCR', A],
          ['INCR', B],
        ]),
      ).rejects.toMatchObject({ kind: 'store' })
    })

    it('runs no call twice while the replies of a node are lost, cut off or not sent, each in turn', async () => {
      const [, second] = cluster.nodes
      const proxy = await startTcpProxy(targetOf(second!.url), endOfCommand)
      await cluster.announce(second!, proxy.port)
      const own = await open(cluster.url, {
        cluster: true,
        deadlineMs: isDirect ? 500 : 3000,
        connectMs: 500,
      })
      const note = (key: string, name: number) => ({
        ...{
          script: createScript("return redis.call('RPUSH', KEYS[1], ARGV[1])"),
          keys: [key],
          args: [`${name}`],
        },
      })
      const notes = async (i: number) =>
        ((await cluster.nodes[i]!.ask('LRANGE', KEYS[i]!, '0', '-1')) as Buffer[]).map(String)
      const faults: TcpFault[] = [
        { reply: client => void client.resetAndDestroy() },
        { request: client => void client.resetAndDestroy() },
        { reply: (client, bytes) => void client.end(bytes.subarray(0, bytes.length / 2)) },
        { reply: () => new Promise(() => {}) },
      ]
      for (const fault of faults) {
        for (const n of [1, 2, 3]) {
          await expect
            .poll(() => own.store.run([increment(B.replace('state', 'warm'))]).catch(() => []), PATIENT)
            .toEqual([expect.any(Number)])
          await cluster.empty()
          const armed = proxy.arm(fault, i => i === n)
          const fates = []
          for (let name = 0; name < 3; name++) {
            const calls = KEYS.map(key => note(key, name))
            const replies = await own.store.run(calls).catch(error => calls.map(() => error))
            fates.push(replies.map(reply => reply?.fate ?? 'ran'))
          }
          expect(armed.spoiled()).toBe(1)
          await armed.disarm()
          for (const i of [0, 1, 2]) {
            const ran = await notes(i)
            expect(new Set(ran).size, 'no call runs twice').toBe(ran.length)
            for (const [name, fate] of fates.entries())
              if (fate[i] !== 'may-have-run') expect(ran.includes(`${name}`), fate[i]).toBe(fate[i] === 'ran')
          }
        }
      }
      await own.close()
      await cluster.announce(second!, 0)
      await proxy.close()
    })

    it('fails only the calls of a node that does not answer, or is gone, and finds it again', async () => {
      await cluster.empty()
      const [, second] = cluster.nodes
      expect(await outcomes(...KEYS.map(increment))).toEqual([1, 1, 1])
      second!.freeze()
      const frozen = await outcomes(...KEYS.map(increment))
      // Beside a load, the connection can be given up before the deadline of the call.
      expect(frozen).toEqual([2, expect.stringMatching(/^ERR_STORE_(TIMEOUT|UNREACHABLE)$/), 2])
      second!.thaw()
      await expect.poll(() => outcomes(increment(B)), PATIENT).toEqual([expect.any(Number)])
      await second!.kill()
      await expect
        .poll(() => outcomes(...[A, B].map(increment)), PATIENT)
        .toEqual([expect.any(Number), expect.stringMatching(/^ERR_STORE_(UNREACHABLE|REFUSED)$/)])
      if (isDirect) {
        const [, failure] = (await run(increment(A), increment(B))) as [unknown, { fate: string }]
        expect(failure.fate).not.toBe('may-have-run')
      }
      await second!.start()
      await cluster.agrees()
      await expect
        .poll(() => outcomes(...KEYS.map(increment)), PATIENT)
        .toEqual(KEYS.map(() => expect.any(Number)))
    })
  })
})
