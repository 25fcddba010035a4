/** The config of the measured server: no limit is reached, except on /refused, whose refusals are not remembered. */
import { defineConfig } from '../../src/config/define.ts'

const WIDE = { algorithm: 'gcra', limit: 1e6, period: '1s' } as const

export default defineConfig({
  origin: 'https://origin.invalid',
  credentials: { accept: ['anonymous'] },
  store: { deadline: '5s' },
  log: { perSecond: 0 },
  refusals: { rememberFor: 0 },
  api: {},
  rules: [
    { name: 'address-second', by: 'address', ...WIDE },
    {
      ...{ name: 'refused', by: 'address', algorithm: 'fixed-window', limit: 1, period: '300d' },
      match: { path: '/refused' },
    },
  ],
  limits: { calls: [{ name: 'second', by: ['account'], ...WIDE }] },
})
