/** One run of the benchmark, and how it is started in a process of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Part } from './report.ts'
import { MEASUREMENTS, type Name } from './sections.ts'
import { startTestBed } from './test-bed.ts'

/** @throws NoRedis without a redis-server */
export async function measureParts(names: readonly Name[]): Promise<Part[]> {
  const bed = await startTestBed()
  try {
    const parts: Part[] = []
    for (const name of names) {
      const startedAt = performance.now()
      const measurement = await MEASUREMENTS[name]()
      parts.push({ name, findings: await measurement(bed) })
      console.error(`${name}: ${((performance.now() - startedAt) / 1000).toFixed(0)} s`)
      // Every part begins with an empty Redis.
      await bed.redis.send(['FLUSHALL', 'SYNC'])
    }
    return parts
  } finally {
    await bed.close()
  }
}

export interface Run {
  parts: readonly string[]
  /** From 0. */
  number: number
  instructions?: boolean | undefined
}

/**
 * Starts `bench.ts --run` in a process of its own, which measures the parts once.
 * @param folder whose source is measured
 * @throws Error if it fails. Its own error is on stderr.
 */
export async function startRun(folder: string, { parts, number, instructions }: Run): Promise<Part[]> {
  const words = ['--no-warnings', join(folder, 'bench/bench.ts'), '--run', String(number), '--only', ...parts]
  if (instructions) words.push('--instructions')
  const child = spawn(process.execPath, words, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] })
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
  if (code !== 0) throw new Error(`The benchmark does not run with the source of ${folder}.`)
  return JSON.parse(output)
}
