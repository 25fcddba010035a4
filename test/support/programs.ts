/** `npx sluicegate start` as a program of its own, with all its temporary files in a directory of the test. */
import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect } from 'vitest'
import { environmentWith, runProcess, SLUICE } from './command-line.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** Any free ports, so that test files do not disturb each other. */
export const PORTS = ['--port', '0', '--bridge-port', '0', '--origin-port', '0']

export interface Started {
  child: ChildProcess
  /** The demo key. */
  key: string
  url: string
  /** What it has printed until now, on both streams. */
  output(): string
  exited: Promise<number | null>
}

export class Programs {
  /** All temporary files of a test go here, so that it can detect files that are left behind. */
  directory = ''
  readonly #running: ChildProcess[] = []

  environment = (env: Record<string, string> = {}) => environmentWith({ TMPDIR: this.directory, ...env })

  run = (args: string[], env: Record<string, string> = {}) =>
    runProcess(args, { TMPDIR: this.directory, ...env })

  /** Ends a program that a failed test has left running. */
  endLater(child: ChildProcess): void {
    this.#running.push(child)
  }

  endAll(): void {
    for (const child of this.#running.splice(0)) child.kill('SIGKILL')
  }

  /** @param project the folder with the sources; default: this repository */
  async start(
    args: string[] = [],
    env: Record<string, string> = {},
    project?: string,
    ports: readonly string[] = PORTS,
  ): Promise<Started> {
    const program = project ? join(project, 'src/node/cli/sluice.ts') : SLUICE
    const child = spawn(process.execPath, [program, 'start', ...ports, ...args], {
      cwd: project,
      env: this.environment(env),
      stdio: 'pipe',
    })
    this.endLater(child)
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', data => {
        output += data
      })
    }
    await expect.poll(() => output, { timeout: 50_000, interval: 20 }).toContain('Sluice is ready on http')
    const [, key = ''] = /Demo key: (\S+)/.exec(output) ?? []
    const [, url = ''] = /ready on (\S+)/.exec(output) ?? []
    return {
      child,
      key,
      url,
      output: () => output,
      exited: new Promise<number | null>(resolve => child.once('exit', resolve)),
    }
  }

  /** A copy of this repository, whose files a test can change. */
  copyOfProject(): string {
    const project = mkdtempSync(join(this.directory, 'project-'))
    for (const name of ['src', 'package.json', 'wrangler.toml', 'sluice.config.ts'])
      cpSync(join(ROOT, name), join(project, name), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules'), join(project, 'node_modules'))
    return project
  }
}

/** Provides programs to the tests of a file. Call it there. */
export function usePrograms(): Programs {
  const programs = new Programs()
  beforeEach(() => {
    programs.directory = mkdtempSync(join(tmpdir(), 'sl-'))
  })
  afterEach(() => {
    programs.endAll()
    rmSync(programs.directory, { recursive: true, force: true, maxRetries: 5 })
  })
  return programs
}
