/**
 * A worker that stays within the limits of a third party, however many of its processes run. A refused job goes back to its queue, and
 * the worker takes the next one. `npm run add` adds tasks.
 */
import { DelayedError, UnrecoverableError, Worker } from 'bullmq'
import { createLimiter } from 'sluicegate'
import config from './sluice.config.ts'
import { connection, QUEUE, type Task } from './tasks.ts'

const limiter = createLimiter(config)

const worker = new Worker<Task>(
  QUEUE,
  async (job, token) => {
    const { account, calls } = job.data
    const { allowed, retryAfterMs, at } = await limiter.limit('zendesk', { account }, { cost: calls })
    if (allowed) {
      await callZendesk(job.data)
      console.log(JSON.stringify({ ...job.data, delivery: job.attemptsStarted, at }))
      return
    }
    if (retryAfterMs < 0) throw new UnrecoverableError(`The limit never allows ${calls} calls at once.`)
    // If all jobs of a backlog came back at the same time, most of them would be refused again.
    const spreadMs = Math.random() * 1000 * (job.attemptsStarted - 1)
    await job.moveToDelayed(Date.now() + retryAfterMs + spreadMs, token)
    throw new DelayedError() // does not count as one of the job's `attempts`
  },
  { connection },
)
worker.on('error', console.error)
worker.on('failed', (job, error) => console.error(`ticket ${job?.data.ticket}: ${error.message}`))

/** Stands in for the calls of the third party. */
async function callZendesk(_: Task): Promise<void> {}

for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, async () => {
    await worker.close()
    await limiter.close()
    await connection.close()
  })
