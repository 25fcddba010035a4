/**
 * Python workers on examples/python/sluice.py keep within the limits of a third party that counts arrivals. The scenarios run at the same
 * time, each with an account of its own. The limits are scaled: 10 per second, and 66 per 20 s, a third of 200 per minute.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import type { Stack } from '../../src/node/start/stack.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { PYTHON, runClient, withoutCelery } from '../support/api-clients.ts'
import { ROOT } from '../support/pages.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'
import { writeModules } from '../support/snippet-modules.ts'
import { startTestStack } from '../support/stack.ts'
import {
  monotonicMs,
  mostWithin,
  shareUsed,
  startVendor,
  timesOfLimit,
  type Vendor,
} from '../support/vendor.ts'

const SECOND = { limit: 10, periodMs: 1000 }
const LONG = { limit: 66, periodMs: 20_000 }
/** Of a call: 400 to 1600, in the mean 1000. */
const TOKENS = 90_000
/** Added to each period: calls that arrive within this time of their decision are never too many (ms). */
const HEADROOM_MS = 500
/** The part of it that a call may take to begin. */
const MAX_AGE_MS = 250
/** More than two long windows, so that the second and the third one are full. */
const RUN_MS = 2 * LONG.periodMs + 4000
const PAUSE_S = 4
/** Shorter than the outage, and long enough for a busy machine. */
const DEADLINE_MS = 2000

const CONFIG = `import { defineConfig } from 'sluicegate'
const second = { name: 'second', by: ['account'], algorithm: 'sliding-log', limit: ${SECOND.limit}, period: '${SECOND.periodMs + HEADROOM_MS}ms', onStoreFailure: 'closed' } as const
const long = { ...second, name: 'long', limit: ${LONG.limit}, period: '${LONG.periodMs + HEADROOM_MS}ms' } as const
const tokens = { name: 'tokens', by: ['account'], unit: 'tokens', algorithm: 'fixed-window', limit: ${TOKENS}, period: '366d', onStoreFailure: 'closed' } as const
const config = {
  store: { deadline: '${DEADLINE_MS}ms' },
  origin: 'https://api.example.com', rules: [], api: {}, units: { tokens: {} },
  limits: { paced: [second, long], vendor: [second, long, tokens] },
} as const
export default defineConfig(config)`

/** Python's part of a scenario. */
interface Fleet {
  account: string
  processes: ChildProcess[]
  stop(): void
}

const WITHOUT_CELERY = withoutCelery()

