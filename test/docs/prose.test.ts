/** The prose linter (docs/style): each rule on a bad and a good sentence, and the parts of a page and of a source file that it reads. */
import { describe, expect, it } from 'vitest'
import { findingsInComments, findingsInMarkdown } from '../../docs/programs/style/check-prose.ts'
import { MAX_SENTENCE_WORDS } from '../../docs/programs/style/style.ts'

const rulesOf = async (markdown: string) => (await findingsInMarkdown(markdown)).map(({ rule }) => rule)
const words = (count: number) => Array.from({ length: count }, (_, index) => `w${index}`).join(' ')

describe('a rule finds the bad sentence and passes the good one', () => {
  it.each([
    ['phrase', 'Who can write to the store can switch.', 'Anyone with write access can change switches.'],
    ['phrase', 'It is off; who wants it sets `on`.', 'It is off; to use it, set `on`.'],
    ['phrase', 'What is left out is as in the rule.', 'Absent numbers are those of the rule.'],
    [
      'phrase',
      "What is asked with one bypasses the zone's cache.",
      'Requests with a credential bypass it. What is stored?',
    ],
    ['phrase', 'None of ours switches nothing.', 'Unrecognized content is ignored.'],
    ['phrase', 'What Redis says, it says in its turn.', 'Redis replies in order.'],
    ['phrase', 'Whoever has it can read all data.', 'Anyone who has it can read all data.'],
    ['phrase', 'Nobody comes in: 503.', 'No caller is admitted: 503.'],
    ['phrase', 'It is skipped where there is none.', 'It is skipped without one.'],
    ['phrase', 'A token that is none is refused.', 'A string that is not a token is refused.'],
    ['phrase', '`5x` is no duration.', '`5x` is not a valid duration, and is no longer accepted.'],
    ['phrase', '`peek` tells of the config.', '`peek` shows the config.'],
    ['phrase', 'The process is told which port to use.', 'The process gets its port as an argument.'],
    ['phrase', 'Before the store is asked, it is checked.', 'Sluice checks it before it queries the store.'],
    ['phrase', 'It is used in the place of `a`.', 'It is used instead of `a`, in place of `b`.'],
    ['phrase', 'It is used where Redis cannot be had.', 'It is used where Redis is not available.'],
    ['phrase', 'It does not notice a lost connection.', 'It does not detect a lost connection.'],
    ['phrase', 'The config is right.', 'The config is valid.'],
    ['phrase', 'Users stumbled over it.', 'Users did not find the setting.'],
    ['phrase', 'How long ago is not long ago.', 'How long a verified key stays trusted.'],
    ['word', 'It waits whilst it reads.', 'It waits while it reads.'],
    ['word', 'A key amongst others.', 'A key among others.'],
    ['word', 'The key, or a part thereof.', 'The key, or a part of it.'],
    ['word', 'It starts anew.', 'It starts again.'],
    ['word', 'It stops upon an error.', 'It stops on an error.'],
    ['word', 'It utilizes a lease.', 'It uses a lease. Utilization is a number.'],
    ['word', 'Set it in order to begin.', 'Set it to begin. Keep the rules in order.'],
    ['word', 'Simply run it.', 'Run it.'],
    ['word', 'Just run it.', 'The store has just refused it, just before noon.'],
    ['term', 'A ratelimiter for edges.', 'A rate limiter. See `@upstash/ratelimit` and hono-rate-limiter.'],
    ['term', 'It runs on NodeJS.', 'It runs on Node.'],
    ['term', 'Send an api key.', 'Send an API key as `api-key`, in src/api-key.ts.'],
    ['term', 'Start redis first.', 'Start Redis first: redis-server, at redis://localhost.'],
    ['term', 'Open a websocket.', 'Open a WebSocket.'],
    ['term', 'It goes to the upstream.', 'It goes to the origin.'],
    ['term', 'The behaviour is recognised.', 'The behavior is recognized.'],
    ['sentence-length', `${words(MAX_SENTENCE_WORDS + 1)}.`, `${words(MAX_SENTENCE_WORDS)}.`],
    ['doubled-word', 'It asks the\nthe store.', 'He had had it, and said that that is 10 10.'],
  ])('%s: %s', async (rule, bad, good) => {
    expect(new Set(await rulesOf(bad))).toEqual(new Set([rule]))
    expect(await rulesOf(good)).toEqual([])
  })
})

