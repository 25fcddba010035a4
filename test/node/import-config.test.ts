/** Config files that never finish loading, and commands whose process ends early. The commands run in processes, as for a user. */

import { spawnSync } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { importConfig } from '../../src/node/import-config.ts'
import { environmentWith, runInProcess, runProcess, SLUICE } from '../support/command-line.ts'

let directory: string
let files = 0
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'sl-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

/** A name of its own, because Node imports each file once. */
function configFile(text: string): string {
  const file = join(directory, `never-${++files}.config.ts`)
  writeFileSync(file, text)
  return file
}

const STORE = { UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:1', UPSTASH_REDIS_REST_TOKEN: 'x' }
const SILENT = 'await new Promise(() => {})\nexport default {}\n'
const EXITS = '\nprocess.exit(0)\nexport default {}\n'

describe('a command whose config never finishes loading', () => {
  it.each([
    ['check', SILENT, 'it awaits something that does not end'],
    ['check', EXITS, 'it calls process.exit'],
    ['keys create --consumer acme', SILENT, 'it awaits something that does not end'],
    ['keys create --consumer acme', EXITS, 'it calls process.exit'],
    [
      'consumers block acme --yes',
      "import { exit } from 'node:process'\nexit()\nexport default {}\n",
      'it calls process.exit',
    ],
  ])('%s fails and names the file: %j', async (command, text, why) => {
    const file = configFile(text)
    const { code, stdout, stderr } = await runProcess([...command.split(' '), '--config', file], STORE)
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr).toMatch(new RegExp(`^${file}(:2)?: The file never finishes loading: ${why}`))
  })

  it.each([SILENT, EXITS])('is described by check --json: %j', async text => {
    const { code, stdout } = await runProcess(['check', '--json', configFile(text)])
    expect(code).toBe(1)
    expect(JSON.parse(stdout)).toMatchObject({
      valid: false,
      mistakes: [{ message: expect.stringMatching(/^The file never finishes loading: /) }],
    })
  })

  it('does not wait for ever if something else keeps the process running, as in npm start', async () => {
    const { exit } = process
    await expect(importConfig(configFile(SILENT), '', 1)).rejects.toThrow(/never finishes loading/)
    expect(process.exit).toBe(exit)
  })

  it.each([
    [
      'during',
      'globalThis.fetch = () => process.exit(0)',
      'The process ended before the command did its work.\n',
    ],
    [
      'after',
      "process.on('beforeExit', () => process.exit(0))",
      'The store at 127.0.0.1:1 cannot be reached.',
    ],
  ])('fails if the config ends the process %s the work of the command', async (_, line, message) => {
    const file = configFile(`${line}\nexport default {}\n`)
    const { code, stderr } = await runProcess(['keys', 'list', '--config', file], STORE)
    expect([code, stderr]).toEqual([1, expect.stringContaining(message)])
  })
})

it.each([
  '(async () => ({}))()',
  "new Map([['origin', 'route']])",
  "Object.create({ origin: 'route' })",
  '{ hooks: Promise.resolve({}) }',
])('check does not accept settings that it cannot see: %s', async text => {
  const { code, stderr } = await runInProcess(['check', configFile(`export default ${text}\n`)])
  expect([code, stderr]).toEqual([1, expect.stringContaining(' is not a plain object. ')])
})

it('a getter that throws is a mistake with its path, also in check --json', async () => {
  const file = configFile("export default { get origin() { throw new Error('no DNS') } }\n")
  const { code, stdout } = await runInProcess(['check', '--json', file])
  expect(code).toBe(1)
  const message = 'cannot be read: no DNS. Write the value.'
  expect(JSON.parse(stdout)).toEqual({ valid: false, mistakes: [{ path: 'origin', message }], warnings: [] })
})

describe.skipIf(process.platform !== 'linux')('a command that cannot write its result', () => {
  it('fails with one line', () => {
    const full = openSync('/dev/full', 'w')
    try {
      const { status, stderr } = spawnSync(process.execPath, [SLUICE, '--help'], {
        env: environmentWith({}),
        stdio: ['ignore', full, 'pipe'],
        encoding: 'utf8',
      })
      expect([status, stderr]).toEqual([
        1,
        expect.stringMatching(/^Standard output cannot be written: ENOSPC.*\n$/),
      ])
    } finally {
      closeSync(full)
    }
  })
})
