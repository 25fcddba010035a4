/** The table of fields in docs/units.md is what the code reads. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { NO_TOKENS, type Tokens } from '../../src/usage/tokens.ts'
import type { UsageFormat } from '../../src/usage/usage.ts'
import { createUsageReader } from '../../src/usage/usage-reader.ts'

const page = readFileSync(new URL('../../docs/units.md', import.meta.url), 'utf8')
const table = page.slice(page.indexOf('| field | format | counts as |')).split('\n\n', 1)[0]!
const rows = table
  .split('\n')
  .slice(2)
  .map(row => row.split('|').map(cell => cell.trim()))
  .flatMap(([, fields = '', format = '', countsAs = '']) =>
    fields.split(/, | with /).map(field => ({
      path: /`([^`]+)`/.exec(field)![1]!,
      format: format.replaceAll('`', '') as UsageFormat,
      kind: /^`(\w+)`/.exec(countsAs)?.[1] as keyof Tokens | undefined,
    })),
  )

/** An object with a value at a path such as `choices[0].usage`. */
function at(path: string, value: unknown): Record<string, unknown> {
  const parts = path.split(/\.|(\[0\])/).filter(Boolean)
  return parts.reduceRight((inner, part) => (part === '[0]' ? [inner] : { [part]: inner }), value) as never
}

async function tokensIn(format: UsageFormat, ...events: unknown[]): Promise<Tokens | undefined> {
  const head = { status: 200, headers: new Headers({ 'content-type': 'text/event-stream' }) }
  const reader = createUsageReader({ tokens: { usage: format } }, head)
  for (const event of events) void reader.see(new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`))
  return (await reader.end('complete')).tokens
}

const LEAST = {
  openai: { prompt_tokens: 0 },
  anthropic: { input_tokens: 0 },
  gemini: { promptTokenCount: 0 },
}
/** The member with the usage object. */
const memberOf = (format: UsageFormat) => (format === 'gemini' ? 'usageMetadata' : 'usage')

describe('the table of fields', () => {
  it.each(rows.filter(({ kind }) => kind))(
    '$format: $path counts as $kind',
    async ({ path, format, kind }) => {
      // Cached tokens of OpenAI and Gemini are a part of the prompt.
      const [field] = Object.keys(LEAST[format])
      const isPart = kind === 'cached' && format !== 'anthropic'
      const input = kind === 'input' ? {} : isPart ? { [field!]: 7 } : LEAST[format]
      const tokens = await tokensIn(format, { [memberOf(format)]: { ...input, ...at(path, 7) } })
      expect(tokens).toEqual({ ...NO_TOKENS, [kind!]: 7 })
    },
  )

  it.each(rows.filter(({ path }) => /(^|\.)usage(Metadata)?$/.test(path)))(
    '$format: the object is in $path',
    async ({ path, format }) => {
      const usage = { ...LEAST[format], [format === 'gemini' ? 'candidatesTokenCount' : 'output_tokens']: 3 }
      expect(await tokensIn(format, at(path, usage))).toEqual({ ...NO_TOKENS, output: 3 })
    },
  )

  it('has compactions, in addition', async () => {
    expect(rows.map(({ path }) => path)).toContain('iterations[0]')
    const usage = { input_tokens: 1, iterations: [{ type: 'compaction', input_tokens: 5 }] }
    expect((await tokensIn('anthropic', { usage }))!.input).toBe(6)
  })

  it('has every field that the code reads', () => {
    const code = readFileSync(new URL('../../src/usage/formats.ts', import.meta.url), 'utf8')
    const read = code.match(
      /\b[a-z]+(_[a-z]+)*_(tokens|groq|details)\b|\bcompaction\b|\b(?!is)\w+TokenCount\b/g,
    )!
    expect([...new Set(read)].filter(field => !table.includes(field))).toEqual([])
    expect(new Set(read).size).toBeGreaterThan(9)
  })
})
