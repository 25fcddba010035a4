/**
 * Checks the pages, and the comments of all TypeScript files, against the style of the project: `npm run check:prose`, or with paths only these files.
 * Prints each finding as `file:line:column`; the exit code is 1 if there is one.
 */
import { globSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { TextlintKernel, type TextlintKernelPlugin } from '@textlint/kernel'
import { commentsOf } from './comments.ts'
import { RULES } from './rules.ts'

const ROOT = fileURLToPath(new URL('../../../', import.meta.url))

const FOLDERS = '{bench,docs,examples,ops,package,src,template,create-sluicegate,test}'
const PAGES = ['*.md', `${FOLDERS}/**/*.md`]
const SOURCES = ['*.ts', `${FOLDERS}/**/*.ts`]
/** The style itself quotes what must not be written. */
const isOurs = (path: string) => !/node_modules|\.generated\.ts$|docs\/programs\/style\/style\.ts$/.test(path)

export interface Finding {
  rule: string
  message: string
  /** From 1. */
  line: number
  /** From 1. */
  column: number
}

// Loaded with `require`, because `import` in Node and in vitest returns the default export of this package in different places.
const { default: markdownPlugin }: { default: TextlintKernelPlugin['plugin'] } = createRequire(
  import.meta.url,
)('@textlint/textlint-plugin-markdown')

const kernel = new TextlintKernel()
const options = {
  ext: '.md',
  plugins: [{ pluginId: 'markdown', plugin: markdownPlugin }],
  rules: Object.entries(RULES).map(([ruleId, rule]) => ({ ruleId, rule })),
}

/** Of a page. */
export async function findingsInMarkdown(text: string): Promise<Finding[]> {
  const { messages } = await kernel.lintText(text, options)
  return messages.map(({ ruleId, message, loc: { start } }) => ({ rule: ruleId, message, ...start }))
}

/** Of the comments in a TypeScript file. */
export async function findingsInComments(source: string): Promise<Finding[]> {
  const { markdown, places } = commentsOf(source)
  const findings = await findingsInMarkdown(markdown)
  return findings.map(finding => {
    const { line, before } = places[finding.line - 1]!
    return { ...finding, line, column: before + finding.column }
  })
}

async function main(paths: readonly string[]): Promise<void> {
  const all = () => globSync([...PAGES, ...SOURCES], { cwd: ROOT }).map(path => resolve(ROOT, path))
  const files = paths.length > 0 ? paths.map(path => resolve(path)) : all().filter(isOurs).toSorted()
  let count = 0
  for (const file of files) {
    const text = readFileSync(file, 'utf8')
    const findings = await (file.endsWith('.md') ? findingsInMarkdown(text) : findingsInComments(text))
    for (const { rule, message, line, column } of findings) {
      console.log(`${relative('', file)}:${line}:${column} ${message} (${rule})`)
    }
    count += findings.length
  }
  if (count > 0) {
    console.log(`${count} findings. The style is docs/programs/style/style.ts.`)
    process.exitCode = 1
  }
}

if (import.meta.main) await main(process.argv.slice(2))
