/** A master, its replica, and three Sentinels that watch them. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Reply } from '../../src/node/rest-bridge/redis-server.ts'
import { freePort } from './free-port.ts'
import { PATIENT_MS } from './patience.ts'
import { type RedisProcess, sendTo, startRedisProcess } from './redis-process.ts'
import { STORE_SERVER } from './servers.ts'

export const MASTER = 'mymaster'

/** After this time without an answer, a Sentinel considers the master down (ms). */
const DOWN_AFTER_MS = 500

export interface Sentinels {
  master: RedisProcess
  replica: RedisProcess
  /** `host:port,host:port,host:port` */
  hosts: string
  /** Makes the replica the master, as an operator does. */
  failOver(): Promise<void>
  /** Waits until the Sentinels name this server as the master. */
  agreeOn(server: RedisProcess): Promise<void>
  close(): Promise<void>
}

export async function startSentinels(): Promise<Sentinels> {
  const master = await startRedisProcess()
  const replica = await startRedisProcess({ replicaof: `127.0.0.1 ${master.port}` })
  const ports = [await freePort(), await freePort(), await freePort()]
  const children: ChildProcess[] = ports.map(port => {
    // Sentinels write their state into this file.
    const file = join(master.directory, `sentinel-${port}.conf`)
    const lines = [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${master.directory}`,
      `sentinel monitor ${MASTER} 127.0.0.1 ${master.port} 2`,
      `sentinel down-after-milliseconds ${MASTER} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${MASTER} 3000`,
    ]
    writeFileSync(file, `${lines.join('\n')}\n`)
    return spawn(STORE_SERVER, [file, '--sentinel'], { stdio: 'ignore' })
  })
  const ask = (port: number, ...command: string[]) => sendTo(`redis://127.0.0.1:${port}`, command)

  async function until(isDone: (port: number) => Promise<boolean>): Promise<void> {
    const giveUpAt = performance.now() + PATIENT_MS
    for (const port of ports) {
      while (!(await isDone(port).catch(() => false))) {
        if (performance.now() > giveUpAt) throw new Error('The Sentinels of this test do not agree.')
        await new Promise(resolve => setTimeout(resolve, 50))
      }
    }
  }
  const knows = (state: Reply, name: string) => {
    const words = (state as Reply[]).map(String)
    return Number(words[words.indexOf(name) + 1])
  }

  await until(async port => {
    const state = await ask(port, 'SENTINEL', 'MASTER', MASTER)
    return knows(state, 'num-slaves') === 1 && knows(state, 'num-other-sentinels') === 2
  })
  return {
    master,
    replica,
    hosts: ports.map(port => `127.0.0.1:${port}`).join(','),
    async failOver() {
      await ask(ports[0]!, 'SENTINEL', 'FAILOVER', MASTER)
    },
    agreeOn: server =>
      until(async port => {
        const [, named] = (await ask(port, 'SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER)) as Reply[]
        return Number(String(named)) === server.port
      }),
    async close() {
      await Promise.all(
        children.map(async child => {
          const exited = once(child, 'exit')
          child.kill('SIGKILL')
          await exited
        }),
      )
      await replica.close()
      await master.close()
    },
  }
}
