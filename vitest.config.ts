import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { cloudflareTest } from '@cloudflare/vitest-plugin'
import { defineConfig } from 'vitest/config'
import { parseCLI } from 'vitest/node'
import { excludedFiles, SELECTION } from './test/selection.ts'
import SelectionReporter from './test/support/report-selection.ts'
import { WORKER_BUNDLE } from './test/support/worker-setup.ts'

/** Whether the command line names paths: `npm test -- test/config`. */
const isPart = parseCLI(['vitest', ...process.argv.slice(2)], { allowUnknownOptions: true }).filter.length > 0

const common = { testTimeout: 120_000, hookTimeout: 120_000, restoreMocks: true }

// Packages of other projects have tests of their own.
const leftOut = ['**/node_modules/**', ...excludedFiles(SELECTION, isPart)]

export default defineConfig({
  test: {
    // Tests print summaries that are meant to be read, such as that of a replay.
    silent: false,
    // By default one core is left to watch mode. `npm test` keeps the cores busy with two workers more than cores; with `npm run test:all`,
    // suites wait for processes and deadlines, more than half of their time.
    maxWorkers: SELECTION === 'all' ? 2 * availableParallelism() : availableParallelism() + 2,
    reporters: ['default', new SelectionReporter({ isPart })],
    projects: [
      {
        test: {
          ...common,
          // It packs and installs, which takes most of a minute.
          name: 'package',
          include: ['test/package/**/*.test.ts'],
          exclude: [...leftOut],
          globalSetup: ['test/package/pack.ts'],
          testTimeout: 180_000,
          hookTimeout: 300_000,
        },
      },
      {
        test: {
          ...common,
          name: 'node',
          // Nearly half of the time went into loading the same modules for each file.
          isolate: false,
          include: ['test/**/*.test.ts'],
          exclude: ['test/worker/**', 'test/package/**', ...leftOut],
          env: {
            // Commands are started a hundred times: half of the time of each was spent on stripping the types again.
            NODE_COMPILE_CACHE: join(tmpdir(), 'sluice-compile-cache'),
          },
          // Files share their globals as well: what one replaces must not be left to the next.
          setupFiles: [
            'test/support/leave-no-trace.ts',
            ...(process.env.TEST_COSTS ? ['test/support/measure-costs.ts'] : []),
          ],
          unstubGlobals: true,
          unstubEnvs: true,
        },
      },
      {
        plugins: [
          cloudflareTest(({ inject }) => ({
            main: WORKER_BUNDLE,
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
          ...common,
          // Vitest starts projects in the order of their names. Last, this one would be slow alone, with an idle core.
          name: 'cloudflare',
          include: ['test/worker/**/*.test.ts'],
          exclude: leftOut,
          globalSetup: ['test/support/worker-setup.ts'],
        },
      },
    ],
  },
})
