/**
 * Requests each link of the pages that leads to another site, and prints those that fail: `npm run check:links`. Not part of the tests,
 * because it needs the internet. Links within the repository are checked by test/docs/links.test.ts.
 */
import { globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../../../', import.meta.url))
const PAGES = ['*.md', '{docs,examples,ops,template}/**/*.md']
const DEADLINE_MS = 20_000

/** Hosts of examples: api.example.com. */
const EXAMPLE = /^https:\/\/(?:[\w-]+\.)*(?:example(?:\.com|\.org)?|cloudflareaccess\.com)(?:[/:?#]|$)/

/** The links of a page that lead to another site, without those in code. */
export function externalLinksOf(page: string): string[] {
  const text = page.replaceAll(/^```.*?^```$/gms, '').replaceAll(/`[^`\n]*`/g, 'code')
  const links = [...text.matchAll(/\]\((https:[^)\s]+)\)|^\[[^\]]+\]: (https:\S+)$/gm)]
  return links.map(([, link, named]) => link ?? named!).filter(link => !EXAMPLE.test(link))
}

/** @returns what is wrong with the link; undefined if it leads to a page */
export async function failureOf(link: string): Promise<string | undefined> {
  try {
    const response = await fetch(link, { signal: AbortSignal.timeout(DEADLINE_MS) })
    await response.body?.cancel()
    return response.ok ? undefined : `status ${response.status}`
  } catch (error) {
    return String((error as Error).cause ?? error)
  }
}

async function main(): Promise<void> {
  const files = globSync(PAGES, { cwd: ROOT }).filter(file => !file.includes('node_modules'))
  const links = [...new Set(files.flatMap(file => externalLinksOf(readFileSync(ROOT + file, 'utf8'))))].sort()
  const failures = await Promise.all(links.map(async link => [link, await failureOf(link)] as const))
  const failed = failures.filter(([, failure]) => failure !== undefined)
  for (const [link, failure] of failed) console.log(`${link}: ${failure}`)
  console.log(`${links.length} links, ${failed.length} of them failed.`)
  if (failed.length > 0) process.exitCode = 1
}

if (import.meta.main) await main()
