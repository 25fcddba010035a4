/** examples/bullmq with all real parts: two processes of its worker, the REST bridge, and one Redis for the queue and the limits. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Queue } from 'bullmq'
import { createClient } from 'redis'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type Call, callIn, copyExample, expectWithinLimits, FOR_DELAYS } from '../support/queue-examples.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

describe.skipIf(!hasRedisServer)('examples/bullmq', () => {
  const closing: (() => unknown)[] = []
  const lines: string[] = []
  let redis: RedisProcess
  let workers: ChildProcess[]
  let queue: Queue
  let start: (file: string) => ChildProcess
  beforeAll(async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-bullmq-'))
    closing.push(() => rmSync(folder, { recursive: true }))
    redis = await startRedisProcess()
    closing.push(redis.close)
    const url = `redis://${redis.host}:${redis.port}`
    const token = 'a token for tests'
    const bridge = await startBridge({ redisUrl: url, token, port: 0, deadlineMs: PATIENT_MS })
    closing.push(bridge.close)
    const connection = createClient({ url })
    closing.push(() => connection.close())
    queue = new Queue('tasks', { connection })
    closing.push(() => queue.close())
    copyExample('bullmq', folder)
    const variables = { REDIS_URL: url, UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: token }
    start = file => {
      const child = spawn(process.execPath, [file], {
        cwd: folder,
        env: { ...process.env, ...variables },
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      closing.push(() => child.kill('SIGKILL'))
      createInterface(child.stdout!).on('line', line => lines.push(line))
      return child
    }
    workers = [start('worker.ts'), start('worker.ts')]
  })
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
  })

  it('calls at most ten times in any second, and does not keep other accounts waiting', async () => {
    expect(await once(start('add-tasks.ts'), 'exit')).toEqual([0, null])
    const calls = (): Call[] => lines.flatMap(callIn)
    await vi.waitFor(() => expect(calls()).toHaveLength(40), FOR_DELAYS)
    expectWithinLimits(calls())
  })

  it('uses up no attempts for refusals', async () => {
    await vi.waitFor(async () => expect(await queue.getCompletedCount()).toBe(40), PATIENT)
    const jobs = await queue.getJobs(['completed'])
    expect(jobs.map(({ attemptsMade }) => attemptsMade)).toEqual(Array(40).fill(1))
    expect(Math.max(...jobs.map(({ attemptsStarted }) => attemptsStarted))).toBeGreaterThan(1)
  })

  it('fails a job at once if the limit can never allow it', async () => {
    const { id } = await queue.add('update', { account: '8', ticket: 99, calls: 11 }, { attempts: 3 })
    await vi.waitFor(async () => expect(await queue.getFailedCount()).toBe(1), PATIENT)
    const job = await queue.getJob(id!)
    expect(job).toMatchObject({
      ...{ attemptsMade: 1, attemptsStarted: 1 },
      failedReason: 'The limit never allows 11 calls at once.',
    })
  })

  it('stops on SIGTERM', async () => {
    const exits = workers.map(worker => once(worker, 'exit'))
    for (const worker of workers) worker.kill('SIGTERM')
    expect(await Promise.all(exits)).toEqual([
      [0, null],
      [0, null],
    ])
  })
})
