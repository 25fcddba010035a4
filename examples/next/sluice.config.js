import { defineConfig } from 'sluicegate'

export default defineConfig({
  credentials: { accept: ['anonymous'] },

  // Next.js reports no address, so a proxy in front of it has to write this header. Without one, clients choose their address.
  address: { from: 'x-forwarded-for', trustedProxies: ['10.0.0.0/8'] },

  // For proxy.js
  rules: [{ name: 'address', by: 'address', algorithm: 'gcra', limit: 5, period: '1m', burst: 5 }],

  // For pages, actions and route handlers
  limits: {
    letters: [{ name: 'letters', by: ['user'], algorithm: 'fixed-window', limit: 3, period: '1d' }],
  },
})
