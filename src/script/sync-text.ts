/** The script of sync.ts, made of the sections of src/algorithms/concurrency.lua. */
import { LUA } from '../algorithms/lua.generated.ts'
import type { Script } from '../store/store.ts'
import { CONSTANTS } from './constants.ts'
import { PRELUDE } from './lua.generated.ts'
import { withMacros, withWords } from './lua-text.ts'
import { scriptOf } from './script-of.ts'

const { declare, keeps, read, write } = LUA.concurrency!

/**
 * Reads and writes the records of each key as a decision does, and admits nothing. A call can have several messages about one key:
 * of requests whose consumer only the store knew, each of which is a holder by itself.
 */
export function syncText(): string {
  const text = `
local match, sub = string.match, string.sub
local now = ARGV[1]
${PRELUDE}${declare}local values = redis.call('MGET', unpack(KEYS))
for own_key = 1, #KEYS do
local holding, period = ARGV[2 * own_key], ARGV[2 * own_key + 1] + 0
local ${keeps.join(', ')}, idle_at, n, own_bytes
do
${read}end
do
${write}end
local life = idle_at - now
redis.call('SETEX', KEYS[own_key], string.format('%d', (life + -life % 1000000) / 1000000 + KEEP_SECONDS), own_bytes)
for later = own_key + 1, #KEYS do
if KEYS[later] == KEYS[own_key] then
values[later] = own_bytes
end
end
end
return { now }
`.trimStart()
  return withWords(withMacros(text), word => CONSTANTS.get(word))
}

let script: Script | undefined

/** Compiled when it is first needed. */
export function syncScript(): Script {
  script ??= scriptOf(syncText())
  return script
}
