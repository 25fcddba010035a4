/**
 * A config that uses every part of the Worker except leases and addresses from trusted Workers. It tests the size
 * of this Worker (bench/size.ts), and that the Worker runs.
 */
import { defineConfig } from '../../src/config/define.ts'
import everything from './everything.config.ts'

export default defineConfig({
  ...everything,
  // On a busy machine, a decision can take longer than the default deadline.
  store: { ...everything.store, deadline: '20s' },
  credentials: {
    ...everything.credentials,
    webSocketKeys: true,
    accept: ['api-key', 'internal', 'access', 'opaque-key', 'identify', 'anonymous'],
  },
  headers: { xRateLimit: 'unix-seconds' },
  metrics: {},
  hooks: {
    identify: request => request.headers.get('x-user'),
    skip: () => false,
    plan: () => undefined,
    cost: (_, { cost }) => cost,
    refusal: () => undefined,
  },
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
