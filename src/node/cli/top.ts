/** `npx sluicegate top`: what rules refuse now and whom, on the terminal. */
import { clearScreenDown, cursorTo } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { stripVTControlCharacters } from 'node:util'
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import { topDocument } from '../../ops/documents/stats.ts'
import { readTop, type Top } from '../../ops/top.ts'
import { addStoreOptions, openStore, type StoreFlags } from './administration.ts'
import { parseSeconds } from './arguments.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'
import { alert, print } from './output.ts'
import { topText } from './top-output.ts'
import { unansweredText } from './unanswered.ts'

interface Flags extends StoreFlags {
  once?: boolean
  every: number
}

export function topCommand(load: ConfigLoader): Command {
  return withExamples(
    addStoreOptions(new Command('top'))
      .summary('watch what is refused, and whom')
      .description(
        'Watch what rules refuse and whom: the last 5 minutes, and whether the last minute is better or worse than the four before. Ctrl-C ends it.',
      )
      .option('--once', 'print it once; the default without a terminal, and with --json')
      .option('--every <seconds>', 'how often to read it again', parseSeconds, 5)
      .action(top.bind(null, load)),
    'top',
    'top --once --json',
  )
}

async function top(load: ConfigLoader, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const text = (read: Top) =>
    `${topText(read, config.environment)}${config.stats?.topCallers ? '' : '\n\nCallers are not counted: the config turns off stats or stats.topCallers.'}`
  if (flags.once || flags.json || !process.stdout.isTTY) {
    const read = await readTop(store).catch(error => {
      throw error instanceof AdminError
        ? new AdminError(error.kind, `${unansweredText(error)}\n${UNKNOWN}`, error.nextStep)
        : error
    })
    return print(flags, topDocument(read), () => text(read))
  }
  const stopped = new AbortController()
  process.once('SIGINT', () => stopped.abort())
  await watch({
    read: async () => text(await readTop(store)),
    describe: errorText,
    draw: redraw,
    pause: () =>
      sleep(flags.every * 1000, true, { signal: stopped.signal }).catch(() => !stopped.signal.aborted),
  })
}

interface Watched {
  read(): Promise<string>
  /** What to show instead, if that fails. */
  describe(error: unknown): string
  draw(screen: string): void
  /** @returns whether to go on */
  pause(): Promise<boolean>
}

/** Reads and draws until a pause ends it. */
export async function watch({ read, describe, draw, pause }: Watched): Promise<void> {
  do draw(await read().catch(describe))
  while (await pause())
}

/** As much as the terminal has room for. */
function redraw(screen: string): void {
  const { rows = 24, columns = 80 } = process.stdout
  const lines = screen.split('\n').slice(0, rows - 1)
  cursorTo(process.stdout, 0, 0)
  clearScreenDown(process.stdout)
  for (const line of lines) {
    const plain = stripVTControlCharacters(line)
    process.stdout.write(`${plain.length > columns ? plain.slice(0, columns) : line}\n`)
  }
}

const UNKNOWN =
  'Until it does, it cannot be known what rules refuse, and whom. Without Redis, each rule follows its onStoreFailure.'

function errorText(error: unknown): string {
  if (!(error instanceof AdminError)) throw error
  return [
    `${new Date().toISOString().slice(11, 19)} UTC. ${alert(unansweredText(error))}`,
    UNKNOWN,
    error.nextStep ?? '',
  ].join('\n')
}
