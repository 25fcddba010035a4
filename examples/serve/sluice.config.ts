import { defineConfig } from 'sluicegate'

export default defineConfig({
  // The variable ORIGIN_URL replaces it.
  origin: 'http://127.0.0.1:9000',

  // The proxy in front. Without a proxy, leave it out: the address is then that of the connection.
  address: { from: 'x-forwarded-for', trustedProxies: ['127.0.0.1', '172.16.0.0/12'] },

  // docs/api.md lists what it can do. Callers need a service token: npx sluicegate tokens create
  api: { routes: 'all' },

  rules: [
    { name: 'consumer-second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
    { name: 'address-minute', by: 'address', algorithm: 'fixed-window', limit: 120, period: '1m' },
  ],
})
