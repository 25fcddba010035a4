/** Statements that several pages and messages make, compared with the code and with each other. */
import { describe, expect, it } from 'vitest'
import { CallerMemory } from '../../src/credentials/caller-memory.ts'
import { addressStateKey } from '../../src/store/keys.ts'
import { PAGES, readPage } from '../support/pages.ts'

/** Without line breaks, also those of comments. */
const read = (file: string) => readPage(file).replace(/\n(?: *\* | {2,}|# )?(?=\S)/g, ' ')
const MESSAGES = [
  'src/node/cli/check.ts',
  'src/config/check/credentials-schema.ts',
  'src/config/check/schema.ts',
]
const TEXTS = [...PAGES, ...MESSAGES].map(file => [file, read(file)] as const)

describe('keys in an outage', () => {
  it.each(TEXTS)('%s says "admitted" of those that pass', (_, text) => {
    expect(text).not.toMatch(
      /isolate(?: has|s have)? (?:verified|seen|saw|accepted)\b[^.|]*(?:recently|last)/,
    )
    expect(text).not.toMatch(/saw Redis|verified key/)
  })

  it('are 10,000 to 20,000 for each isolate, as failure.md says', () => {
    const memory = new CallerMemory({ seenForMs: 600_000 })
    const credentials = Array.from({ length: 30_500 }, (_, i) => ({
      ...{ digest: `digest ${i}`, consumer: `c${i}` },
      subject: { kind: 'key' as const, consumerKey: `consumer ${i}`, credentialKey: `credential ${i}` },
    }))
    for (const credential of credentials)
      memory.remember(credential, { status: 'admitted', plan: 'free', at: 1 })
    const known = credentials.filter(credential => memory.recall(credential)?.plan !== undefined)
    expect(known.length).toBeGreaterThanOrEqual(10_000)
    expect(known.length).toBeLessThanOrEqual(20_000)
    expect(known.at(-1)).toBe(credentials.at(-1))
    expect(read('docs/failure.md')).toContain(
      'An isolate remembers the last 10,000 to 20,000 keys, and consumers of tokens, that it has admitted.',
    )
  })
})

it('no page promises that a raised limit counts within a second, because the simulation has longer times', () => {
  const rows = [...readPage('docs/internals/simulations.md').matchAll(/^\| a limit is raised \(.*$/gm)]
  const longest = Math.max(
    ...rows.flatMap(([row]) => [...row.matchAll(/(\d+) ms/g)].map(([, ms]) => Number(ms))),
  )
  expect(longest).toBeGreaterThan(1000)
  for (const [file, text] of TEXTS) {
    expect(text, file).not.toMatch(/admitted within a second|takes effect within this time|a second later/)
  }
})

it('the guarantee of each algorithm is limited to the decisions of Redis', () => {
  const page = read('docs/algorithms.md')
  expect(page).toContain('The guarantees below hold for the decisions of Redis')
  const [, concurrency] = /## concurrency\n(.*?)## Numbers/s.exec(page) ?? []
  expect(concurrency).toContain("unless `onStoreFailure` is `'closed'`")
})

it.each(['docs/deploy.md', 'wrangler.toml', 'template/wrangler.toml'])(
  '%s says when not to set a placement',
  file => {
    expect(read(file)).toMatch(
      /Leave it out if most of your callers are near each other and far from the database\./,
    )
  },
)

it('no text says that load shedding as a whole begins with the least important requests', () => {
  for (const [file, text] of [...TEXTS, ['CHANGELOG.md', read('CHANGELOG.md')] as const]) {
    expect(text, file).not.toMatch(/(?:[Rr]efus\w+|shedding of) the least important/)
    expect(text, file).not.toMatch(/: the least important requests get a 503/)
  }
})

it('a rule that counts by route applies to several routes', () => {
  for (const [file, text] of TEXTS) {
    for (const [rule, routes] of text.matchAll(
      /by: \[[^\]]*'route'[^\]]*\][^}]*match: \{ routes: \[([^\]]*)\]/g,
    )) {
      expect(routes!.split(',').length, `${file}: ${rule}`).toBeGreaterThan(1)
    }
  }
})

it('README.md says that the names of keys contain addresses in plain text', () => {
  expect(addressStateKey('192.0.2.7')).toContain('192.0.2.7')
  expect(read('README.md')).toContain(
    'The names of Redis keys contain client addresses (IPv6: the network), consumers, users and headers that rules count by, in plain text.',
  )
})
