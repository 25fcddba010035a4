/** Starts `sluicegate serve` with one worker. */
import { type ChildProcess, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { cpuSeconds } from '../cpu-time.ts'

const SLUICE = fileURLToPath(new URL('../../src/node/cli/sluice.ts', import.meta.url))

export interface Server {
  url: string
  /** Of the primary process and its worker. */
  cpuSeconds(): number
  close(): Promise<void>
}

/** @param config a file */
export async function startServe(
  config: string,
  env: Record<string, string>,
  guard: (pid: number) => void,
): Promise<Server> {
  const { REDIS_URL: _, UPSTASH_REDIS_REST_URL: __, UPSTASH_REDIS_REST_TOKEN: ___, ...others } = process.env
  const args = ['serve', '--config', config, '--port', '0', '--workers', '1']
  const child: ChildProcess = spawn(process.execPath, ['--no-warnings', SLUICE, ...args], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...others, ...env },
  })
  guard(child.pid!)
  const exited = new Promise(resolve => child.once('exit', resolve))
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout! }).on('line', line => {
      const { event, url } = JSON.parse(line)
      if (event === 'listening') resolve(url)
    })
    child.once('exit', code => reject(new Error(`serve ended with code ${code}.`)))
  })
  const children = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ')
  const pids = [child.pid!, ...children.map(Number)]
  return {
    url,
    cpuSeconds: () => pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0),
    async close() {
      child.kill('SIGTERM')
      await exited
    },
  }
}
