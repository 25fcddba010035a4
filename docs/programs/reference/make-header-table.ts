/** Makes the table of docs/security.md that shows which headers do not reach the origin: `npm run reference`. */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { REMOVED_HEADERS } from '../../../src/set-ups/gateway/removed-headers.ts'
import { markdownOf } from '../markdown-tables.ts'

const PAGE = new URL('../../security.md', import.meta.url)

const MEANINGS: Record<keyof typeof REMOVED_HEADERS, string> = {
  caller: 'the caller, its limits and the request, as the gateway names them',
  address: "the client's address, and what else proxies forward",
  url: 'the URL, the host or the scheme that the client has asked for; the route of a framework',
  user: 'a user that another proxy has verified',
  certificate: "the client's certificate",
  settings: 'what a server has to do: its outgoing proxy, how it sends files',
}

/** The page with its table as it should be. */
export function withHeaderTable(page: string): string {
  const rows = Object.entries(MEANINGS).map(([kind, meaning]) => {
    const names = REMOVED_HEADERS[kind as keyof typeof REMOVED_HEADERS]
    return [meaning, names.map(name => `\`${name}\``).join(', ')]
  })
  const table = markdownOf({ head: ['says', 'headers'], rows })
  return page.replace(
    /(<!-- table: removed headers -->\n).*?(<!-- end -->)/s,
    (_, start, end) => `${start}${table}\n${end}`,
  )
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(PAGE, withHeaderTable(readFileSync(PAGE, 'utf8')))
  console.log(`Made the table of ${fileURLToPath(PAGE)}.`)
}
