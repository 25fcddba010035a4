/**
 * Records docs/pictures/terminal.svg for README.md: `npm run recording`. It runs `npm start`, then the commands in a shell, and draws
 * what they print on standard output. It needs curl.
 *
 * What differs from a terminal, so that the picture names nothing of the machine:
 *
 * - `npm start` gets free ports by flags that the picture leaves out. Ports are drawn as `…`.
 * - The demo key is drawn as `slk_demo_…`, the token of the store as `…`, folders of the machine as `…`.
 * - Of what `npm start` prints, the banner of npm is left out, and an `…` stands for the commands to paste. The requests are
 *   sent with the command that it prints for fifteen requests.
 * - Long commands continue in an indented row.
 * - The times are those of the animation (draw-terminal.ts). The dates are those of the recording.
 *
 * Two rules of the shipped config refuse after ten requests: `consumer-second` and `address-second`. Both are switched to shadow.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { drawTerminal, type Entry, isStatuses } from './draw-terminal.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PICTURE = new URL('terminal.svg', import.meta.url)
const TITLE = 'A session with Sluice in a terminal'
const DESCRIPTION =
  'npm start runs Sluice with a Redis and a demo origin, and prints a demo key. Of fifteen requests with that key, the first get 200 ' +
  'and the last get 429. Two commands switch the rules that refused to shadow, without a deployment. Then all of fifteen requests get 200.'

/** An isolate keeps its copy of the live switches for one second. */
const SWITCHED_MS = 1100
const START_MS = 60_000

/** What `npm start` prints and the other commands need. */
interface Started {
  lines: readonly string[]
  /** The command that sends fifteen requests. */
  requests: string
  url: string
  token: string
}

async function record(): Promise<Entry[]> {
  const environment = environmentOfUser()
  const server = spawn('npm', ['start', '--', '--port', '0', '--bridge-port', '0', '--origin-port', '0'], {
    ...{ cwd: ROOT, env: environment, detached: true },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    const started = await startedBy(server)
    const trim = (text: string) => trimmed(text, started.token)
    const settings = `export UPSTASH_REDIS_REST_URL=${started.url} UPSTASH_REDIS_REST_TOKEN=${started.token}`
    const run = async (command: string): Promise<Entry[]> => {
      // A shell for each command, so each gets the settings.
      const { stdout } = await promisify(execFile)('sh', ['-c', `${settings}\n${command}`], {
        ...{ cwd: ROOT, env: environment },
      })
      const lines = stdout.trimEnd().split('\n')
      return [
        { kind: 'command', text: trim(command) },
        ...lines.map((line): Entry => ({ kind: 'output', text: trim(line).trimEnd() })),
      ]
    }

    const refused = await run(started.requests)
    mustBe(refused, '200 429')
    const switched = [
      ...(await run('npx sluicegate switch rule consumer-second shadow --by ops')),
      ...(await run('npx sluicegate switch rule address-second shadow --by ops')),
    ]
    await sleep(SWITCHED_MS)
    const allowed = await run(started.requests)
    mustBe(allowed, '200')

    const pause: Entry = { kind: 'pause', text: '' }
    return [
      { kind: 'command', text: 'npm start' },
      ...started.lines.map((line): Entry => ({ kind: 'output', text: trim(line) })),
      ...[pause, { kind: 'note', text: '# in another terminal' } as const],
      ...refused,
      ...[pause, { kind: 'command', text: trim(settings) } as const],
      ...switched,
      ...[pause, ...allowed],
    ]
  } finally {
    await stopped(server)
  }
}

/** The environment without the variables that would select another store or another environment of Sluice. */
function environmentOfUser(): NodeJS.ProcessEnv {
  const { UPSTASH_REDIS_REST_URL: _, UPSTASH_REDIS_REST_TOKEN: __, ...others } = process.env
  const { REDIS_URL: ___, SLUICE_ENVIRONMENT: ____, ...environment } = others
  return { ...environment, NODE_NO_WARNINGS: '1' }
}

async function startedBy(server: ChildProcess): Promise<Started> {
  let printed = ''
  server.stdout!.setEncoding('utf8')
  // Without a listener the pipe fills up, and the server waits.
  server.stdout!.on('data', text => {
    printed += text
  })
  const lastLine = /^Sluice is ready on .*$/m
  for (let left = START_MS; !lastLine.test(printed); left -= 100) {
    if (left <= 0 || server.exitCode !== null)
      throw new Error(
        `npm start ended, or is not ready after ${START_MS / 1000} s. It has printed:\n${printed}`,
      )
    await sleep(100)
  }
  const found = (pattern: RegExp) => {
    const match = pattern.exec(printed)
    if (!match) throw new Error(`npm start prints no ${pattern} any more: adapt record-terminal.ts.`)
    return match[1] ?? match[0]
  }
  return {
    lines: [
      ...[found(/^Redis .*$/m), found(/^Bridge .*$/m), found(/^Origin .*$/m), found(/^Demo key: .*$/m)],
      ...['…', found(lastLine)],
    ],
    requests: found(/^Send fifteen in a row:\n +(.*)$/m),
    url: found(/UPSTASH_REDIS_REST_URL=(\S+)/),
    token: found(/UPSTASH_REDIS_REST_TOKEN=(\S+)/),
  }
}

/** As Ctrl-C does: the signal goes to npm and to everything below it. */
async function stopped(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.pid === undefined) return
  const end = new Promise(resolve => server.once('exit', resolve))
  process.kill(-server.pid, 'SIGINT')
  await end
}

/** Ports, keys, the token and folders in a stable form. */
export function trimmed(text: string, token: string): string {
  return text
    .replaceAll(token, '…')
    .replaceAll(/(127\.0\.0\.1|localhost):\d+/g, '$1:…')
    .replaceAll(/slk_demo_\w+/g, 'slk_demo_…')
    .replaceAll(ROOT, '…/')
    .replaceAll(tmpdir(), '…')
}

/** The statuses in the output, each run of equal ones once. */
export function statusesOf(entries: readonly Entry[]): string {
  const all = entries.flatMap(({ kind, text }) =>
    kind === 'output' && isStatuses(text) ? text.split(' ') : [],
  )
  return all.filter((status, i) => status !== all[i - 1]).join(' ')
}

/** On a slow machine the budget of a second comes back while the requests are sent. */
function mustBe(entries: readonly Entry[], expected: string): void {
  const statuses = statusesOf(entries)
  if (statuses === expected) return
  throw new Error(
    `The requests got ${statuses || 'no status'}, expected ${expected}. Run it again on an idle machine.`,
  )
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(PICTURE, drawTerminal(await record(), TITLE, DESCRIPTION))
  console.log('Made terminal.svg.')
}
