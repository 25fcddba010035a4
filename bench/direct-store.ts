/**
 * The store over a direct connection beside the store over HTTP with the REST bridge, in turns on one Redis: decisions of six rules, all
 * allowed, in one process. `node bench/direct-store.ts`
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checkedConfig } from '../src/config/check/check.ts'
import { connectRedisStore } from '../src/node/redis-store/redis-store.ts'
import { createLimiterOnStore } from '../src/set-ups/limits/limiter-on-store.ts'
import type { Store } from '../src/store/store.ts'
import { upstashStore } from '../src/store/upstash.ts'

const ROUNDS = 5
const AT_ONCE = 200
const DECISIONS = 20_000
const SINGLE = 2000
const PORT = 16_399
const TICKS_PER_SECOND = 100

const SLUICE = fileURLToPath(new URL('../src/node/cli/sluice.ts', import.meta.url))
const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
const url = `redis://127.0.0.1:${PORT}`

const redis = spawn('redis-server', ['--port', String(PORT), '--save', '', '--dir', directory], {
  stdio: 'ignore',
})
await new Promise(resolve => setTimeout(resolve, 1000))
const bridge = spawn(
  process.execPath,
  [SLUICE, 'bridge', '--redis', url, '--token', 't', '--port', String(PORT + 1)],
  { stdio: ['ignore', 'pipe', 'inherit'] },
)
await once(bridge.stdout!, 'data')

const config = checkedConfig({
  store: { deadline: '10s' },
  rules: [],
  limits: {
    calls: ['account', 'team'].flatMap(by =>
      (['1s', '1m', '1h'] as const).map(period => ({
        ...({ name: `${by}-${period}`, by: [by], algorithm: 'fixed-window' } as const),
        ...{ limit: 1e6, period },
      })),
    ),
  },
})
const direct = await connectRedisStore({ url, deadlineMs: 10_000 })
const http = upstashStore({
  url: `http://127.0.0.1:${PORT + 1}`,
  token: 't',
  deadlineMs: 10_000,
  keyLocking: false,
})

const cpuOf = ({ pid }: ChildProcess) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND
}
const ownCpu = () => {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}
const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!

let callers = 0

async function measure(store: Store) {
  // The store counts each decision: nothing is decided in the process.
  const limiter = createLimiterOnStore(config, store)
  async function decide(): Promise<void> {
    const n = callers++
    const { allowed, degraded } = await limiter.limit('calls', { account: `a${n}`, team: `t${n % 1000}` })
    if (!allowed || degraded) throw new Error('A decision was not that of the store.')
  }
  for (let n = 0; n < 500; n++) await decide()
  const [startedAt, cpu, ofBridge, ofRedis] = [performance.now(), ownCpu(), cpuOf(bridge), cpuOf(redis)]
  let left = DECISIONS
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (left-- > 0) await decide()
    }),
  )
  const result = {
    seconds: (performance.now() - startedAt) / 1000,
    own: ownCpu() - cpu,
    bridge: cpuOf(bridge) - ofBridge,
    redis: cpuOf(redis) - ofRedis,
  }
  const times: number[] = []
  for (let n = 0; n < SINGLE; n++) {
    const at = performance.now()
    await decide()
    times.push(performance.now() - at)
  }
  times.sort((a, b) => a - b)
  await limiter.close?.()
  return { ...result, p50: times[SINGLE / 2]!, p99: times[Math.floor(SINGLE * 0.99)]! }
}

type Measured = Awaited<ReturnType<typeof measure>>
const results = { direct: [] as Measured[], http: [] as Measured[] }
for (let round = 0; round <= ROUNDS; round++) {
  for (const [name, store] of [
    ['direct', direct.store],
    ['http', http],
  ] as const) {
    const measured = await measure(store)
    // The first round warms up.
    if (round > 0) results[name].push(measured)
  }
}
for (const [name, rounds] of Object.entries(results)) {
  const of = (get: (measured: Measured) => number, digits = 2) => median(rounds.map(get)).toFixed(digits)
  console.log(
    `${name.padEnd(6)} ${of(each => DECISIONS / each.own, 0)} decisions per CPU-second of this process, ` +
      `${of(each => DECISIONS / (each.own + each.bridge), 0)} with the bridge; ${of(each => DECISIONS / each.seconds, 0)} a second; ` +
      `CPU of Redis ${of(each => (1e6 * each.redis) / DECISIONS, 0)} µs a decision; one at a time p50 ${of(each => each.p50)} ms, p99 ${of(each => each.p99)} ms`,
  )
}
await direct.close()
bridge.kill()
redis.kill()
await Promise.all([once(redis, 'exit')])
rmSync(directory, { recursive: true, force: true })
