/** The gateway whose API the command line uses in tests, and the config of the command line without it. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  plans: ['free', 'pro'],
  credentials: { opaqueKeys: {} },
  store: { deadline: '20s' },
  rules: [
    { name: 'minute', by: 'consumer', algorithm: 'gcra', limit: 60, period: '1m' },
    { name: 'day', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: 'day' },
  ],
  limits: { sms: [{ name: 'week', by: ['account'], algorithm: 'fixed-window', limit: 5, period: '7d' }] },
  api: { routes: 'all' },
})
