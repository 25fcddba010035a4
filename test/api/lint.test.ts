/** The OpenAPI document, linted by an independent tool. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

it('the OpenAPI document has no mistake that redocly finds', async () => {
  const args = ['node_modules/@redocly/cli/bin/cli.js', 'lint', 'docs/openapi.json', '--extends=recommended']
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, {
    cwd: ROOT,
    env: { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
  }).catch(error => error as { stdout: string; stderr: string })
  const said = `${stdout}${stderr}`
  expect(said).toContain('Your API description is valid')
  expect(said).not.toContain('warning')
}, 120_000)
