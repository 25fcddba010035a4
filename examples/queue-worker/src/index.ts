/**
 * A queue consumer that stays within the limits of a third party. A refused message goes back to its queue, so the consumer never waits.
 * `curl -X POST http://localhost:8787` adds tasks.
 */
import { waitUntil } from 'cloudflare:workers'
import { createLimiter } from 'sluicegate'
import config from '../sluice.config.ts'
import { delaySeconds } from './delay.ts'

interface Task {
  account: string
  ticket: number
  /** Calls of the third party that the task makes. */
  calls: number
}

interface Env {
  UPSTASH_REDIS_REST_URL: string
  UPSTASH_REDIS_REST_TOKEN: string
  TASKS: Queue<Task>
  REJECTED: Queue<Task>
}

let limiter: ReturnType<typeof createLimiter> | undefined // one per isolate

async function consume(message: Message<Task>, env: Env): Promise<void> {
  limiter ??= createLimiter(config, { env, waitUntil })
  const { account, calls } = message.body
  const { allowed, retryAfterMs, at } = await limiter.limit('zendesk', { account }, { cost: calls })
  if (allowed) {
    await callZendesk(message.body)
    message.ack()
    console.log(JSON.stringify({ ...message.body, delivery: message.attempts, at }))
  } else if (retryAfterMs < 0) {
    // More calls than the limit can ever allow: a retry would be refused again.
    await env.REJECTED.send(message.body)
    message.ack()
  } else {
    message.retry({ delaySeconds: delaySeconds(retryAfterMs, message.attempts) })
  }
}

/** Stands in for the calls of the third party. */
async function callZendesk(_: Task): Promise<void> {}

/** 30 tasks for one account, then ten for another. The ten do not wait for the 30. */
const TASKS = Array.from({ length: 40 }, (_, i) => ({
  account: i < 30 ? '42' : '7',
  ticket: i + 1,
  calls: 1,
}))

export default {
  async queue({ messages }: MessageBatch<Task>, env: Env) {
    await Promise.all(
      messages.map(async message => {
        try {
          await consume(message, env)
        } catch (error) {
          // If the handler threw the error, the queue would deliver the whole batch again.
          console.error(error)
          message.retry()
        }
      }),
    )
  },

  async fetch(_: Request, env: Env) {
    await env.TASKS.sendBatch(TASKS.map(body => ({ body })))
    return new Response(`${TASKS.length} tasks added.\n`)
  },
}
