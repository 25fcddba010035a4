/** Adds 30 tasks for one account, then ten for another. The ten do not wait for the 30. */
import { Queue } from 'bullmq'
import { connection, QUEUE, type Task } from './tasks.ts'

const queue = new Queue<Task>(QUEUE, { connection })
await queue.addBulk(
  Array.from({ length: 40 }, (_, i) => ({
    name: 'update',
    data: { account: i < 30 ? '42' : '7', ticket: i + 1, calls: 1 },
  })),
)
await queue.close()
await connection.close()
