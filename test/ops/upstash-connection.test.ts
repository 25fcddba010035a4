import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { type Command, evalCommand, readStoreTime } from '../../src/store/admin-connection.ts'
import { startAdmin, type TestAdmin } from '../support/admin.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

let admin: TestAdmin<TestRedis>
beforeAll(async () => {
  admin = await startAdmin(await startRedis())
})
afterAll(() => admin?.close())
beforeEach(() => admin.redis.connection.send(['FLUSHALL']))

const requestsOf = async (call: () => Promise<unknown>) => {
  admin.proxy.count()
  return [await call(), admin.proxy.count()]
}

const SET: Command = ['SET', 'sluice:{a}', 'x']

it('a command, a list of commands and a transaction are one request each, with the raw replies', async () => {
  const { store } = admin
  expect(await requestsOf(() => store.run('HSET', 'sluice:{h}', 'a', 1))).toEqual([1, 1])
  const reads: Command[] = [
    ['HGETALL', 'sluice:{h}'],
    ['GET', 'sluice:{none}'],
    evalCommand('return {KEYS[1], ARGV[1]}', ['sluice:{k}'], [7]),
  ]
  const replies = [['a', '1'], null, ['sluice:{k}', '7']]
  expect(await requestsOf(() => store.runEach(reads))).toEqual([replies, 1])
  expect(await requestsOf(() => store.transact(reads))).toEqual([replies, 1])
  expect(await requestsOf(() => store.transact([SET]))).toEqual([['OK'], 1])
  expect(await requestsOf(() => store.runEach([]))).toEqual([[], 0])
})

it('more than 1000 commands are several requests', async () => {
  const commands = Array.from({ length: 1001 }, (): Command => ['GET', 'sluice:{a}'])
  const [replies, requests] = await requestsOf(() => admin.store.runEach(commands))
  expect([replies, requests]).toEqual([Array(1001).fill(null), 2])
})

it('fails if one of the commands fails; of a transaction that Redis refuses, none has run', async () => {
  const failed = { kind: 'store', message: expect.stringMatching(/ answered with an error: WRONGTYPE /) }
  await expect(admin.store.runEach([SET, ['HGETALL', 'sluice:{a}']])).rejects.toMatchObject(failed)
  await admin.redis.connection.send(['FLUSHALL'])
  await expect(admin.store.transact([SET, ['SET', 'sluice:{a}']])).rejects.toMatchObject({ kind: 'store' })
  expect(await admin.store.run('EXISTS', 'sluice:{a}')).toBe(0)
})

it('reads the clock of the store', async () => {
  const [seconds] = (await admin.redis.connection.send(['TIME'])) as [string]
  expect((await readStoreTime(admin.store)) / 1000 - Number(seconds)).toBeOneOf([0, 1])
})

it('sends back the sync token of the last reply, so that a replica has the last write', async () => {
  const tokens: unknown[] = []
  admin.proxy.fault = ({ headers }, response) => {
    tokens.push(headers['upstash-sync-token'])
    response.writeHead(200, { 'upstash-sync-token': `t${tokens.length}` }).end('{"result":null}')
  }
  const store = admin.storeOf({})
  for (let i = 0; i < 3; i++) await store.run('GET', 'sluice:{a}')
  admin.proxy.fault = undefined
  expect(tokens).toEqual(['', 't1', 't2'])
})
