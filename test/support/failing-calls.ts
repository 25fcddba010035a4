/**
 * Calls that are made while each of their commands fails in turn: the user may not run it, Redis is a replica or full, or a key has another type.
 * A call that fails can be sent again, and then everything is as if it had not failed.
 */
import { describe, expect, it } from 'vitest'
import { RedisEngine } from './engines.ts'
import { useLimitedUser } from './limited-user.ts'
import { PATIENT_MS } from './patience.ts'
import { describeOnRedis } from './redis.ts'

/** A call, and what is stored before it. */
export interface FailingCall {
  /** A key that may have more than after one call. */
  grows?: string
  /** Whether a key never expires. Absent: each one expires, but texts and streams. */
  isLasting?(key: string): boolean
  prepare(engine: RedisEngine): Promise<unknown>
  call(engine: RedisEngine): Promise<unknown>
}

/** Declares a test of each call. */
export function itCanBeSentAgain(cases: Readonly<Record<string, FailingCall>>): void {
  describeOnRedis('a call that fails, and is sent again', (start, kind) => {
    // The embedded Redis has no users, and is never full.
    describe.skipIf(kind === 'embedded')('', () => {
      const user = useLimitedUser(start)
      const { send, forbid, allow } = user

      /** What is stored, without ids of streams, which the clock makes. */
      async function content({ grows, isLasting }: FailingCall): Promise<Record<string, unknown>> {
        const all = ((await send('KEYS', '*')) as Buffer[]).map(String).sort()
        const keys = all.filter(key => key !== grows)
        const found: Record<string, unknown> = {}
        for (const key of keys) {
          const type = String(await send('TYPE', key))
          const texts = (reply: unknown) => (reply as Buffer[]).map(String)
          // Nothing, until it expires a second later.
          if (type === 'string' && Number(await send('STRLEN', key)) === 0) continue
          if (type === 'string') found[key] = ((await send('GET', key)) as Buffer).toString('hex')
          else if (type === 'hash') {
            const all = texts(await send('HGETALL', key))
            found[key] = all.flatMap((text, i) => (i % 2 === 0 ? [`${text} = ${all[i + 1]}`] : [])).sort()
          } else if (type === 'zset') found[key] = texts(await send('ZRANGE', key, '0', '-1', 'WITHSCORES'))
          else if (type === 'stream') found[key] = Number(await send('XLEN', key))
          else found[key] = type
          // Entries of the audit trail end by their age, also in a stream that Redis did not let expire.
          if (type !== 'string' && type !== 'stream' && !isLasting?.(key))
            expect(Number(await send('TTL', key)), `${key} expires`).toBeGreaterThan(0)
        }
        return found
      }

      /** Prepares the case. @returns restores it */
      async function prepared({ prepare }: FailingCall): Promise<() => Promise<void>> {
        await send('FLUSHALL')
        await prepare(new RedisEngine(user.redis.connection))
        const keys = ((await send('KEYS', '*')) as Buffer[]).map(String)
        const values = await Promise.all(keys.map(key => dumpOf(key)))
        return async () => {
          await send('FLUSHALL')
          for (const [i, key] of keys.entries()) await restore(key, values[i]!)
        }
      }
      const dumpOf = async (key: string) => [
        (await send('DUMP', key)) as Buffer | null,
        String(await send('PTTL', key)),
      ]
      const restore = async (key: string, [value, ttl]: (Buffer | string | null)[]) => {
        await send('DEL', key)
        if (value) await send('RESTORE', key, String(Math.max(0, Number(ttl))), value)
      }

      const whole = () => new RedisEngine(user.redis.connection)
      const isDone = (asked: Promise<unknown>) =>
        asked.then(
          () => true,
          () => false,
        )

      it.each(Object.entries(cases))(
        '%s',
        async (_, each) => {
          const reset = await prepared(each)
          await send('CONFIG', 'RESETSTAT')
          await each.call(whole())
          const commands = String(await send('INFO', 'commandstats'))
            .split('\r\n')
            .flatMap(line => /^cmdstat_([a-z]+):/.exec(line)?.[1] ?? [])
            .filter(command => !['evalsha', 'eval', 'script', 'config', 'info'].includes(command))
          const expected = await content(each)
          const keys = Object.keys(expected)
          const faults: [string, () => Promise<unknown>, () => Promise<unknown>][] = [
            ...commands.map((command): (typeof faults)[number] => [
              `may not run ${command}`,
              () => forbid(command),
              () => allow(command),
            ]),
            ['is a replica', () => send('REPLICAOF', '127.0.0.1', '1'), () => send('REPLICAOF', 'NO', 'ONE')],
            [
              'is full',
              () => send('CONFIG', 'SET', 'maxmemory', '1'),
              () => send('CONFIG', 'SET', 'maxmemory', '0'),
            ],
          ]
          let failures = 0
          for (const [name, begin, end] of faults) {
            await reset()
            await begin()
            const done = await isDone(each.call(new RedisEngine(user.limited)))
            await end()
            if (!done) {
              failures += 1
              await each.call(whole())
            }
            expect(await content(each), name).toEqual(expected)
          }
          expect(failures).toBeGreaterThan(1)
          await reset()
          const before = (await send('KEYS', '*')) as Buffer[]
          for (const key of new Set([...keys, ...before.map(String)])) {
            await reset()
            const kept = await dumpOf(key)
            await send('DEL', key)
            await send('LPUSH', key, 'x')
            await send('EXPIRE', key, '600')
            const done = await isDone(each.call(new RedisEngine(user.limited)))
            // Some keys of another type count as missing, and are replaced.
            if (done) continue
            await restore(key, kept)
            await each.call(whole())
            expect(await content(each), `${key} has another type`).toEqual(expected)
          }
        },
        PATIENT_MS,
      )
    })
  })
}
