/** The config of the two Workers that switches are tested on. A long period: no test hangs on how fast it runs. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  // These machines are busy; the deadline has tests of its own.
  store: { deadline: '5s' },
  rules: [
    { name: 'two', by: 'consumer', algorithm: 'fixed-window', limit: 2, period: '300d' },
    { name: 'none', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d', mode: 'off' },
  ],
})
