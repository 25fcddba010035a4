/** The config of the two Workers for streams in the soak test: each address may have one stream. */
import { defineConfig } from '../../src/config/define.ts'
import { SOAK_STREAM_TTL_MS, STORE } from './modes.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  originDeadline: '5s',
  credentials: { accept: ['anonymous'] },
  store: STORE,
  stats: { keep: false },
  rules: [
    {
      name: 'stream',
      by: 'address',
      algorithm: 'concurrency',
      limit: 1,
      ttl: `${SOAK_STREAM_TTL_MS}ms`,
      match: { path: '/stream/*' },
      onStoreFailure: 'closed',
    },
  ],
})
