/**
 * Joins the Lua files into the one script that Redis runs, and writes it as a module that every runtime and
 * bundler can import: `npm run bundle-lua`. test/lua/bundle.test.ts fails when the result is stale.
 *
 * Each file follows under a line with its name, so that `user_script:57` in a Redis error can be traced.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const SRC = new URL('../', import.meta.url)
const OUTPUT = new URL('lua/bundle.generated.ts', SRC)
const KEY_LOCKING = '#!lua flags=allow-key-locking'

/** The text of bundle.generated.ts, made from the Lua files as they are now. */
export function bundleLua(): string {
  const algorithms = readdirSync(new URL('algorithms/', SRC)).filter(file => file.endsWith('.lua'))
  const body = [
    sourceOf('lua/prelude.lua'),
    ...algorithms.sort().map(file => {
      const name = file.replace('.lua', '')
      return `if asked['${name}'] then\n${sourceOf(`algorithms/${file}`)}end\n`
    }),
    sourceOf('lua/main.lua'),
  ].join('\n')
  // The plain build keeps the place of the first line empty: lines count the same in both.
  return [
    '// Made by `npm run bundle-lua` from the .lua files. Do not edit.',
    '',
    `const BODY = ${JSON.stringify(body)}`,
    '',
    '/** For Upstash, where the flag lets scripts with different keys run side by side. */',
    'export const KEY_LOCKING_SCRIPT = {',
    `  source: ${JSON.stringify(`${KEY_LOCKING}\n`)} + BODY,`,
    `  sha1: '${sha1(`${KEY_LOCKING}\n${body}`)}',`,
    '}',
    '',
    '/** For Redis and Valkey, which refuse that flag. */',
    'export const PLAIN_SCRIPT = {',
    `  source: '\\n' + BODY,`,
    `  sha1: '${sha1(`\n${body}`)}',`,
    '}',
    '',
  ].join('\n')
}

/** The file under a line with its name. Of comments only the lines are left, and no indentation: a Worker carries the rest. */
function sourceOf(file: string): string {
  const source = readFileSync(new URL(file, SRC), 'utf8').replaceAll('\r\n', '\n')
  return `-- ${file}\n${source.replaceAll(/^ *--.*$/gm, '').replaceAll(/^ +/gm, '')}`
}

function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(OUTPUT, bundleLua())
