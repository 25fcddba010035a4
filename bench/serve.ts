/**
 * `npm run bench:serve`: decisions of `sluicegate serve` for each second of CPU time of all its processes, and the time that it adds to a
 * request, over a direct connection to Redis and through the REST bridge. `-- --write` writes bench/serve.md, `-- --quick` measures less.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import { createAdminStore } from '../src/ops/admin-store.ts'
import { createToken } from '../src/ops/tokens.ts'
import { type Child, startChild } from './child.ts'
import { cpuSeconds } from './cpu-time.ts'
import { median } from './measure.ts'
import { commit, loadAverage, machine, versions } from './report.ts'
import type { LoadCommand, LoadResult } from './serve/load.ts'
import { type Server, startServe } from './serve/server.ts'
import { startTestBed } from './test-bed.ts'

const RESULTS = new URL('serve.md', import.meta.url)
const CONFIG = fileURLToPath(new URL('serve/bench.config.ts', import.meta.url))

const isQuick = process.argv.includes('--quick')
const WARM_UP = 2
const ROUNDS = isQuick ? 3 : 5
const REQUESTS = isQuick ? 4000 : 10_000
const ONE_BY_ONE = isQuick ? 500 : 2000
const CONNECTIONS = 32

/** Decisions for each second of CPU time that the server is to reach. */
const TARGET = 5000

/** One kind of request. */
interface Case {
  what: string
  server: Server
  command: Pick<LoadCommand, 'url' | 'status'> & Partial<LoadCommand>
}

interface Measured {
  perCpuSecond: number
  perSecond: number
}

async function measure(load: Child<object>, { server, command }: Case, requests: number): Promise<Measured> {
  const before = server.cpuSeconds()
  const { perSecond } = await load.send<LoadResult>({ connections: CONNECTIONS, requests, ...command })
  return { perCpuSecond: requests / (server.cpuSeconds() - before), perSecond }
}

const number = (value: number) => Math.round(value).toLocaleString('en')
const ms = (value: number) => value.toFixed(2)

const bed = await startTestBed()
try {
  const start = <Ready>(file: string, settings: object = {}) =>
    startChild<Ready>(file, settings, { guardian: bed.guardian, directory: bed.directory })
  const origin = await start<{ url: string }>('serve/origin.ts')
  const load = await start<object>('serve/load.ts')
  const { url, token } = bed.near
  const { token: bearer } = await createToken(createAdminStore({ url, token }), {
    ...{ name: 'bench', scopes: ['limits:use'] },
  })
  const guard = (group: number) => bed.guardian.guard({ group })
  const ORIGIN_URL = origin.ready.url
  const direct = await startServe(CONFIG, { ORIGIN_URL, REDIS_URL: bed.redisUrl }, guard)
  const bridged = await startServe(
    CONFIG,
    { ORIGIN_URL, UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token },
    guard,
  )
  const body = JSON.stringify({ identity: { account: '42' } })
  const api = {
    ...{ method: 'POST', body, status: 200 },
    headers: {
      authorization: `Bearer ${bearer}`,
      'content-type': 'application/json',
      'content-length': String(body.length),
    },
  }
  const casesOf = (way: string, server: Server): Case[] => [
    { what: `refused requests, ${way}`, server, command: { url: `${server.url}/refused`, status: 429 } },
    {
      what: `\`POST /_sluice/v1/limits/{name}\`, ${way}`,
      server,
      command: { url: `${server.url}/_sluice/v1/limits/calls`, ...api },
    },
    {
      what: `requests forwarded to the origin, ${way}`,
      server,
      command: { url: `${server.url}/x`, status: 200 },
    },
  ]
  const bare = { url: ORIGIN_URL, cpuSeconds: () => cpuSeconds(origin.pid), close: async () => {} }
  const cases = [
    ...casesOf('direct', direct),
    ...casesOf('through the bridge', bridged),
    {
      what: 'a bare server of `node:http`, for comparison',
      server: bare,
      command: { url: `${bare.url}/x`, status: 200 },
    },
  ]
  const latencies: [string, LoadCommand['url']][] = [
    ['the origin, without serve', `${ORIGIN_URL}/x`],
    ['serve, direct', `${direct.url}/x`],
    ['serve, through the bridge', `${bridged.url}/x`],
  ]
  // The first request to /refused is admitted.
  for (const { url } of [direct, bridged]) await fetch(`${url}/refused`).then(reply => reply.body?.cancel())
  const results = cases.map((): Measured[] => [])
  const times = latencies.map((): LoadResult[] => [])
  for (let round = 0; round < WARM_UP + ROUNDS; round++) {
    for (const [i, each] of cases.entries()) results[i]!.push(await measure(load, each, REQUESTS))
    for (const [i, [, url]] of latencies.entries())
      times[i]!.push(await load.send({ url, status: 200, connections: 1, requests: ONE_BY_ONE }))
  }
  const medianOf = <T>(rounds: readonly T[], value: (round: T) => number) =>
    median(rounds.slice(WARM_UP).map(value))
  const perCpuSecond = cases.map(({ what }, i) => {
    const values = results[i]!.slice(WARM_UP).map(each => each.perCpuSecond)
    const isDecision = what.endsWith('direct') && !what.includes('origin')
    const reached = median(values) >= TARGET ? 'yes' : 'no'
    return [
      ...[what, number(median(values)), `${number(Math.min(...values))} – ${number(Math.max(...values))}`],
      ...[number(medianOf(results[i]!, each => each.perSecond)), isDecision ? reached : '-'],
    ]
  })
  const [base] = times
  const added = latencies.map(([what], i) => {
    const [p50, p99] = [medianOf(times[i]!, ({ p50 }) => p50), medianOf(times[i]!, ({ p99 }) => p99)]
    const over = i === 0 ? '-' : ms(p50 - medianOf(base!, ({ p50 }) => p50))
    return [what, ms(p50), ms(p99), over]
  })
  const text = `# serve

Made by \`npm run bench:serve -- ${isQuick ? '--quick ' : ''}--write\`.

## Requests for each second of CPU time

${markdownOf({ head: ['requests', 'for each CPU-second', 'range', 'a second', `≥ ${number(TARGET)}`], rows: perCpuSecond }, { isAligned: true })}

## Latency, one request at a time

${markdownOf({ head: ['through', 'p50, ms', 'p99, ms', 'added to p50, ms'], rows: added }, { isAligned: true })}

## Machine and versions

${[...machine(), versions(bed.redisVersion, ['redis', 'hono', '@hono/node-server']), commit(), `Load average at the end: ${loadAverage()}`].map(line => `- ${line}`).join('\n')}

## Method

- The server has one worker. CPU time is that of the worker and of the primary process, in user and system mode. That of Redis, the bridge, the origin and the
  client is not included; they run on the same cores.
- Every request makes a trip to Redis: refusals are not remembered, and no rule has a lease. Forwarded requests have one rule, refused ones have two.
- ${CONNECTIONS} connections, ${number(REQUESTS)} requests of each kind in each of ${ROUNDS} rounds, after ${WARM_UP} to warm up. Medians of the rounds.
- Latency: one connection, ${number(ONE_BY_ONE)} requests in each round. The origin replies at once.
`
  console.log(text)
  if (process.argv.includes('--write')) writeFileSync(RESULTS, text)
  for (const each of [direct, bridged, load, origin]) await each.close()
} finally {
  await bed.close()
}
