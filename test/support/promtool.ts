/** `promtool` of Debian's package `prometheus`: checks metrics, alert rules and their tests. */
import { spawnSync } from 'node:child_process'

const found = spawnSync('promtool', ['--version'])

export const hasPromtool = found.status === 0

/** For the titles of suites that need it. */
export const WITHOUT_PROMTOOL = hasPromtool
  ? ''
  : ' (skipped: promtool is not installed; apt-get install prometheus)'

if (!hasPromtool && process.env.SLUICE_REQUIRE_PROMTOOL) {
  throw new Error(
    'SLUICE_REQUIRE_PROMTOOL is set, and promtool is not on the PATH: apt-get install prometheus',
  )
}

/** @returns what it prints. @throws Error with that, if it fails */
export function promtool(args: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync('promtool', args, { input, encoding: 'utf8' })
  if (status !== 0) throw new Error(`promtool ${args.join(' ')} failed:\n${stdout}${stderr}`)
  return stdout + stderr
}
