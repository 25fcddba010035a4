/** Whether the user of the store may run each command that Sluice uses: those that docs/deploy.md grants, which a test compares. */
import type { Config } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { type Finding, fault, limit, ok } from './checks.ts'
import type { Bed, Command } from './examined-store.ts'
import { KEY_SECONDS } from './key-space.ts'

/** In an order in which each finds what it needs. A word in capitals after the first is part of the name; `text` and others are keys. */
const COMMANDS = `PING;TIME;SET text 0;SETEX text ttl 0;GET text;MGET text;BITFIELD text get u8 0;EXISTS text;EXPIRE text ttl;
PEXPIRE text 900000;HSET hash a 1;HGET hash a;HMGET hash a;HGETALL hash;HKEYS hash;HLEN hash;HDEL hash b;SADD set a;SCARD set;SMEMBERS set;
SREM set b;ZADD sorted 1 a;ZMSCORE sorted a;ZCARD sorted;ZRANGE sorted 0 -1;ZRANGEBYSCORE sorted 0 9;ZREM sorted b;ZREMRANGEBYSCORE sorted 0 0;
XADD stream * a 1;XREVRANGE stream + -;EVAL return+1 0;EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0;SCRIPT LOAD return+1;
EXPIRE hash ttl;EXPIRE set ttl;EXPIRE sorted ttl;EXPIRE stream ttl;DEL text;UNLINK text`

const KEYS = new Set(['text', 'hash', 'set', 'sorted', 'stream'])

/** The commands of one trip, by their names. */
export const commandsToTry = (key: Bed['key']): [name: string, Command][] =>
  COMMANDS.split(/;\n?/).map(line => {
    const words = line
      .split(' ')
      .map(word => (KEYS.has(word) ? key(word) : word === 'ttl' ? KEY_SECONDS : word.replace('+1', ' 1')))
    return [/^[A-Z]+( [A-Z]+)?/.exec(line)![0], words as unknown as Command]
  })

/** The commands that decisions under these rules take. The others are for administration, statistics and refunds. */
function commandsOf({ rules, limits }: Config): ReadonlySet<string> {
  const all = [...rules, ...[...limits.values()].flat()]
  const ofFlight = all.some(countsInFlight) ? 'BITFIELD' : ''
  const ofLog = all.some(({ counting }) => counting.state === 'log') ? 'HGET HDEL UNLINK HSET EXPIRE' : ''
  const ofSettlement = all.some(({ settlement }) => settlement)
    ? 'ZADD PEXPIRE ZRANGEBYSCORE ZREM ZMSCORE ZREMRANGEBYSCORE'
    : ''
  return new Set(`EVAL EVALSHA GET MGET SETEX TIME ${ofFlight} ${ofLog} ${ofSettlement}`.split(' '))
}

export async function checkPermissions({ send, key, config }: Bed): Promise<Finding> {
  const commands = commandsToTry(key)
  const answers = await send(commands.map(([, command]) => command))
  const thatFail = (pattern: RegExp) =>
    new Set(commands.flatMap(([name], i) => (pattern.test(answers[i]?.error ?? '') ? [name] : [])))
  if (thatFail(/^READONLY/).size > 0)
    return fault`The server is a read-only replica (READONLY): it cannot count. → Use the address of the primary.`
  if (thatFail(/^(OOM|MISCONF)/).size > 0)
    return fault`The server refuses changes, because its memory is full or its disk fails (OOM, MISCONF). → Look at the memory, the disk and the log of Redis.`
  const denied = thatFail(/^(NOPERM|ERR unknown command)/)
  const needed = [...denied].filter(name => commandsOf(config).has(name)).join(', ')
  if (denied.has('SETEX') && denied.has('HSET') && !denied.has('GET'))
    return fault`The token is read-only (NOPERM): it cannot count. → Use the token that can write: at Upstash the standard token, not the read-only one.`
  const fix = 'docs/deploy.md#your-own-redis lists the permissions that Sluice needs.'
  if (needed)
    return fault`The store lacks or does not permit ${needed}, which decisions under your rules take. → ${fix}`
  if (denied.size > 0)
    return limit`The store lacks or does not permit ${[...denied].join(', ')}, which administration, statistics or other rules take. → ${fix}`
  const wrong = [...thatFail(/^(?!NOSCRIPT)./)].join(', ')
  if (wrong)
    return fault`The store answers ${wrong} with an error. → Use Redis, Valkey, an Upstash database or the bridge.`
  return ok`The ${new Set(commands.map(([name]) => name)).size} commands that Sluice uses are permitted.`
}
