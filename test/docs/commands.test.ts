/** The pages name only commands and options that exist. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { runInProcess } from '../support/command-line.ts'
import { ALL_PAGES } from '../support/pages.ts'

const ROOT = new URL('../../', import.meta.url)

/** The text after `npx sluicegate`, up to a comment, a pipe, or the end of the code. */
const commandsIn = (text: string) =>
  [...text.matchAll(/npx sluicegate ([a-z][^`\n]*)/g)].map(
    ([, command]) => command!.split(/\s+[#>|&]|\\$|[.,:;)]?\s*$/)[0]!,
  )

async function helpOf(path: readonly string[]): Promise<string | undefined> {
  const { stdout } = await runInProcess([...path, '--help'])
  return stdout.startsWith(`Usage: sluicegate ${path.join(' ')} `) ? stdout : undefined
}

/** The mistake in a command, or undefined. */
async function flawOf(command: string): Promise<string | undefined> {
  const words = [...command.matchAll(/'[^']*'|\S+/g)].map(([word]) => word)
  const path: string[] = []
  let help: string | undefined
  for (const word of words) {
    const found = /^[a-z]+$/.test(word) ? await helpOf([...path, word]) : undefined
    if (found === undefined) break
    path.push(word)
    help = found
  }
  if (help === undefined) return `there is no command ${words[0]}`
  const next = words[path.length]
  const usage = help.split('\n')[0]!.replaceAll(/\[(options|command)\]/g, '')
  const isArgument = next !== undefined && !next.startsWith('-') && next !== '…'
  if (isArgument && !/[<[]/.test(usage)) return `${path.join(' ')} takes no ${next}`
  const unknown = words.filter(word => /^--[a-z]/.test(word) && !help.includes(word))
  return unknown.length > 0 ? `${path.join(' ')} has no ${unknown.join()}` : undefined
}

it.each([
  ['consumers plan', 'consumers takes no plan'],
  ['consumer set', 'there is no command consumer'],
  ['keys list --all', 'keys list has no --all'],
  ['limits peek zendesk --by account=42', undefined],
  ['switch', undefined],
])('the mistake in the command %s is: %s', async (command, flaw) => {
  expect(await flawOf(command)).toBe(flaw)
})

describe.each(ALL_PAGES)('%s', page => {
  it('names only commands and options that exist', async () => {
    for (const command of new Set(commandsIn(readFileSync(new URL(page, ROOT), 'utf8'))))
      expect([command, await flawOf(command)]).toEqual([command, undefined])
  })

  it('imports from the package, as its readers do', () => {
    const text = readFileSync(new URL(page, ROOT), 'utf8')
    const code = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code).join('\n')
    expect(code).not.toMatch(/from '\.{1,2}\/src\//)
  })
})