describe.skipIf(!hasRedisServer || WITHOUT_CELERY)(
  `30 Python workers${WITHOUT_CELERY}`,
  () => {
    const closing: (() => unknown)[] = []
    const errors: string[] = []
    let vendor: Vendor

    interface Bed {
      stack: Stack
      redis: RedisProcess
      env: Record<string, string>
    }

    async function startBed(): Promise<Bed> {
      const directory = mkdtempSync(join(tmpdir(), 'sluice-python-'))
      closing.push(() => rmSync(directory, { recursive: true, force: true }))
      writeModules(directory, { 'sluice.config.ts': CONFIG })
      const redis = await startRedisProcess()
      closing.push(redis.close)
      const token = 'a token for tests'
      const bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: PATIENT_MS })
      closing.push(bridge.close)
      const rest = { url: bridge.url, token }
      const stack = await startTestStack(join(directory, 'sluice.config.ts'), { rest })
      closing.push(stack.close)
      const store = createAdminStore({ ...rest, keyLocking: false })
      const created = await createToken(store, { name: 'python', scopes: ['limits:use'] })
      const env = {
        ...{
          GATEWAY: stack.url,
          TOKEN: created.token,
          VENDOR: vendor.url,
          MAX_AGE: `${MAX_AGE_MS / 1000}`,
          THREADS: '10',
        },
        ...{
          NO_PROXY: '*',
          PYTHONPATH: `${join(ROOT, 'examples/python')}:${join(ROOT, 'test/support/python')}`,
          PYTHONDONTWRITEBYTECODE: '1',
        },
      }
      return { stack, redis, env }
    }

    function run(args: readonly string[], env: Record<string, string>): ChildProcess {
      const child = spawn(PYTHON, args, {
        env: { ...process.env, ...env },
        stdio: ['ignore', 'ignore', 'pipe'],
      })
      closing.push(() => child.kill('SIGKILL'))
      child.stderr!.setEncoding('utf8').on('data', text => errors.push(text))
      return child
    }

    function startFleet({ env }: Bed, account: string): Fleet {
      const program = join(ROOT, 'test/support/python/workers.py')
      const processes = [1, 2, 3].map(() => run([program], { ...env, ACCOUNT: account }))
      return { account, processes, stop: () => processes.every(each => each.kill('SIGKILL')) }
    }

    const firstArrival = async (account: string) => {
      await expect.poll(() => vendor.arrivals(account).length, { timeout: PATIENT_MS * 3 }).toBeGreaterThan(0)
    }

    let shared: Bed
    let own: Bed
    beforeAll(async () => {
      vendor = await startVendor([SECOND, LONG])
      closing.push(vendor.close)
      ;[shared, own] = await Promise.all([startBed(), startBed()])
    }, 60_000)
    afterAll(async () => {
      for (const close of closing.reverse()) await close()
    })

    /** Prints the figures with PYTHON_FIGURES=1. The slack (ms) is how much later the calls of a full window could have begun. */
    function figures(account: string, maxAgeMs = MAX_AGE_MS) {
      const arrivals = vendor.arrivals(account)
      // Later than the headroom after its worker has asked, and so possibly after its decision. A busy machine can stop a process so long.
      const late = arrivals.filter(({ at, sendBy }) => at > sendBy - maxAgeMs + HEADROOM_MS).length
      const refused = arrivals.filter(({ isRefused }) => isRefused).length
      const result = {
        late,
        refused,
        calls: arrivals.length,
        inSecond: mostWithin(arrivals, SECOND.periodMs),
        inLong: mostWithin(arrivals, LONG.periodMs),
        share: shareUsed(arrivals, LONG),
        tokens: arrivals.reduce((sum, { tokens }) => sum + tokens, 0),
      }
      if (process.env.PYTHON_FIGURES) {
        const slack = (limit: number, periodMs: number) =>
          Math.round(Math.min(...timesOfLimit(arrivals, limit)) - periodMs)
        const slacks = {
          slackOfSecond: slack(SECOND.limit, SECOND.periodMs),
          slackOfLong: slack(LONG.limit, LONG.periodMs),
        }
        console.log(account, JSON.stringify({ ...result, ...slacks }))
      }
      // With no late call, nothing is exceeded. Each late one can be counted with those that were decided after it.
      expect(result.inSecond, errors.join('')).toBeLessThanOrEqual(SECOND.limit + late)
      expect(result.inLong, errors.join('')).toBeLessThanOrEqual(LONG.limit + late)
      return result
    }

    it.concurrent('use at least 95 % of the limits, and never exceed them', async () => {
      const fleet = startFleet(shared, 'steady')
      await firstArrival('steady')
      await sleep(RUN_MS)
      fleet.stop()
      const { share, refused, late } = figures('steady')
      expect(refused).toBeLessThanOrEqual(late)
      expect(share, errors.join('')).toBeGreaterThanOrEqual(0.95)
    })

    it.concurrent('do so when a process is killed', async () => {
      const fleet = startFleet(shared, 'killed')
      await firstArrival('killed')
      await sleep(LONG.periodMs / 2)
      fleet.processes[0]!.kill('SIGKILL')
      await sleep(RUN_MS - LONG.periodMs / 2)
      fleet.stop()
      const { share, refused, late } = figures('killed')
      expect(refused).toBeLessThanOrEqual(late)
      expect(share, errors.join('')).toBeGreaterThanOrEqual(0.95)
    })

    it.concurrent('all stop when the third party says Retry-After, and go on afterwards', async () => {
      const fleet = startFleet(shared, 'refused')
      await firstArrival('refused')
      vendor.refuse({ account: 'refused', seconds: PAUSE_S })
      await sleep(RUN_MS / 2)
      fleet.stop()
      const arrivals = vendor.arrivals('refused')
      const at = arrivals.find(({ isRefused }) => isRefused)!.at
      const inPause = arrivals.filter(each => each.at >= at && each.at < at + PAUSE_S * 1000)
      if (process.env.PYTHON_FIGURES)
        console.log(
          'in the pause:',
          inPause.map(each => Math.round(each.at - at)),
        )
      // The first one, and those that had been admitted before its reply came back.
      expect(inPause.length).toBeLessThanOrEqual(SECOND.limit)
      expect(inPause.at(-1)!.at - at).toBeLessThan(PAUSE_S * 500)
      expect(arrivals.length).toBeGreaterThan(arrivals.indexOf(inPause.at(-1)!) + 1)
      figures('refused')
    })

    it.concurrent('wait while Redis is away for 5 s, and exceed nothing afterwards', async () => {
      const fleet = startFleet(own, 'outage')
      await firstArrival('outage')
      await sleep(2000)
      own.redis.freeze()
      const frozen = monotonicMs()
      await sleep(5000)
      // What was decided before was called at once, or not at all.
      expect(vendor.arrivals('outage').filter(({ at }) => at > frozen + 1000)).toEqual([])
      own.redis.thaw()
      await sleep(RUN_MS - 7000)
      fleet.stop()
      const { share, refused, late } = figures('outage')
      expect(refused).toBeLessThanOrEqual(late)
      expect(share, errors.join('')).toBeGreaterThanOrEqual(0.9)
    })

    it.concurrent('are Celery workers: refused tasks come back, and tokens are spent to the last estimate', async () => {
      const directory = mkdtempSync(join(tmpdir(), 'sluice-celery-'))
      closing.push(() => rmSync(directory, { recursive: true, force: true }))
      const env = {
        ...own.env,
        BROKER: `${shared.redis.url}/1`,
        GATEWAY: shared.env.GATEWAY!,
        TOKEN: shared.env.TOKEN!,
      }
      const add = 'import jobs\nfor _ in range(130): jobs.ask.delay("celery")'
      await runClient(PYTHON, ['-c', add], env)
      const args = [
        '-m',
        'celery',
        '--workdir',
        directory,
        '-A',
        'timed_jobs',
        'worker',
        '-P',
        'threads',
        '-c',
        '30',
      ]
      const worker = run([...args, '--without-gossip', '--without-mingle', '--loglevel', 'ERROR'], env)
      await firstArrival('celery')
      await sleep(RUN_MS)
      worker.kill('SIGKILL')
      // jobs.py has its own MAX_AGE.
      const { tokens } = figures('celery', 500)
      expect(tokens).toBeLessThanOrEqual(TOKENS)
      expect(tokens / TOKENS).toBeGreaterThanOrEqual(0.95)
    })
  },
  RUN_MS + 8 * PATIENT_MS,
)
