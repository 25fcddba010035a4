/** The permissions in docs/deploy.md suffice for the scripts. test/node/redis-acl.test.ts tries them out on a Redis. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ROOT } from '../support/pages.ts'
import { GRANTED } from '../support/redis-user.ts'

it('docs/deploy.md grants every command that a script calls', () => {
  const files = globSync('src/**/*.{lua,ts}', { cwd: ROOT })
  const called = new Set(
    files.flatMap(file =>
      [...readFileSync(join(ROOT, file), 'utf8').matchAll(/redis\.p?call\('([A-Z]+)'/g)].map(
        ([, name]) => name!,
      ),
    ),
  )
  expect(called.size).toBeGreaterThan(10)
  expect([...called].filter(name => !GRANTED.includes(name.toLowerCase()))).toEqual([])
})
