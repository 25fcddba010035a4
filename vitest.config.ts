import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { cloudflareTest } from '@cloudflare/vitest-plugin'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    // The summary of a replay is printed by its test and meant to be read.
    silent: false,
    // By default one core is left to watch mode, which on two cores leaves one. Suites wait for Redis, for deadlines, and for
    // processes that they start, more than half of their time.
    maxWorkers: 2 * availableParallelism(),
    projects: [
      // It packs and installs, which takes most of a minute: npm run test:package. CI runs it.
      ...(process.env.PACKAGE
        ? [
            {
              test: {
                name: 'package',
                include: ['test/package/**/*.test.ts'],
                testTimeout: 180_000,
                hookTimeout: 300_000,
              },
            },
          ]
        : []),
      {
        test: {
          name: 'node',
          // Nearly half of the time went into loading the same modules for each file.
          isolate: false,
          include: ['test/**/*.test.ts'],
          exclude: ['test/worker/**', 'test/package/**'],
          // Commands are started a hundred times: half of the time of each was spent on stripping the types again.
          env: { NODE_COMPILE_CACHE: join(tmpdir(), 'sluice-compile-cache') },
          testTimeout: 120_000,
          hookTimeout: 120_000,
          // Files share their globals as well: what one replaces must not be left to the next.
          setupFiles: ['test/support/leave-no-trace.ts'],
          restoreMocks: true,
          unstubGlobals: true,
          unstubEnvs: true,
        },
      },
      {
        plugins: [
          cloudflareTest(({ inject }) => ({
            wrangler: { configPath: './wrangler.toml' },
            miniflare: {
              bindings: {
                UPSTASH_REDIS_REST_URL: inject('restUrl'),
                UPSTASH_REDIS_REST_TOKEN: inject('restToken'),
                ORIGIN_URL: inject('originUrl'),
              },
            },
          })),
        ],
        test: {
          name: 'workerd',
          include: ['test/worker/**/*.test.ts'],
          globalSetup: ['test/support/worker-setup.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          restoreMocks: true,
        },
      },
    ],
  },
})