describe('sentences', () => {
  const half = words(30)

  it('count inline code, links and URLs as they are read', async () => {
    expect(await rulesOf(`${half} [one two](https://example.com/a) \`a b c d\` ${words(12)}.`)).toEqual([])
    expect(await rulesOf(`${half} [one two](https://example.com/a) \`a b c d\` ${words(13)}.`)).toHaveLength(
      1,
    )
    expect(await rulesOf(`${half} https://example.com/a-b ![a b c](c.svg) — → ${words(13)}.`)).toEqual([])
  })

  it.each([
    ['a full stop', `${half}. The ${half}.`, 0],
    ['a full stop in brackets', `${half} (as such.) The ${half}.`, 0],
    ['a full stop before code', `${half}. \`a\` ${half}.`, 0],
    ['a line break in a table', `| a |\n|---|\n| ${half}<br>${half} |`, 0],
    ['not a semicolon', `${half}; ${half}.`, 1],
    ['not an abbreviation', `${half}, e.g. \`a\` ${half}.`, 1],
  ])('end at %s', async (_, text, count) => {
    expect(await rulesOf(text)).toHaveLength(count)
  })
})

describe('of a page', () => {
  const bad = 'It waits whilst it reads'

  it.each([
    ['headings', `## ${bad}`, 1],
    ['items', `- a\n- ${bad}`, 1],
    ['cells', `| a | b |\n|---|---|\n| \`x\` | ${bad} |`, 1],
    ['links', `[${bad}](a.md)`, 1],
    ['bold text', `**${bad}**`, 1],
    ['output', `\`\`\`text\nok\n${bad}\n\`\`\``, 1],
    ['no other code', `\`\`\`ts\n// ${bad}\n\`\`\`\n\n\`${bad}\``, 0],
    ['no comments', `<!-- ${bad} -->`, 0],
  ])('it reads %s', async (_, page, count) => {
    expect(await rulesOf(page)).toEqual(Array(count).fill('word'))
  })

  it('accepts a heading that is a question word and a clause', async () => {
    expect(await rulesOf('## Who calls')).toEqual([])
    expect(await rulesOf('Who calls')).toEqual(['phrase'])
  })

  it('reports the place, the mistake and the fix', async () => {
    expect(await findingsInMarkdown('# Title\n\nA `key`, [used](a.md)\nin the place of another.\n')).toEqual([
      { rule: 'phrase', message: '"in the place of": write "instead of".', line: 4, column: 1 },
    ])
  })
})

describe('of a source file', () => {
  const placesOf = async (source: string) =>
    (await findingsInComments(source)).map(({ line, column }) => `${line}:${column}`)

  it.each([
    ['a line comment', '\n  // It waits whilst it reads.', ['2:15']],
    ['one beside code', "const a = '//' // Whilst it reads.", ['1:19']],
    ['a docstring', '/**\n * It waits\n * whilst it reads.\n */', ['3:4']],
    ['one on a line', '/** Whilst. */ const a = 1 /* whilst */', ['1:5', '1:31']],
    ['a parameter', '/**\n * A.\n * @param a whilst it reads\n */', ['3:13']],
    ['lines together', '// Who calls\n// what?', []],
    ['lines apart', '// Who calls\n\n// what?', ['1:4']],
    ['no code', "const whilst = 'whilst' // while", []],
    ['no string', `const a = '// whilst' + \`/* whilst \${'//'} \${\`// whilst\`}\``, []],
    [
      'no regular expression',
      'const a = [/\\/\\/ whilst/, /[/*] whilst/]\nconst b = 4 / 2 // whilst',
      ['2:20'],
    ],
    ['no example', '/**\n * A.\n *\n *     whilst()\n */', []],
    ['no directive', '// biome-ignore lint/a: whilst', []],
  ])('it reads %s', async (_, source, places) => {
    expect(await placesOf(source)).toEqual(places)
  })
})
