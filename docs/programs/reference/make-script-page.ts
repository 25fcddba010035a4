/**
 * Writes the Lua in docs/internals/script.md: the script of the rules in bench/rules.ts, cut where the page explains it. `npm run reference`
 * runs this; test/docs/script.test.ts fails when the page is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { sixRules } from '../../../bench/rules.ts'
import { checkedConfig } from '../../../src/config/check/check.ts'
import { gatewayRuleSet } from '../../../src/script/compiled.ts'
import { decideText } from '../../../src/script/rule-set-text.ts'

export const PAGE = new URL('../../internals/script.md', import.meta.url)

/** Where each part of the page begins in the script, in its order. */
const PARTS = [
  ['library', 'local redis'],
  ['arguments', 'verb = ARGV'],
  ['keys', 'place = '],
  ['caller', "plan = ''\nif subject"],
  ['numbers', 'tag_1, rate_1'],
  ['read', 'admitted = true'],
  ['check', 'if mark_1 ~= 48 then\nbacklog_1'],
  ['second identity', 'state_2 = '],
  ['standing', 'if not admitted or'],
  ['usual', 'if instead then\nreturn'],
  ['any', 'if key_1 then\nlocal bytes'],
] as const

/** The script before its locals get short names, with line ends as they are. */
export function scriptText(): string {
  const input = {
    origin: 'https://api.example.com',
    plans: ['free', 'pro'],
    rules: sixRules('as configured', 'as shipped'),
  }
  return decideText(gatewayRuleSet(checkedConfig(input)))
}

/** The page with the script as it is now. */
export function withScript(page: string, text: string): string {
  const starts: number[] = []
  for (const [name, start] of PARTS) {
    const at = `\n${text}`.indexOf(`\n${start}`, starts.at(-1))
    if (at < 0) throw new Error(`The script has no part '${name}'.`)
    starts.push(at)
  }
  const lines = indented(text)
  const lineOf = (at: number) => text.slice(0, at).split('\n').length - 1
  const parts = new Map(
    PARTS.map(([name], i) => {
      const end = starts[i + 1]
      const part = lines.slice(lineOf(starts[i]!), end === undefined ? undefined : lineOf(end))
      return [name as string, part.join('\n').trimEnd()] as const
    }),
  )
  return page.replace(/(<!-- script: (.+?) -->\n).*?(<!-- end -->)/gs, (_, start, name, end) => {
    const part = parts.get(name)
    if (part === undefined) throw new Error(`The script has no part '${name}'.`)
    return `${start}\`\`\`lua\n${part}\n\`\`\`\n${end}`
  })
}

/** A Worker carries the script without indentation. */
function indented(text: string): string[] {
  let depth = 0
  return text.split('\n').map(line => {
    const closes = /^(end|else|elseif)\b/.test(line)
    const opens = /^(else|elseif)\b/.test(line) || /(\bthen|\bdo|\bfunction\b.*\))$/.test(line)
    if (closes) depth -= 1
    const result = `${'  '.repeat(Math.max(0, depth))}${line}`.trimEnd()
    if (opens) depth += 1
    return result
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(PAGE, withScript(readFileSync(PAGE, 'utf8'), scriptText()))
  console.log('Wrote the script into docs/internals/script.md.')
}
