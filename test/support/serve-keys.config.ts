/** The config of `sluicegate serve` in the test of keys that pass without Redis. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  rules: [{ name: 'minute', by: 'consumer', algorithm: 'fixed-window', limit: 1e6, period: '300d' }],
})
