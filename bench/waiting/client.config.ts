/** The config of the gateway that the calls of `sluicegate/client` go through. */
import { defineConfig } from '../../src/config/define.ts'

export const AT_ONCE = 20

export default defineConfig({
  origin: 'https://origin.invalid',
  credentials: { accept: ['anonymous'] },
  store: { deadline: '5s' },
  log: { perSecond: 0 },
  rules: [{ name: 'at-once', by: 'global', algorithm: 'concurrency', limit: AT_ONCE, ttl: '60s' }],
})
