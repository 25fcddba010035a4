/** What the scripts of Sluice use of Lua inside Redis, each by a script of its own, so that a lack has a name. */
import { FIRST_LINES } from '../../script/create-script.ts'
import { type Check, type Finding, fault, limit, ok, unknown } from './checks.ts'
import type { Answer, Bed } from './examined-store.ts'
import { KEY_SECONDS } from './key-space.ts'

/** As many as large configs have. */
const ARGUMENTS = 2000

const TIME = `local t = redis.call('TIME') redis.call('SETEX', KEYS[1], ${KEY_SECONDS}, t[1]) return redis.call('GET', KEYS[1])`
const STRUCT = "return struct and #struct.pack('>I4I2c2', 12345678, 7, 'ab') == 8 and 1 or 0"
const UNDECLARED = `${FIRST_LINES.keyLocking}return redis.call('GET', ARGV[1])`
const OTHER = 'Use Redis 6.2 or newer, Valkey, an Upstash database or the bridge.'

export function scriptChecks({ send, key, config: { keyLocking } }: Bed): Check[] {
  const check = (
    name: string,
    rest: () => readonly (string | number)[],
    find: (answer: Answer) => Finding,
  ): Check => ({
    name,
    run: async () => find((await send([['EVAL', ...rest()]]))[0]!),
  })
  return [
    check(
      'time-in-scripts',
      () => [TIME, 1, key('time')],
      ({ result }) => {
        if (/^\d{10,}$/.test(String(result)))
          return ok`A script can read the time and write afterwards (TIME, SETEX).`
        return fault`A script cannot read the time and write afterwards (TIME, SETEX), as every decision does. → ${OTHER}`
      },
    ),
    check(
      'struct',
      () => [STRUCT, 0],
      ({ result }) => {
        if (result === 1) return ok`Scripts have the library struct.`
        return limit`Scripts lack the library struct. Slower code takes its place: a script takes up to three times as long. → You can leave it. Redis, Valkey and the bridge in front of them have it.`
      },
    ),
    check(
      'arguments',
      () => ['return #ARGV', 0, ...Array(ARGUMENTS).fill('1')],
      ({ result }) => {
        if (result === ARGUMENTS) return ok`A script takes ${ARGUMENTS} arguments.`
        return fault`A script does not take ${ARGUMENTS} arguments. → ${OTHER}`
      },
    ),
    check(
      'key-locking',
      () => [UNDECLARED, 0, key('undeclared')],
      ({ error }) => {
        if (!error) return ok`The first line of scripts is accepted. The store runs one script at a time.`
        const isUpstash = /dynamic keys/i.test(error)
        if (isUpstash && keyLocking)
          return ok`Scripts of different callers run side by side: the store locks their keys only.`
        if (isUpstash)
          return limit`Scripts lock the whole database, because the config has keyLocking: false. → Remove store.keyLocking from the config.`
        if (keyLocking && /shebang|flag/i.test(error))
          return fault`The store refuses the first line of scripts (#!lua flags=allow-key-locking). → Set store: { keyLocking: false } in the config, and deploy it.`
        return unknown`Whether scripts lock their keys only could not be found out. → You can leave it, if the check \`rules\` is ok.`
      },
    ),
  ]
}
