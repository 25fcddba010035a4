/**
 * The config of `sluicegate serve` in tests of its processes. Windows are longer than any test, and nothing is admitted without the store,
 * so the store has counted everything that the origin receives. The deadline is long, so that no decision is lost on a busy machine.
 */
import cluster from 'node:cluster'
import { defineConfig } from '../../src/config/define.ts'

const window = { by: 'address', algorithm: 'fixed-window', limit: 1e6, period: '300d' } as const

// For the test of workers that die soon after they were ready.
if (cluster.isWorker && process.env.TEST_CRASHES) {
  const send = process.send!
  process.send = ((message: { type?: string }, ...rest: []) => {
    setTimeout(() => {
      if (message.type === 'ready') throw new Error('a bug in the config')
    }, 50)
    return send.call(process, message, ...rest)
  }) as typeof send
}

// For the test of the log. Each process loads the config.
if (process.env.TEST_WRITES) {
  const who = cluster.isWorker ? 'worker' : 'primary'
  console.log('%s\nsays', who)
  console.log(JSON.stringify({ level: 'info', event: 'forged', who }))
  process.stderr.write(`${who} on standard error\n`)
  process.emitWarning(`of a ${who}`)
}

export default defineConfig({
  origin: 'https://origin.invalid',
  credentials: { accept: ['anonymous'] },
  store: { deadline: '20s', breaker: false },
  onStoreFailure: 'closed',
  api: {},
  metrics: {},
  rules: [
    { ...window, name: 'counted' },
    { ...window, name: 'leased', lease: { for: '1s' }, match: { path: '/leased' } },
    {
      ...{ name: 'in-flight', by: 'address', algorithm: 'concurrency', limit: 1000, ttl: '3s' },
      match: { path: '/held' },
    },
  ],
  limits: { sms: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 100, period: '1d' }] },
})
