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
import { inRounds } from '../measure.ts'
import { type Findings, roundsRow } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

const CONFIG_FILE = fileURLToPath(new URL('../worker-config.ts', import.meta.url))
const CONNECTIONS = 16
const WARM_UP = 1500
const ROUNDS = 2
const REQUESTS = 1000
const CONSUMER = 'consumer-of-worker-cpu'
const TARGET = 1.15

/** Sampled with perf. */
const WHY =
  'most of the CPU time of a request is workerd itself (HTTP, headers, promises between C++ and JavaScript), most of the rest the kernel, and the ' +
  'least compiled JavaScript. What Sluice adds is mostly memory: the kernel clears new pages for the heap.'

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
  const format = { unit: 'µs', digits: 0 }
  return {
    rows: [
      roundsRow(what, ['PING', rounds.Sluice, rounds.PING], { ...format, most: TARGET, why: WHY }),
      roundsRow(what, ['bare proxy', rounds.Sluice, rounds['bare proxy']], format),
    ],
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
