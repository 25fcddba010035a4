/** Every part of the Worker, load shedding included: what it weighs at most (bench/size.ts), and that it runs. */
import { defineConfig } from '../../src/config/define.ts'
import everything from './everything.config.ts'

export default defineConfig({
  ...everything,
  shedding: {
    classes: [
      { name: 'critical', match: { methods: ['POST'] } },
      { name: 'reads' },
      { name: 'test', match: { path: '/test/*' } },
    ],
    fleetUsage: { capacity: 400, adaptive: {} },
    workerUtilization: { signals: ['header', 'push', 'in-flight'] },
  },
})
