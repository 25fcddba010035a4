/** examples/queue-worker with all real parts: the queues of Miniflare, workerd, the REST bridge and a Redis. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { unstable_readConfig } from 'wrangler'
import { delaySeconds } from '../../examples/queue-worker/src/delay.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { ROOT } from '../support/pages.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type Call, callIn, copyExample, expectWithinLimits, FOR_DELAYS } from '../support/queue-examples.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { startRedis } from '../support/redis.ts'
import { hasRedisServer } from '../support/servers.ts'
import { bundleForWorkerd } from '../support/snippet-modules.ts'

interface Settings {
  compatibility_date: string
  queues: {
    producers: { binding: string; queue: string }[]
    consumers: {
      queue: string
      max_batch_timeout: number
      max_retries: number
      retry_delay: number
      dead_letter_queue: string
    }[]
  }
}
const TOML: Settings = unstable_readConfig({ config: join(ROOT, 'examples/queue-worker/wrangler.toml') })
const CONSUMER = TOML.queues.consumers[0]!

/** Consumes the queue of rejected tasks. */
const REJECTED = `export default {
  async queue({ messages }) {
    for (const { body } of messages) console.log('rejected ' + JSON.stringify(body))
  },
}`

describe.skipIf(!hasRedisServer)('examples/queue-worker', () => {
  const closing: (() => unknown)[] = []
  const lines: string[] = []
  let miniflare: Miniflare
  beforeAll(async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-queue-'))
    closing.push(() => rmSync(folder, { recursive: true }))
    const redis = await startRedis('redis-server')
    closing.push(redis.close)
    const token = 'a token for tests'
    const bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: PATIENT_MS })
    closing.push(bridge.close)
    copyExample('queue-worker', folder)
    const common = { modules: true, compatibilityDate: TOML.compatibility_date } as const
    const consumer = {
      ...{ ...common, name: 'consumer', script: await bundleForWorkerd(join(folder, 'src/index.ts')) },
      bindings: { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: token },
      queueProducers: Object.fromEntries(TOML.queues.producers.map(({ binding, queue }) => [binding, queue])),
      queueConsumers: {
        [CONSUMER.queue]: {
          maxBatchSize: 10, // the default of Cloudflare; that of Miniflare is 5
          maxBatchTimeout: CONSUMER.max_batch_timeout,
          maxRetries: CONSUMER.max_retries,
          deadLetterQueue: CONSUMER.dead_letter_queue,
          retryDelay: CONSUMER.retry_delay,
        },
      },
    }
    const rejected = {
      ...{ ...common, name: 'rejected', script: REJECTED },
      queueConsumers: { [CONSUMER.dead_letter_queue]: { maxBatchTimeout: 0 } },
    }
    miniflare = new Miniflare(
      convertV4MiniflareOptions({
        ...{ cf: false, log: new Log(LogLevel.NONE), workers: [consumer, rejected] },
        handleStructuredLogs: ({ message }) => void lines.push(message),
      }),
    )
    closing.push(() => miniflare.dispose())
  })
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
  })

  it('calls at most ten times in any second, and does not keep other accounts waiting', async () => {
    await miniflare.dispatchFetch('http://consumer.test/', { method: 'POST' })
    const calls = (): Call[] => lines.flatMap(callIn)
    await vi.waitFor(() => expect(calls()).toHaveLength(40), FOR_DELAYS)
    expectWithinLimits(calls())
  })

  it('rejects a task at once if the limit can never allow it', async () => {
    const task = { account: '8', ticket: 99, calls: 11 }
    await (await miniflare.getQueueProducer('TASKS', 'consumer')).send(task)
    await vi.waitFor(() => expect(lines).toContain(`rejected ${JSON.stringify(task)}`), PATIENT)
    expect(lines.filter(line => line.includes('"ticket":99'))).toHaveLength(1)
  })
})

describe('the delay after a refusal', () => {
  it('is a whole number of seconds, not before the limit allows the task, and at most 12 hours', () => {
    expect(delaySeconds(1, 1)).toBe(1)
    expect(delaySeconds(1001, 1)).toBe(2)
    expect(delaySeconds(24 * 3600 * 1000, 1)).toBe(43_200)
    expect(delaySeconds(1000, 100)).toBeLessThanOrEqual(43_200)
  })

  /** The deliveries that each task of a backlog needs, if ten tasks are admitted in each second. */
  function deliveriesOf(backlog: number, delay: (attempts: number) => number): number[] {
    const due = new Map<number, number[]>([[0, Array(backlog).fill(0)]])
    const done: number[] = []
    for (let second = 0; done.length < backlog; second++) {
      const delivered = (due.get(second) ?? []).map(attempts => attempts + 1)
      done.push(...delivered.slice(0, 10))
      for (const attempts of delivered.slice(10)) {
        const next = second + delay(attempts)
        if (!due.has(next)) due.set(next, [])
        due.get(next)!.push(attempts)
      }
      due.delete(second)
    }
    return done
  }

  it('spreads a backlog, so that no task uses up its retries', () => {
    const random = randomFrom(SEED)
    const fraction = () => random.int(0, 999_999) / 1e6
    const { max_retries: retries } = CONSUMER
    const tasks = 5000
    const spread = deliveriesOf(tasks, attempts => delaySeconds(1000, attempts, fraction))
    expect(Math.max(...spread)).toBeLessThan(retries / 2)
    const together = deliveriesOf(tasks, () => 1)
    expect(together.filter(deliveries => deliveries > retries + 1).length).toBeGreaterThan(tasks / 2)
  })
})
