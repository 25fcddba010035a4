/** The start of the command line on a Node that is too old for it. */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, it } from 'vitest'

const BIN = fileURLToPath(new URL('../../bin/', import.meta.url))

let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'sl-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

/** Runs a copy of the program whose package.json needs this version of Node. */
async function runWith(needed: string): Promise<{ code: number; stderr: string }> {
  cpSync(BIN, join(directory, 'bin'), { recursive: true })
  writeFileSync(
    join(directory, 'package.json'),
    JSON.stringify({ type: 'module', engines: { node: `>=${needed}` } }),
  )
  return new Promise(resolve => {
    execFile(process.execPath, [join(directory, 'bin/sluicegate.js'), 'build'], (error, _, stderr) =>
      resolve({ code: Number(error?.code ?? 0), stderr }),
    )
  })
}

it.each(['99.18', `${process.versions.node.split('.')[0]}.999`])(
  'a Node older than %s gets one line that names the version',
  async needed => {
    const stderr = `sluicegate needs Node ${needed} or newer. This is Node ${process.versions.node}.\n`
    expect(await runWith(needed)).toEqual({ code: 1, stderr })
  },
)

it.each(['18.99', process.versions.node.split('.').slice(0, 2).join('.')])(
  'a Node that is at least %s loads the commands',
  async needed => {
    // The copy has no commands.
    expect((await runWith(needed)).stderr).toMatch(/Cannot find module .*cli.sluice\.js/)
  },
)
