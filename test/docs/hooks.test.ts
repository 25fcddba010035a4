/** docs/hooks.md: its config is valid, and its table has every hook. */
import { readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { defineConfig } from '../../src/config/define.ts'
import { HOOK_NAMES } from '../../src/config/hooks.ts'

const PAGE = readFileSync(new URL('../../docs/hooks.md', import.meta.url), 'utf8')

it('the page shows a config with every hook', () => {
  const [, code] = /```ts\n(.*?)```/s.exec(PAGE)!
  const body = stripTypeScriptTypes(code!.replace(/^import .*\n/gm, '')).replace('export default', 'return')
  const { hooks } = checkedConfig(new Function('defineConfig', body)(defineConfig))
  expect(Object.keys(hooks!)).toEqual([...HOOK_NAMES, 'deadline'])
})

it('the page has a row for each hook', () => {
  expect([...PAGE.matchAll(/^\| `(\w+)\(/gm)].map(([, name]) => name)).toEqual([...HOOK_NAMES])
})
