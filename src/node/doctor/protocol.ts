/**
 * What Sluice needs of a store: the protocol of Upstash, as far as src/store/upstash-client.ts uses it, or Redis directly; each command; and what
 * scripts use, each by a command of its own, so that a lack has a name.
 */
import { randomBase62 } from '../../credentials/api-key.ts'
import { FIRST_LINES } from '../../script/create-script.ts'
import type { RestCommand } from '../../store/upstash-client.ts'
import { type Bed, type Checks, KEY_SECONDS } from './checks.ts'
import { decisionsUnder, OTHER_STORE, scriptsOf } from './decisions.ts'
import { type Finding, fault, findIn, firstOf, isLate, limit, ok, unknown } from './findings.ts'

const PING = ['PING'] as const

export async function checkProtocol({ send, isRest, decisions }: Bed): Promise<Finding> {
  // Says why a Redis does not answer. What it refuses is found by other checks.
  if (!isRest)
    await decisions.ping().catch(error => {
      if (!/ answered (READONLY|NOREPLICAS|NOPERM)\b/.test(error.message)) throw error
    })
  const startedAt = performance.now()
  const [first] = await send([PING])
  const first_ms = Math.round(performance.now() - startedAt)
  const answersTwo = async (isTransaction: boolean) => {
    const answers = await send([PING, PING], isTransaction).catch(error => {
      if (isLate(error)) throw error
    })
    return answers?.length === 2
  }
  const found = firstOf(
    // A user without PING can still count. Another check finds missing permissions.
    fault`${!first?.error && first?.result !== 'PONG'}: The answer to PING is not that of a Redis. → Use the URL of an Upstash database or of the bridge.`,
    fault`${!(await answersTwo(false))}: The store does not answer several commands in one request (/pipeline). → Use an Upstash database or the bridge.`,
    limit`${!(await answersTwo(true))}: The store has no transactions (/multi-exec), so \`limits correct\` fails. → Permit MULTI and EXEC to the Redis user, or use an Upstash database or the bridge.`,
    ok`${isRest}: The store answers commands, several at once, and transactions (the first answer took ${first_ms} ms).`,
    ok`Redis answers commands and transactions. Skipped, because it is for REST only: key-locking.`,
  )
  return { ...found, measured: { first_ms } }
}

/**
 * Those that docs/deploy.md grants, which a test compares, in an order in which each finds what it needs. A word in capitals after the
 * first is part of the name; `text` and others are keys.
 */
const COMMANDS = `PING;TIME;SET text 0;SETEX text ttl 0;GET text;MGET text;BITFIELD text get u8 0;EXISTS text;EXPIRE text ttl;
PEXPIRE text 900000;HSET hash a 1;HGET hash a;HMGET hash a;HGETALL hash;HKEYS hash;HLEN hash;HDEL hash b;ZADD sorted 1 a;ZMSCORE sorted a;
ZCARD sorted;ZRANGE sorted 0 -1;ZRANGEBYSCORE sorted 0 9;ZREM sorted b;ZREMRANGEBYSCORE sorted 0 0;
XADD stream * a 1;XREVRANGE stream + -;EVAL return+1 0;EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0;SCRIPT LOAD return+1;
EXPIRE hash ttl;EXPIRE sorted ttl;EXPIRE stream ttl;DEL text;UNLINK text`

/** The commands of one trip, by their names. */
export const commandsToTry = (key: Bed['key']): [name: string, RestCommand][] =>
  COMMANDS.split(/;\n?/).map(line => {
    const wordFor = (word: string) => {
      if (word === 'ttl') return KEY_SECONDS
      return /^(text|hash|sorted|stream)$/.test(word) ? key(word) : word.replace('+1', ' 1')
    }
    return [/^[A-Z]+( [A-Z]+)?/.exec(line)![0], line.split(' ').map(wordFor) as unknown as RestCommand]
  })

/** Of a command outside of scripts. */
const NOT_PERMITTED = /^(NOPERM|ERR unknown command)/

