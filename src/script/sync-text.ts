/** The script of sync.ts, from the sections of src/algorithms/concurrency.lua. */
import { LUA } from '../algorithms/lua.generated.ts'
import type { Script } from '../store/store.ts'
import { CONSTANTS } from './constants.ts'
import { createScript } from './create-script.ts'
import { PRELUDE } from './lua.generated.ts'
import { expandMacros, replaceWords } from './lua-text.ts'

const { declare, keeps, read, write } = LUA.concurrency!

/**
 * The text of the script. It reads and writes the records of each key like a decision, without a request to admit. A call can have
 * several messages about the same key, from different holders: a request whose consumer only the store knew is a holder of its own.
 */
export function syncText(): string {
  const text = `
local format, match, sub = string.format, string.match, string.sub
local now = ARGV[1]
${PRELUDE}${declare}local units, values = nil, redis.call('MGET', unpack(KEYS))
for side_key = 1, #KEYS do
local limit, holding, period = 0, ARGV[2 * side_key], ARGV[2 * side_key + 1] + 0
local ${keeps.join(', ')}, idle_at, n, side_bytes
do
${read}end
units = started - ended
do
${write}end
if side_bytes then
local life = life_until(idle_at)
redis.call('SETEX', KEYS[side_key], format('%d', spread(life)), side_bytes)
end
for later = side_key + 1, #KEYS do
if KEYS[later] == KEYS[side_key] then
values[later] = side_bytes or redis.call('GET', KEYS[side_key])
end
end
end
return { now, units }
`.trimStart()
  return replaceWords(expandMacros(text), word => CONSTANTS.get(word))
}

let script: Script | undefined

/** The script, compiled at its first use. */
export function syncScript(): Script {
  script ??= createScript(syncText())
  return script
}
