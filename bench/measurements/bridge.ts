/** Measures the REST bridge by itself: its CPU time for each request, and how much later an answer comes than directly from Redis. */
import { existsSync } from 'node:fs'
import type { Command } from '../../src/node/rest-bridge/redis-connection.ts'
import { startChild } from '../child.ts'
import { sluice } from '../contenders.ts'
import { cpuSeconds } from '../cpu-time.ts'
import { inRounds, measureTimes, median } from '../measure.ts'
import type { Findings } from '../report.ts'
import { rowOf } from '../report.ts'
import type { RestLoad, RestLoadSettings } from '../rest-load.ts'
import { newCallers, type TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const ROUNDS = 2
const REQUESTS = 8000
const WARM_UP = 20_000
const ALONE = 1500
const CONNECTIONS = [16, 64] as const
const MOST_MICROSECONDS = 36

const WHY =
  'with 16 connections, more of the requests arrive alone, so that reading and writing the sockets is shared by fewer.'

export async function bridge(bed: TestBed): Promise<Findings> {
  if (!existsSync('/proc/self/stat'))
    return { notes: ['The CPU time of the bridge was not measured: this system has no /proc.'] }
  const command = await decisionOf(bed)
  const { token } = bed.near
  const child = await startChild<{ url: string }>('bridge-process.ts', { redisUrl: bed.redisUrl, token }, bed)
  const settings: RestLoadSettings = {
    url: child.ready.url,
    token,
    body: JSON.stringify(command.map(String)),
  }
  const load = await startChild('rest-load.ts', settings, bed)
  try {
    const send = (connections: number, requests: number) =>
      load.send<number[]>({ connections, requests } satisfies RestLoad)
    const perRequest = async (connections: number) => {
      const before = cpuSeconds(child.pid)
      await send(connections, REQUESTS)
      return ((cpuSeconds(child.pid) - before) * 1e6) / REQUESTS
    }
    for (const connections of CONNECTIONS) await send(connections, WARM_UP)
    const rounds = await inRounds(ROUNDS, {
      16: () => perRequest(16),
      64: () => perRequest(64),
      added: async () => {
        const through = median(await send(1, ALONE))
        return through - median(await measureTimes(ALONE, () => bed.redis.send(command)))
      },
    })
    return {
      rows: [
        ...CONNECTIONS.map(connections =>
          rowOf(`CPU of the bridge per EVALSHA, ${connections} connections`, rounds[connections]!, {
            unit: 'µs',
            most: MOST_MICROSECONDS,
            why: WHY,
          }),
        ),
        rowOf('latency that the bridge adds, one request at a time, p50', rounds.added!, {
          unit: 'ms',
          digits: 3,
        }),
      ],
      rounds: [{ title: 'CPU of the bridge per EVALSHA, µs', columns: rounds }],
      notes: [
        'Bridge: a process of its own, with a connection to redis-server over a unix socket, gets the decision of the six limits of the shipped ' +
          `config from a load process, in rounds of ${REQUESTS.toLocaleString('en')} requests. Most of its CPU time is ` +
          'the HTTP server of Node, and what the kernel does to write replies and commands.',
      ],
    }
  } finally {
    await load.close()
    await child.close()
  }
}

/** The EVALSHA of a decision, which Redis has the script for. */
async function decisionOf(bed: TestBed): Promise<Command> {
  const sent: Command[] = []
  const decide = sluice(straightTo(bed.redis, sent), 'admits all')
  const [caller] = await newCallers(1, bed)
  for (let i = 0; i < 2; i++) await decide(caller!)
  return sent.at(-1)!
}
