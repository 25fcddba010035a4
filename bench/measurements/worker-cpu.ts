/**
 * Measures the CPU time of a request, which Cloudflare bills and limits: that of the whole workerd process, including its HTTP. Compares
 * Sluice with a Worker that sends one PING instead (ping-worker.ts), and with one that only proxies requests (proxy-worker.ts).
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startWorker } from '../../src/node/start/worker.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { startBenchWorker, startChild } from '../child.ts'
import { childNamed, cpuSeconds } from '../cpu-time.ts'
import type { LoadSettings } from '../load.ts'
import { inRounds, median } from '../measure.ts'
import { atMost, type Findings, ratiosOf } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

const CONFIG_FILE = fileURLToPath(new URL('../worker-config.ts', import.meta.url))
const CONNECTIONS = 16
const WARM_UP = 6000
const ROUNDS = 9
const REQUESTS = 2500
const CONSUMER = 'consumer-of-worker-cpu'
const TARGET = 1.15

/** Sampled with perf, 8,000 requests of each Worker. */
const WHY =
  'of the CPU time of a request, 77 % is workerd itself (HTTP, headers, promises between C++ and JavaScript), 18 % the kernel, and 3 % compiled ' +
  'JavaScript (PING: 1 %). What Sluice adds is mostly memory: the kernel clears new pages for the heap for 8 % of the time (PING: 2 %). The ' +
  'ratio of a whole run was 1.05 to 1.28 on this machine, whatever the commit.'

interface Contender {
  url: string
  /** The parent process of workerd. */
  pid: number
  close(): Promise<void>
}

export async function workerCpu(bed: TestBed): Promise<Findings> {
  if (!existsSync('/proc/self/stat')) {
    return { notes: ['The CPU time of workerd was not measured: this system has no /proc.'] }
  }
  const { key: apiKey } = await createKey(createAdminStore(bed.near), { consumer: CONSUMER, plan: 'free' })
  const contenders: Contender[] = []
  try {
    const started = {
      'bare proxy': await startOne(bed, 'proxy-worker.ts', contenders),
      PING: await startOne(bed, 'ping-worker.ts', contenders),
      Sluice: await startSluice(bed, contenders),
    }
    const cost = (name: keyof typeof started, requests: number) =>
      microsecondsPerRequest(bed, started[name], apiKey, requests)
    for (const name of ['bare proxy', 'PING', 'Sluice'] as const) await cost(name, WARM_UP)
    return findingsOf(
      await inRounds(ROUNDS, {
        'bare proxy': () => cost('bare proxy', REQUESTS),
        PING: () => cost('PING', REQUESTS),
        Sluice: () => cost('Sluice', REQUESTS),
      }),
    )
  } finally {
    for (const { close } of contenders) await close()
  }
}

function findingsOf(rounds: Record<'bare proxy' | 'PING' | 'Sluice', number[]>): Findings {
  const what = `CPU of workerd per request, ${CONNECTIONS} connections, proxied`
  const row = (name: 'PING' | 'bare proxy') => ({
    what,
    sluice: `${median(rounds.Sluice).toFixed(0)} µs`,
    comparison: `${name}: ${median(rounds[name]).toFixed(0)} µs`,
    ratio: ratiosOf(rounds.Sluice, rounds[name]),
  })
  const ping = row('PING')
  return {
    rows: [{ ...ping, target: atMost(ping.ratio, TARGET, WHY) }, row('bare proxy')],
    rounds: [{ title: what, columns: rounds }],
  }
}

async function microsecondsPerRequest(
  bed: TestBed,
  { url, pid }: Contender,
  apiKey: string,
  requests: number,
): Promise<number> {
  const workerd = childNamed('workerd', pid)
  const before = cpuSeconds(workerd)
  const settings: LoadSettings = {
    url: `${url}/hello`,
    headers: { 'x-api-key': apiKey },
    ...{ connections: CONNECTIONS, requests },
  }
  const load = await startChild('load.ts', settings, bed)
  const spent = cpuSeconds(workerd) - before
  await load.close()
  return (spent * 1e6) / requests
}

const bindingsOf = ({ near, origin }: TestBed) => ({
  UPSTASH_REDIS_REST_URL: near.url,
  UPSTASH_REDIS_REST_TOKEN: near.token,
  ORIGIN_URL: origin,
})

async function startOne(bed: TestBed, entry: string, started: Contender[]): Promise<Contender> {
  const { ready, pid, close } = await startBenchWorker({ entry, bindings: bindingsOf(bed) }, bed)
  const contender = { url: ready.url, pid, close }
  started.push(contender)
  return contender
}

async function startSluice(bed: TestBed, started: Contender[]): Promise<Contender> {
  const contender = await startWorker({
    guardian: bed.guardian,
    directory: join(bed.directory, 'c'),
    host: '127.0.0.1',
    port: 0,
    watch: false,
    isBare: true,
    minify: true,
    bindings: bindingsOf(bed),
    configFile: CONFIG_FILE,
  })
  started.push(contender)
  return contender
}
