/**
 * A background task that stays inside the limits of a third party, however many processes run it. It may wait, because it has nothing else
 * to do. The consumer of a queue has: see ../queue-worker and ../bullmq.
 */
import { createLimiter } from 'sluicegate'
import config from './sluice.config.ts'

const limiter = createLimiter(config)

for (let i = 0; i < 12; i++) {
  const decision = await limiter.acquire('zendesk', { account: '42' }, { timeoutMs: 60_000 })
  console.log(decision.allowed ? `call ${i + 1}` : 'gave up')
}

await using units = await limiter.acquire('exports', { account: '42' }, { timeoutMs: 60_000 })
console.log(units.allowed ? 'exporting' : 'five exports are running')
