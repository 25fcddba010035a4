/** The config of a `serve` that gets thousands of calls at once, with the usual deadline. Nothing is refused, so each call needs the store. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  credentials: { accept: ['anonymous'] },
  api: {},
  rules: [{ name: 'address', by: 'address', algorithm: 'fixed-window', limit: 1e6, period: '1d' }],
  limits: { sms: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 1e6, period: '1d' }] },
})
