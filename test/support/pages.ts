/** README.md and the pages in docs/, and the blocks of code in them. */
import { globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../../', import.meta.url))
export const readPage = (path: string) =>
  readFileSync(new URL(path, new URL('../../', import.meta.url)), 'utf8')

/** The pages in docs/ and its folders. */
export const DOCS = globSync('docs/**/*.md', { cwd: ROOT }).toSorted()

/** The pages of the documentation. */
export const PAGES = ['README.md', ...DOCS]

/** All pages that users and contributors read. */
export const ALL_PAGES = [
  ...PAGES,
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'examples/README.md',
  'ops/README.md',
  'template/README.md',
]

export interface Block {
  page: string
  language: string
  code: string
}

export const blocksOf = (page: string): Block[] =>
  [...readPage(page).matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language, code]) => ({
    page,
    language: language!,
    code: code!,
  }))

/** The only block of a page in this language that contains the text. */
export function blockWith(page: string, text: string, language = 'ts'): string {
  const found = blocksOf(page).filter(block => block.language === language && block.code.includes(text))
  if (found.length !== 1) throw new Error(`${page} has ${found.length} ${language} blocks with: ${text}`)
  return found[0]!.code
}

type Code = Pick<Block, 'code'>

export const isRule = ({ code }: Code) => code.startsWith('{')
/** Begins with a key of the config, after comments. */
export const isPartOfConfig = ({ code }: Code) => /^(\/\/.*\n)*[a-zA-Z]+: /.test(code)
export const isConfigModule = ({ code }: Code) => code.includes('export default defineConfig(')
export const isConfig = (block: Code) => isRule(block) || isPartOfConfig(block) || isConfigModule(block)
