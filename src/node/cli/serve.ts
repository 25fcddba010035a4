/** `npx sluicegate serve`: the gateway and the API as a server, without Cloudflare. */
import { availableParallelism } from 'node:os'
import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../../config/duration.ts'
import { projectWith } from '../project.ts'
import type { ProcessLog } from '../serve/messages.ts'
import type { ServeVariables } from '../serve/serve-store.ts'
import { parsePort } from './arguments.ts'
import { withExamples } from './help.ts'
import { whenNpmIsGone } from './npm-parent.ts'

interface Flags {
  port: number
  host: string
  workers: number
  drain: number
  config?: string
}

export function serveCommand(): Command {
  const command = new Command('serve')
    .summary('run the gateway as a server, without Cloudflare')
    .description(
      'Run the gateway and the API as a server on Node. The store is the Redis at $REDIS_URL, or $UPSTASH_REDIS_REST_URL with $UPSTASH_REDIS_REST_TOKEN.',
    )
    .option('--port <port>', 'port to listen on', parsePort, 8787)
    .option('--host <address>', 'address to listen on; 0.0.0.0 for all interfaces', '127.0.0.1')
    .addOption(
      new Option('--workers <n>', 'number of processes; auto is one for each core')
        .argParser(parseWorkers)
        .default(availableParallelism(), 'auto'),
    )
    .addOption(
      new Option('--drain <duration>', 'how long requests in flight may delay a stop')
        .argParser(parseDrain)
        .default(30_000, '30s'),
    )
    .addHelpText(
      'after',
      '\nSIGTERM stops it when its requests have ended. SIGHUP replaces its processes one after the other.',
    )
    .action((flags, command) => serve({ ...flags, ...command.parent.opts() }))
  return withExamples(command, 'serve', 'serve --host 0.0.0.0 --workers 4 --drain 60s')
}

/** What keeps it from starting is text, for people. Everything else is JSON, for readers of logs. */
async function serve(flags: Flags): Promise<void> {
  const { writeOnlyJson } = await import('../serve/json-output.ts')
  const { createProcessLog, surviveWithoutLog } = await import('../serve/messages.ts')
  surviveWithoutLog()
  const output = writeOnlyJson()
  try {
    await run(flags, createProcessLog(output))
  } catch (error) {
    output.end()
    throw error
  }
}

async function run({ config: file, port, host, workers, drain }: Flags, log: ProcessLog): Promise<void> {
  const { configFile } = projectWith(file)
  const npmIsGone = new Promise<void>(resolve => void whenNpmIsGone(resolve))
  const { readServeConfig } = await import('../serve/serve-config.ts')
  const { checkVariables } = await import('../serve/serve-store.ts')
  // Checked here, so that what is wrong is said once, and not by each process.
  checkVariables(await readServeConfig(configFile), process.env as ServeVariables)
  const { supervise } = await import('../serve/supervisor.ts')
  void npmIsGone.then(() => process.kill(process.pid, 'SIGTERM'))
  process.exitCode = await supervise({ configFile, port, host, workers, drainMs: drain, log })
}

const MAX_WORKERS = 256

function parseWorkers(text: string): number {
  if (text === 'auto') return availableParallelism()
  const number = Number(text)
  if (/^\d{1,3}$/.test(text) && number >= 1 && number <= MAX_WORKERS) return number
  throw new InvalidArgumentError(`Use auto, or a number from 1 to ${MAX_WORKERS}.`)
}

const MAX_DRAIN = 600e6

/** @returns ms */
function parseDrain(text: string): number {
  const microseconds = parseDuration(text)
  if (microseconds !== undefined && microseconds <= MAX_DRAIN) return microseconds / 1e3
  throw new InvalidArgumentError('Use a duration up to 10m, such as 30s.')
}
