/** The config of the two Workers for tests of live switches. The periods are long, so that no test depends on its speed. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  // Long, because test machines are busy. Other tests are about the deadline.
  store: { deadline: '20s' },
  rules: [
    { name: 'two', by: 'consumer', algorithm: 'fixed-window', limit: 2, period: '300d' },
    { name: 'none', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d', mode: 'off' },
  ],
})
