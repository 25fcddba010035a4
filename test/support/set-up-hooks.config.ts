/** The limits of set-up-limits.config.ts, with hooks and without `cors`. */
import type { ConfigInput } from '../../src/config/check/schema.ts'
import limits from './set-up-limits.config.ts'

const { cors: _, ...withoutCors } = limits

export default {
  ...withoutCors,
  hooks: {
    identify: request => request.headers.get('x-session'),
    plan: () => 'pro',
    skip: request => new URL(request.url).pathname === '/healthz',
    cost: request => (new URL(request.url).searchParams.has('all') ? 3 : 1),
    refusal: ({ policies }) => Response.json({ slow: policies }, { status: 420 }),
  },
  credentials: { accept: ['identify'] },
  headers: { xRateLimit: 'delta-seconds' },
} satisfies ConfigInput
