/** The gateway as a Worker, from a config and without a build. */
import { defineConfig } from '../../../src/config/define.ts'
import { gateway } from '../../../src/set-ups/gateway/whole-worker.ts'

export default gateway(
  defineConfig({
    store: { deadline: '20s' },
    log: { perSecond: 0 },
    credentials: { accept: ['anonymous'] },
    rules: [{ name: 'hour', by: ['address'], algorithm: 'fixed-window', limit: 2, period: '1d' }],
  }),
)
