import { LUA } from './lua.generated.ts'
import type { AlgorithmLua } from './lua.ts'

/**
 * The Lua code of an algorithm.
 *
 * A bucket of `burst` tokens that is refilled with `rate` tokens per `period` lacks as many tokens as the backlog of gcra is long, and
 * admits exactly the same requests. So `token-bucket` is a second name with the same code and the same state.
 */
export const luaOf = (algorithm: string): AlgorithmLua | undefined =>
  LUA[algorithm === 'token-bucket' ? 'gcra' : algorithm]

/** The third number of an algorithm's script, if it depends on the numbers of a rule. */
export function thirdNumberOf(algorithm: string): 'burst' | 'step' | undefined {
  const [, , name] = luaOf(algorithm)!.numbers
  return name === 'burst' || name === 'step' ? name : undefined
}
