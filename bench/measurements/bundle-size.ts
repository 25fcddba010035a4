/** Measures the size of the upload of `wrangler deploy` by its dry run, compressed with gzip, as Cloudflare's limits count it. */
import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { type Findings, kilobytesRow } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const MAX_KB = 60

export async function bundleSize(bed: TestBed): Promise<Findings> {
  const bytes = await dryRun(bed)
  return { rows: [kilobytesRow('Worker bundle as deployed, gzip', bytes, MAX_KB)] }
}

/** Uses a copy of wrangler.toml in a temporary directory, because wrangler writes files into its working directory. */
async function dryRun({ directory }: TestBed): Promise<number> {
  const cwd = join(directory, 'b')
  mkdirSync(cwd)
  // Without the build command, which checks the config and must run in the folder of the project.
  const toml = readFileSync(join(ROOT, 'wrangler.toml'), 'utf8').replace(/^\[build\]\ncommand = .*$/m, '')
  writeFileSync(join(cwd, 'wrangler.toml'), toml)
  const wrangler = join(ROOT, 'node_modules/wrangler/bin/wrangler.js')
  const outdir = join(cwd, 'out')
  const args = [
    ...['deploy', join(ROOT, 'src/index.ts'), '--config', join(cwd, 'wrangler.toml'), '--env='],
    ...['--dry-run', '--outdir', outdir],
  ]
  await promisify(execFile)(process.execPath, [wrangler, ...args], {
    cwd,
    env: {
      ...process.env,
      HOME: cwd,
      XDG_CONFIG_HOME: cwd,
      TMPDIR: cwd,
      // No connections to other machines.
      WRANGLER_HIDE_BANNER: 'true',
      WRANGLER_SEND_METRICS: 'false',
      WRANGLER_WRITE_LOGS: 'false',
    },
  })
  const scripts = readdirSync(outdir).filter(file => /\.(js|mjs|wasm)$/.test(file))
  return scripts.reduce((sum, file) => sum + gzipSync(readFileSync(join(outdir, file))).length, 0)
}
