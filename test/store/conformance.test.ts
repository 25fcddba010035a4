/** What every store does, whatever carries its commands to Redis. Faults are in conformance-faults.test.ts. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createScript } from '../../src/script/create-script.ts'
import type { PlainCall, ScriptCall } from '../../src/store/store.ts'
import { sized } from '../selection.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'
import { type OpenStore, STORE_KINDS } from '../support/store-kinds.ts'

const call = (text: string, args: readonly string[] = [], keys = ['sluice:{a}']): ScriptCall => ({
  ...{ script: createScript(text), keys, args },
})
const read = (key: string, command: PlainCall['command'] = 'GET'): PlainCall => ({ command, key })

const AT_ONCE = sized(1000, 200)

const INCREMENT = "return redis.call('INCR', KEYS[1])"

describeOnRedis('a store', (start, kind) => {
  describe.each(sized(STORE_KINDS, STORE_KINDS.slice(0, 2)))('$name', ({ open }) => {
    let redis: TestRedis
    let opened: OpenStore
    beforeAll(async () => {
      redis = await start()
      opened = await open(redis.url)
    })
    afterAll(async () => {
      await opened?.close()
      await redis?.close()
    })
    const run = (...calls: (ScriptCall | PlainCall)[]) => opened.store.run(calls)
    const failureOf = (...calls: (ScriptCall | PlainCall)[]) =>
      run(...calls).then(
        () => 'no failure',
        ({ code, message, fate }) => ({ code, message, fate }),
      )

    it.each([
      ['an integer', 'return 17', 17],
      ['a large integer', 'return 1795668069548418', 1795668069548418],
      ['a number that is cut', 'return -3.9', -3],
      ['a text', "return 'é€😀 \\\\r\\\\n'", 'é€😀 \\r\\n'],
      ['an empty text', "return ''", ''],
      ['nothing', 'return false', null],
      ['true', 'return true', 1],
      ['a status', "return redis.status_reply('FINE')", 'FINE'],
      ['OK', "return redis.call('SET', KEYS[1], 1)", 'OK'],
      ['a list', "return {1, {'a', {}, false}, 'OK'}", [1, ['a', [], null], 'OK']],
      ['bytes that are no text', "return '\\255a\\0'", '\uFFFDa\0'],
    ])('replies %s', async (_, text, reply) => {
      expect(await run(call(text))).toEqual([reply])
    })

    it('replies to plain commands as Redis does: a text, a list of fields and values, or nothing', async () => {
      await redis.connection.send(['SET', 'text', 'é'])
      await redis.connection.send(['HSET', 'hash', 'a', '1', 'b', 'é'])
      expect(await run(read('text'), read('none'), read('hash', 'HGETALL'), read('none', 'HGETALL'))).toEqual(
        ['é', null, ['a', '1', 'b', 'é'], []],
      )
    })

    it('gives scripts their keys and arguments, of any text and size', async () => {
      const args = ['', 'é€😀', '\r\n$3\r\n', '\0', '"\\', 'x'.repeat(1e6)]
      const [lengths] = await run(
        call('local n = {#KEYS} for i, arg in ipairs(ARGV) do n[i + 1] = #arg end return n', args),
      )
      expect(lengths).toEqual([1, ...args.map(arg => Buffer.byteLength(arg))])
      expect(await run(call('return ARGV[1]', ['x'.repeat(1e6)]))).toEqual(['x'.repeat(1e6)])
    })

    it('accesses the keys of its environment', async () => {
      const inTest = await open(redis.url, { environment: 'test' })
      await inTest.store.run([call(INCREMENT, [], ['sluice:{e}'])])
      expect(await inTest.store.run([read('sluice:{e}')])).toEqual(['1'])
      await inTest.close()
      expect(await run(read('sluice:{e}'), read('sluice:test:{e}'))).toEqual([null, '1'])
    })

    it('loads a script that Redis lacks, and runs every call once and in order', async () => {
      const calls = [
        call(INCREMENT, [], ['n']),
        read('n'),
        call(INCREMENT, [], ['n']),
        call("return redis.call('DECRBY', KEYS[1], 10)", [], ['n']),
      ]
      await run(...calls)
      await redis.connection.send(['SET', 'n', '0'])
      await redis.connection.send(['SCRIPT', 'FLUSH'])
      // The plain command did not lack anything, so it ran before.
      expect(await run(...calls)).toEqual([1, '0', 2, -8])
      expect(await run(...calls)).toEqual([-7, '-7', -6, -16])
    })

    it('loads a large script', async () => {
      const text = `local x = '${'x'.repeat(6e5)}' return #x`
      expect(await run(call(text))).toEqual([6e5])
      expect(await run(call(text))).toEqual([6e5])
    })

    it(`gives each of ${AT_ONCE} calls at once its own reply`, async () => {
      const numbers = Array.from({ length: AT_ONCE }, (_, i) => String(i))
      const replies = await Promise.all(numbers.map(number => run(call('return ARGV[1]', [number]))))
      expect(replies.flat()).toEqual(numbers)
      expect(await run(...numbers.map(number => call('return ARGV[1]', [number])))).toEqual(numbers)
    })

    it('answers a ping', async () => {
      await opened.store.ping()
    })

    it('puts the failure of one call in its place', async () => {
      const replies = await run(
        call('return 1'),
        read('hash-of-errors', 'HGETALL'),
        call("return redis.call('NONSENSE', KEYS[1])"),
      )
      expect(replies.slice(0, 2)).toEqual([1, []])
      expect(replies[2]).toMatchObject({ code: 'ERR_STORE_REFUSED', fate: 'answered' })
    })

    it('throws the failure of a single call, without its keys and arguments', async () => {
      await run(call("return redis.call('LPUSH', KEYS[1], 1)", [], ['secret-key']))
      const wrong = call('return redis.call("INCR", KEYS[1])', ['secret-argument'], ['secret-key'])
      expect(await failureOf(wrong)).toEqual({
        code: 'ERR_STORE_REFUSED',
        // Redis 7 names the error of the command, earlier servers that of the script.
        message: expect.stringMatching(/^The store answered (WRONGTYPE|ERR)\.$/),
        fate: 'answered',
      })
      expect(await failureOf(call("return redis.error_reply('DENIED by secret-key')"))).toEqual({
        ...{ code: 'ERR_STORE_REFUSED', message: 'The store answered DENIED.', fate: 'answered' },
      })
    })

    it('administrates: single commands, many in order, transactions, and their errors', async () => {
      const { admin } = opened
      expect(await admin.run('SET', 'é', 'ü')).toBe('OK')
      expect(await admin.run('GET', 'é')).toBe('ü')
      expect(await admin.run('GET', 'none')).toBe(null)
      expect(await admin.runEach([])).toEqual([])
      expect(
        await admin.runEach([
          ['HSET', 'h', 'a', 1, 'b', 2],
          ['HGETALL', 'h'],
          ['SADD', 's', 'x'],
        ]),
      ).toEqual([2, ['a', '1', 'b', '2'], 1])
      const many = Array.from(
        { length: 2500 },
        (_, i) => ['INCRBY', 'i', 1, i].slice(0, 3) as ['INCRBY', string, number],
      )
      expect(await admin.runEach(many)).toEqual(many.map((_, i) => i + 1))
      expect(
        await admin.transact([
          ['SET', 't', 1],
          ['INCR', 't'],
        ]),
      ).toEqual(['OK', 2])
      const failing = (work: Promise<unknown>) =>
        work.then(
          () => 'no failure',
          ({ name, kind, message }) => `${name} ${kind} ${message}`,
        )
      const error =
        /^AdminError store The store (at \S+ )?answered with an error: WRONGTYPE Operation against a key/
      expect(await failing(admin.run('INCR', 's'))).toMatch(kind === 'embedded' ? /^AdminError store/ : error)
      expect(
        await failing(
          admin.runEach([
            ['INCR', 't'],
            ['LPUSH', 't', 'x'],
          ]),
        ),
      ).toMatch(error)
      expect(
        await failing(
          admin.transact([
            ['INCR', 't'],
            ['LPUSH', 't', 'x'],
          ]),
        ),
      ).toMatch(error)
    })
  })
})