export async function checkPermissions({ send, key, config }: Bed): Promise<Finding> {
  const commands = commandsToTry(key)
  const answers = await send(commands.map(([, command]) => command))
  const thatFail = (pattern: RegExp) => {
    const names = commands.flatMap(([name], i) => (pattern.test(answers[i]?.error ?? '') ? [name] : []))
    return [...new Set(names)]
  }
  const fails = (pattern: RegExp) => thatFail(pattern).length > 0
  const denied = thatFail(NOT_PERMITTED)
  const isReadOnly = denied.includes('SETEX') && denied.includes('HSET') && !denied.includes('GET')
  const sources = scriptsOf(decisionsUnder(config, 'caller')).map(({ plain }) => plain.source)
  const needed = denied.filter(name => /^EVAL/.test(name) || sources.some(text => text.includes(`'${name}'`)))
  const wrong = thatFail(/^(?!NOSCRIPT)./)
  const permit =
    'Permit it to the Redis user (docs/deploy.md#your-own-redis), remove rename-command from redis.conf, or use a newer Redis.'
  return firstOf(
    fault`${fails(/^READONLY/)}: The server is a read-only replica (READONLY): it cannot count. → Use the address of the primary.`,
    fault`${fails(/^(OOM|MISCONF)/)}: The server refuses changes, because its memory is full or its disk fails (OOM, MISCONF). → Look at the memory, the disk and the log of Redis.`,
    fault`${isReadOnly}: The token is read-only (NOPERM): it cannot count. → Use the token that can write: at Upstash the standard token, not the read-only one.`,
    fault`${needed.length > 0}: The store lacks or does not permit ${needed.join(', ')}, which decisions under your rules take. → ${permit}`,
    limit`${denied.length > 0}: The store lacks or does not permit ${denied.join(', ')}, which administration, statistics or other rules take. → ${permit}`,
    fault`${wrong.length > 0}: The store answers ${wrong.join(', ')} with an error. → ${OTHER_STORE}`,
    ok`The ${new Set(commands.map(([name]) => name)).size} commands that Sluice uses are permitted.`,
  )
}

/** As many as large configs have. */
const ARGUMENTS = 2000

const TIME = `local t = redis.call('TIME') redis.call('SETEX', KEYS[1], ${KEY_SECONDS}, t[1]) return redis.call('GET', KEYS[1])`
const STRUCT = "return struct and #struct.pack('>I4I2c2', 12345678, 7, 'ab') == 8 and 1 or 0"
const UNDECLARED = `${FIRST_LINES.keyLocking}return redis.call('GET', ARGV[1])`

export function scriptChecks({ send, isRest, key, config: { keyLocking } }: Bed): Checks {
  /** @param table by patterns of the answer: `= ` and the result, or the error. The last one is empty */
  const check = (command: () => RestCommand, table: Readonly<Record<string, Finding>>) => async () => {
    const [answer] = await send([command()])
    const text = answer!.error ?? `= ${answer!.result}`
    return NOT_PERMITTED.test(text) ? untried : findIn(text, table)!
  }
  const untried = unknown`This could not be tried. → Fix what the check \`permissions\` names.`
  const undecided = unknown`Whether scripts lock their keys only could not be found out. → You can leave it, if the check \`rules\` is ok.`
  const ofRest = check(() => ['EVAL', UNDECLARED, 1, key('declared'), key('undeclared')], {
    '^= ': ok`The first line of scripts is accepted. The store runs one script at a time.`,
    'dynamic keys': keyLocking
      ? ok`Scripts of different callers run side by side: the store locks their keys only.`
      : limit`Scripts lock the whole database, because the config has keyLocking: false. → Remove store.keyLocking from the config.`,
    'shebang|flag': keyLocking
      ? fault`The store refuses the first line of scripts (#!lua flags=allow-key-locking). → Set store: { keyLocking: false } in the config, and deploy it.`
      : undecided,
    '': undecided,
  })
  return {
    'script-cache': check(() => ['EVALSHA', randomBase62(40).toLowerCase(), 0], {
      '^NOSCRIPT': ok`A script that the store has lost is sent again (NOSCRIPT).`,
      '': fault`A script that the store does not have is not answered with NOSCRIPT, so it is not sent again: after a restart of the store, every decision fails. → Use an Upstash database or the bridge. A server in between must not change errors.`,
    }),
    'time-in-scripts': check(() => ['EVAL', TIME, 1, key('time')], {
      '^= \\d{10,}$': ok`A script can read the time and write afterwards (TIME, SETEX).`,
      '': fault`A script cannot read the time and write afterwards (TIME, SETEX), as every decision does. → ${OTHER_STORE}`,
    }),
    struct: check(() => ['EVAL', STRUCT, 0], {
      '^= 1$': ok`Scripts have the library struct.`,
      '': limit`Scripts lack the library struct. Slower code takes its place: a script takes up to three times as long. → You can leave it. Redis, Valkey and the bridge in front of them have it.`,
    }),
    arguments: check(() => ['EVAL', 'return #ARGV', 0, ...Array(ARGUMENTS).fill('1')], {
      [`^= ${ARGUMENTS}$`]: ok`A script takes ${ARGUMENTS} arguments.`,
      '': fault`A script does not take ${ARGUMENTS} arguments. → ${OTHER_STORE}`,
    }),
    ...(isRest && { 'key-locking': ofRest }),
  }
}
