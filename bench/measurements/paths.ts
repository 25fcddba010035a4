/** Measures the CPU time of requests without a credential whose path can be read in many ways, against one with a plain path. */
import { checkedConfig } from '../../src/config/check/check.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { readingsOf } from '../../src/set-ups/http/path.ts'
import { measured } from '../figures.ts'
import { inRounds, median } from '../measure.ts'
import { type Findings, roundsRow } from '../report.ts'

const ROUNDS = 2
const WARM_UP = 25
const REQUESTS = 300
const PATTERNS = 40

const WHY =
  'the slowest paths have thousands of characters. Decoding them costs most, and one without any encoding costs three times as much as a short one.'

const PLAIN = '/v1/things3/7'
const PARTS = ['%2525252f;a%5c.%2f/a;b%2f..%5c%252e%252e//', '%252f..%255c;', '%25252f', '%41x', ';x/', '//']

/** The longest path of a repeated part that is not refused. */
function longestOf(part: string): string {
  let path = `/v1/${part}`
  while (readingsOf(path + part)) path += part
  return path
}

const HOSTILE: Record<string, string> = Object.fromEntries([
  ...PARTS.map(part => [`as many of ${part} as are not refused`, longestOf(part)]),
  [`4,000 characters of ${PARTS[0]}`, `/v1/${PARTS[0]!.repeat(95)}`],
])
const AS_LONG = `/v1/${'x'.repeat(4000)}`

export async function paths(): Promise<Findings> {
  const { info, warn } = console
  const rule = { by: 'address', algorithm: 'fixed-window', limit: 10, period: '1m' } as const
  const numbers = Array.from({ length: PATTERNS }, (_, i) => i)
  const config = checkedConfig({
    origin: 'https://origin.test',
    stats: { keep: false },
    log: { perSecond: 1 },
    routes: numbers.map(i => ({ name: `route${i}`, match: { path: `/v1/things${i}/:id` } })),
    rules: numbers.map(i => ({ ...rule, name: `rule${i}`, match: { path: `/v1/things${i}/*` } })),
  })
  const store = { run: () => Promise.reject(new Error('not reached')), ping: async () => {} }
  const app = createApp(config, store, ALL_PARTS)
  const cpuTime = (path: string) => async () => {
    const before = process.cpuUsage()
    for (let i = 0; i < REQUESTS; i++) await app.fetch(new Request(`https://api.example.com${path}`))
    const { user, system } = process.cpuUsage(before)
    return (user + system) / REQUESTS
  }
  console.info = console.warn = () => {}
  const all = Object.entries({ plain: PLAIN, 'plain, 4,000 characters': AS_LONG, ...HOSTILE }).map(
    ([what, path]) => [what, cpuTime(path)] as const,
  )
  await inRounds(WARM_UP, Object.fromEntries(all))
  const rounds = await inRounds(ROUNDS, Object.fromEntries(all))
  Object.assign(console, { info, warn })
  const hostile = Object.keys(HOSTILE).map(what => rounds[what]!)
  const slowest = hostile.reduce((a, b) => (median(b) > median(a) ? b : a))
  return {
    rows: [
      roundsRow(
        `CPU of a refusal without a credential, ${PATTERNS} routes and ${PATTERNS} rules, the slowest of ${hostile.length} hostile paths`,
        ['plain path', slowest, rounds.plain!],
        { unit: 'µs', digits: 0, most: 5, why: WHY },
      ),
    ],
    tables: [
      {
        title: 'Paths: CPU of a refusal by its path',
        head: ['path', 'µs'],
        rows: Object.entries(rounds).map(([what, values]) => [what, measured(values, { digits: 0 })]),
      },
    ],
    rounds: [{ title: 'CPU of a refusal by its path, µs', columns: rounds }],
  }
}
