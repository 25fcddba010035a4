/** A limit for all callers together, by each algorithm: several processes share it (test/e2e/client.test.ts). */
import { defineConfig } from '../../src/config/define.ts'
import { PACED_ALGORITHMS, PACED_LIMIT } from './pacing-limit.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  credentials: { accept: ['anonymous'] },
  store: { deadline: '20s', breaker: false },
  stats: { keep: false },
  rules: PACED_ALGORITHMS.map(algorithm => ({
    ...{ name: algorithm, by: 'global' as const, algorithm, limit: PACED_LIMIT, period: '1s' as const },
    match: { path: `/${algorithm}` },
  })),
})
