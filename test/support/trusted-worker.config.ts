/** A config for tests of client addresses that other Workers pass on. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  store: { deadline: '20s' },
  credentials: { accept: ['anonymous'] },
  address: { trustedWorkers: ['storefront'] },
  rules: [{ name: 'address', by: 'address', algorithm: 'fixed-window', limit: 100, period: '300d' }],
})
