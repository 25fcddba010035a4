import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { ScriptAliases } from '../../src/node/rest-bridge/scripts.ts'

const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')
const locking = (n: number) => `#!lua flags=allow-key-locking\nreturn ${n}`

describe("the bridge's script aliases", () => {
  it('remove the flag allow-key-locking, and keep other flags and the number of lines', () => {
    const aliases = new ScriptAliases()
    expect(aliases.translate(['EVAL', locking(1), '0'])).toEqual(['EVAL', '\nreturn 1', '0'])
    const both = '#!lua flags=no-writes,allow-key-locking\nreturn 1'
    expect(aliases.translate(['EVAL', both, '0'])).toEqual(['EVAL', '#!lua flags=no-writes\nreturn 1', '0'])
    expect(aliases.translate(['EVAL', 'return 1', '0'])).toEqual(['EVAL', 'return 1', '0'])
  })

  it('find a script by the SHA-1 of the text that the client sent', () => {
    const aliases = new ScriptAliases()
    aliases.translate(['EVAL', locking(1), '0'])
    expect(aliases.translate(['EVALSHA', sha1(locking(1)).toUpperCase(), '0'])[1]).toBe(sha1('\nreturn 1'))
  })

  it('forget the oldest script when there are too many', () => {
    const aliases = new ScriptAliases()
    for (let n = 0; n <= 1000; n++) aliases.translate(['EVAL', locking(n), '0'])
    expect(aliases.translate(['EVALSHA', sha1(locking(0)), '0'])[1]).toBe(sha1(locking(0)))
    expect(aliases.translate(['EVALSHA', sha1(locking(1000)), '0'])[1]).toBe(sha1('\nreturn 1000'))
  })
})
