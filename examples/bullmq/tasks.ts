/** What the worker and the program that adds tasks share. */
import { createClient } from 'redis'

export interface Task {
  account: string
  ticket: number
  /** Calls of the third party that the task makes. */
  calls: number
}

export const QUEUE = 'tasks'

/** BullMQ needs a Redis with `maxmemory-policy noeviction`. The limits can use the same one, through `npx sluicegate bridge`. */
export const connection = createClient({ url: process.env.REDIS_URL ?? 'redis://127.0.0.1:6379' })
