/** The limits of config.ts, whose size is measured, and one whose numbers each call gives. */
import { defineConfig } from '../../../src/config/define.ts'
import config from './config.ts'

export default defineConfig({
  ...config,
  limits: {
    ...config.limits,
    tenant: [
      {
        ...{ name: 'quota', by: ['tenant'], algorithm: 'gcra', numbers: 'call' },
        max: { limit: 10_000, period: '1m' },
      },
    ],
  },
})
