/**
 * A proxy in front of any Redis, whose clock a test sets. Everything behind the proxy is real: commands, scripts, types and expiry.
 *
 * - TIME replies the clock of the test, also in scripts: the proxy wraps each script in a function that shadows `redis`.
 * - XADD with `*` takes its id from that clock, and PXAT becomes the time that is left.
 * - Redis itself removes keys by its own time, in which a test takes hardly any. `moveOn` takes the time that has passed from the expiry of
 *   all keys, and removes those that have none left.
 *
 * A client notices nothing: it sends its scripts, and gets NOSCRIPT for one that this Redis does not have.
 */
import { type AddressInfo, connect, createServer } from 'node:net'
import type { RedisConnection } from '../../src/node/rest-bridge/redis-connection.ts'
import { sha1 } from '../../src/sha1.ts'
import { targetOf } from './fault-proxy.ts'
import { listen } from './listen.ts'
import { commandOf, endOfCommand } from './resp.ts'

export interface ClockedRedis {
  /** For clients. Their commands run at the time of the clock. */
  url: string
  /** µs since the epoch. */
  now(): number
  /** Sets the clock to a later time (µs), and ages all keys. */
  moveOn(now: number): Promise<void>
  close(): Promise<void>
}

/** The last argument is the time (µs). It adds no line and no local to the script, which has at most 200. */
const before = `local real,at=redis,table.remove(ARGV)
local function on_clock(call)return function(name,...)
if name=='TIME'then return{string.sub(at,1,-7),string.sub(at,-6)}end
local words={...}
for i=1,#words do
if name=='XADD'and words[i]=='*'then words[i]=string.sub(at,1,-4)..'-*'break end
if name=='SET'and words[i]=='PXAT'then words[i],words[i+1]='PX',string.format('%.0f',math.max(1,words[i+1]-at/1000))end
end
return call(name,unpack(words))end end
return(function(redis) `.replaceAll('\n', ' ')
const after = `\nend)(setmetatable({call=on_clock(real.call),pcall=on_clock(real.pcall)},{__index=real}))`

/** A first line with flags stays the first one. */
const wrapped = (source: string): string => source.replace(/^(#![^\n]*\n)?/, flags => flags + before) + after

const AGE = `for _,key in ipairs(redis.call('KEYS','*'))do
local left=redis.call('PTTL',key)
if left>=0 then
if left>ARGV[1]+0 then redis.call('PEXPIRE',key,string.format('%.0f',left-ARGV[1]))else redis.call('DEL',key)end
end end`

/**
 * @param redis its own connection, which is used to age the keys
 * @param startAt µs since the epoch
 */
export async function startClockedRedis(
  redis: { url: string; connection: Pick<RedisConnection, 'send'> },
  startAt: number,
): Promise<ClockedRedis> {
  let now = startAt
  let agedAt = await ownTime()
  /** The wrapped script of each script that a client has sent, and by the SHA-1 of that one the SHA-1 of the wrapped one. */
  const wrappers = new Map<string, string>()
  const digests = new Map<string, string>()

  /** ms */
  async function ownTime(): Promise<number> {
    const [seconds, microseconds] = ((await redis.connection.send(['TIME'])) as Buffer[]).map(Number)
    return seconds! * 1000 + Math.floor(microseconds! / 1000)
  }

  /** The command that is sent instead. */
  function clocked(words: readonly string[]): readonly string[] {
    const [name = '', ...args] = words
    const at = String(now)
    switch (name.toUpperCase()) {
      case 'TIME':
        return ['EVAL', 'return ARGV', '0', at.slice(0, -6), at.slice(-6)]
      case 'EVAL':
        return [name, wrapperOf(args[0]!), ...args.slice(1), at]
      case 'EVALSHA': {
        const digest = digests.get(args[0]!)
        return digest === undefined ? words : [name, digest, ...args.slice(1), at]
      }
      case 'SCRIPT':
        return args[0]!.toUpperCase() === 'LOAD' ? [name, args[0]!, wrapperOf(args[1]!)] : words
      case 'XADD':
        return words.map(word => (word === '*' ? `${Math.floor(now / 1000)}-*` : word))
      case 'SET': {
        const pxat = words.findIndex(word => word.toUpperCase() === 'PXAT')
        const left = Math.max(1, Number(words[pxat + 1]) - Math.floor(now / 1000))
        return pxat < 0 ? words : words.with(pxat, 'PX').with(pxat + 1, String(left))
      }
      default:
        return words
    }
  }

  function wrapperOf(source: string): string {
    const known = wrappers.get(source)
    if (known) return known
    const wrapper = wrapped(source)
    wrappers.set(source, wrapper)
    digests.set(sha1(source), sha1(wrapper))
    return wrapper
  }

  const server = createServer({ noDelay: true }, client => {
    const far = connect(targetOf(redis.url))
    let coming = Buffer.alloc(0)
    client.on('data', bytes => {
      coming = Buffer.concat([coming, bytes])
      for (let end = endOfCommand(coming); end > 0; end = endOfCommand(coming)) {
        far.write(commandOf(...clocked(wordsOf(coming.subarray(0, end)))))
        coming = coming.subarray(end)
      }
    })
    far.on('data', bytes => client.write(bytes))
    for (const [socket, other] of [
      [client, far],
      [far, client],
    ] as const) {
      socket.on('error', () => other.destroy())
      socket.on('close', () => other.destroy())
    }
  })
  await listen(server, 0)
  return {
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    now: () => now,
    async moveOn(later) {
      if (later < now) throw new Error(`The clock of a Redis is not set back: ${later} is before ${now}.`)
      const passedMs = Math.floor(later / 1000) - Math.floor(now / 1000)
      now = later
      if (passedMs === 0) return
      // Redis has taken the time that has passed by its own clock: that of the machine, or of this process if it is embedded.
      const time = await ownTime()
      const ownMs = time - agedAt
      agedAt = time
      await redis.connection.send(['EVAL', AGE, '0', String(passedMs - ownMs)])
    },
    async close() {
      await new Promise(resolve => server.close(resolve))
    },
  }
}

/** The words of a whole command. No command of Sluice has bytes that are not text. */
function wordsOf(command: Buffer): string[] {
  const words: string[] = []
  for (let at = command.indexOf('\r\n') + 2; at < command.length; ) {
    const start = command.indexOf('\r\n', at) + 2
    const length = Number(command.toString('latin1', at + 1, start - 2))
    words.push(command.toString('utf8', start, start + length))
    at = start + length + 2
  }
  return words
}
