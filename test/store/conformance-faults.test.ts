/**
 * What every store does when Redis or the connection to it fails: the code of the error, the fate of each call, and the way back. A call
 * never runs twice, and its fate never says that it has not run if it has.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createScript } from '../../src/script/create-script.ts'
import type { ScriptCall, Store } from '../../src/store/store.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'
import { startTcpProxy, type TcpProxy } from '../support/fault-proxy.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { endOfCommand } from '../support/resp.ts'
import { hasRedisServer } from '../support/servers.ts'
import { type OpenOptions, type OpenStore, STORE_KINDS } from '../support/store-kinds.ts'

const call = (text: string, args: readonly string[] = [], keys = ['sluice:{a}']): ScriptCall => ({
  ...{ script: createScript(text), keys, args },
})

const FINE = call('return 1')
/** Notes that a call has run, by its name. */
const note = (name: string, padding = '') =>
  call("return redis.call('RPUSH', KEYS[1], ARGV[1])", [name, padding], ['notes'])

interface Failure {
  code: string
  message: string
  fate: string
}

const failureOf = (work: Promise<unknown>): Promise<Failure> =>
  work.then(
    () => ({ code: 'no failure', message: '', fate: '' }),
    ({ code, message, fate }) => ({ code, message, fate }),
  )

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title).each(STORE_KINDS)(`a store $name${title}`, ({ open, isDirect }) => {
  let redis: RedisProcess
  let proxy: TcpProxy
  const opened: { close(): Promise<void> }[] = []

  beforeAll(async () => {
    redis = await startRedisProcess({ 'busy-reply-threshold': '50', 'enable-debug-command': 'yes' })
    proxy = await startTcpProxy({ host: redis.host, port: redis.port }, endOfCommand)
  })
  let isShut = false
  async function shutProxy(): Promise<void> {
    isShut = true
    await proxy.shut()
  }
  async function openProxy(): Promise<void> {
    if (isShut) await proxy.open()
    isShut = false
  }
  afterEach(async () => {
    await openProxy()
    redis.thaw()
    await Promise.all(opened.splice(0).map(each => each.close()))
  })
  afterAll(async () => {
    await proxy?.close()
    await redis?.close()
  })

  /** A store whose connection goes through the proxy. */
  async function openStore(
    options?: OpenOptions,
    url = `redis://127.0.0.1:${proxy.port}`,
  ): Promise<OpenStore> {
    const made = await open(url, options)
    opened.push(made)
    return made
  }
  const recovers = (store: Store) =>
    expect.poll(() => failureOf(store.run([FINE])), PATIENT).toMatchObject({ code: 'no failure' })
  const notes = async () => ((await redis.send('LRANGE', 'notes', '0', '-1')) as Buffer[]).map(String)
  const forget = () => redis.send('DEL', 'notes')

  it.each([
    ['LOADING Redis is loading the dataset in memory', 'LOADING.'],
    ["READONLY You can't write against a read only replica.", 'READONLY.'],
    ["MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", 'MASTERDOWN.'],
    ["OOM command not allowed when used memory > 'maxmemory'.", 'OOM.'],
    ['MISCONF Redis is configured to save RDB snapshots', 'MISCONF.'],
    ['NOREPLICAS Not enough good replicas to write.', 'NOREPLICAS.'],
    ['BUSY Redis is busy running a script.', 'BUSY.'],
    ['MOVED 7 10.9.9.9:6379', 'MOVED.'],
    ['ASK 7 10.9.9.9:6379', 'ASK.'],
    ['TRYAGAIN Multiple keys request during rehashing of slot', 'TRYAGAIN.'],
    ['CLUSTERDOWN The cluster is down', 'CLUSTERDOWN.'],
    ['CROSSSLOT Keys in request do not hash to the same slot', 'CROSSSLOT.'],
    ['EXECABORT Transaction discarded because of previous errors.', 'EXECABORT.'],
    ['ERR unknown command', 'ERR.'],
    ['ERR max number of clients reached', 'ERR.'],
    // Over HTTP, what has no code of Redis is the answer of a server in between.
    ...(isDirect ? [['something else', 'an error.'] as [string, string]] : []),
    ['NOPERM this user has no permissions', /^NOPERM: .*its Redis user lacks a permission/],
    ['ERR ACL failure in script: this user', /^NOPERM: .*its Redis user lacks a permission/],
  ])('reports %s, without running the call', async (error, expected) => {
    const { store } = await openStore()
    const armed = proxy.arm({ request: client => void client.write(`-${error}\r\n`) }, n => n === 1)
    const failure = await failureOf(store.run([note('refused')]))
    await armed.disarm()
    expect(failure).toMatchObject({ code: 'ERR_STORE_REFUSED', fate: 'answered' })
    const answered = failure.message.replace('The store answered ', '')
    if (typeof expected === 'string') expect(answered).toBe(expected)
    else expect(answered).toMatch(expected)
    expect(await store.run([FINE])).toEqual([1])
    expect(await notes()).toEqual([])
  })

  it('reports a lost connection while a call runs as one that may have run, and does not repeat it', async () => {
    const { store } = await openStore()
    await store.run([note('warm')])
    await forget()
    // The reply is lost.
    let armed = proxy.arm({ reply: client => void client.resetAndDestroy() }, n => n === 1)
    expect(await failureOf(store.run([note('ran')]))).toMatchObject({
      ...{ code: 'ERR_STORE_UNREACHABLE', fate: 'may-have-run' },
    })
    await armed.disarm()
    await recovers(store)
    expect(await notes()).toEqual(['ran'])
    // The call is lost. It is not known that it has not run.
    armed = proxy.arm({ request: client => void client.resetAndDestroy() }, n => n === 1)
    expect(await failureOf(store.run([note('lost')]))).toMatchObject({
      ...{ code: 'ERR_STORE_UNREACHABLE', fate: 'may-have-run' },
    })
    await armed.disarm()
    await recovers(store)
    expect(await notes()).toEqual(['ran'])
    await forget()
  })

  it('fails at once without a connection, sends nothing later, and recovers', async () => {
    const { store } = await openStore()
    await shutProxy()
    await expect
      .poll(() => failureOf(store.run([note('offline')])), PATIENT)
      .toMatchObject({ code: 'ERR_STORE_UNREACHABLE' })
    // Over HTTP it is not known.
    if (isDirect)
      await expect
        .poll(() => failureOf(store.run([note('offline')])), PATIENT)
        .toEqual({
          ...{ code: 'ERR_STORE_UNREACHABLE', fate: 'not-sent' },
          message: 'The store could not be reached (ECONNREFUSED).',
        })
    await openProxy()
    await recovers(store)
    expect(await notes()).toEqual([])
  })

  it('says of every call in a flood of lost connections what became of it, and runs none twice', async () => {
    const { int, chance } = randomFrom(SEED)
    const { store } = await openStore()
    await store.run([note('warm')])
    await forget()
    const known = new Map<string, string>()
    const expected = isDirect ? ['may-have-run', 'not-sent', 'ran'] : ['may-have-run', 'ran']
    const fates = () => [...new Set(known.values())].sort()
    let isOver = false
    const cuts = (async () => {
      const startedAt = performance.now()
      // On a slow machine, no call is answered between the first cuts, so they come less and less often until one is.
      for (let n = 0; n < 12 || fates().length < expected.length; n++) {
        if (performance.now() - startedAt > PATIENT_MS) break
        await new Promise(resolve => setTimeout(resolve, int(5, 60) + 10 * Math.max(0, n - 12)))
        proxy.cut()
      }
      isOver = true
    })()
    const clients = Array.from({ length: 8 }, async (_, client) => {
      for (let n = 0; !isOver; n++) {
        const names = Array.from({ length: int(1, 5) }, (_, i) => `${client}-${n}-${i}`)
        // With large calls, the socket cannot take all of them at once.
        const padding = 'x'.repeat(chance(0.1) ? 2e5 : 0)
        const replies = await store
          .run(names.map(name => note(name, padding)))
          .catch(error => names.map(() => error))
        for (const [i, name] of names.entries()) known.set(name, replies[i].fate ?? 'ran')
        await new Promise(resolve => setTimeout(resolve, int(0, 4)))
      }
    })
    await Promise.all([cuts, ...clients])
    await recovers(store)
    const ran = await notes()
    await forget()
    expect(new Set(ran).size).toBe(ran.length)
    for (const [name, fate] of known) {
      if (fate === 'ran') expect(ran).toContain(name)
      else if (fate !== 'may-have-run') expect(ran).not.toContain(name)
    }
    expect(fates()).toEqual(expected)
  })

  it('gives up at its deadline while Redis is frozen, and gives the late reply to no other call', async () => {
    const clock = createDeadlineClock()
    const { store } = await openStore({ deadlineMs: 1000, clock })
    await store.run([note('warm')])
    await forget()
    redis.freeze()
    const frozen = failureOf(store.run([note('frozen')]))
    // The command is on its way before the clock goes.
    await new Promise(resolve => setTimeout(resolve, 100))
    clock.pass(1000)
    expect(await frozen).toEqual({
      ...{ code: 'ERR_STORE_TIMEOUT', fate: 'may-have-run' },
      message: 'The store did not answer within the deadline.',
    })
    redis.thaw()
    await recovers(store)
    expect(await store.run([call('return ARGV[1]', ['own'])])).toEqual(['own'])
    expect(await notes()).toEqual(['frozen'])
    await forget()
  })

  it('reports a busy process as such, not as a slow store', async () => {
    const clock = createDeadlineClock()
    const { store } = await openStore({ deadlineMs: 1000, clock })
    await store.run([FINE])
    redis.freeze()
    const waiting = failureOf(store.run([FINE]))
    await new Promise(resolve => setTimeout(resolve, 50))
    // No timer is on time.
    for (let n = 0; n < 2; n++) clock.isBusy(21_000)
    expect(await waiting).toMatchObject({ code: 'ERR_STORE_OVERLOAD' })
    redis.thaw()
    await recovers(store)
  })

  it('waits for a script that is too slow until its deadline; Redis refuses others as busy', async () => {
    const { store } = await openStore({ deadlineMs: 300 })
    const other = await openStore()
    await recovers(store)
    const endless = call('while true do end')
    expect(await failureOf(store.run([endless]))).toMatchObject({
      ...{ code: 'ERR_STORE_TIMEOUT', fate: 'may-have-run' },
    })
    expect(await failureOf(other.store.run([FINE]))).toMatchObject({
      ...{ code: 'ERR_STORE_REFUSED', message: 'The store answered BUSY.', fate: 'answered' },
    })
    await redis.send('SCRIPT', 'KILL').catch(() => {})
    await recovers(store)
    await recovers(other.store)
  })

  it('recovers from a restart of Redis, which has lost its scripts', async () => {
    const { store } = await openStore()
    await store.run([note('before')])
    await redis.kill()
    await expect
      .poll(() => failureOf(store.run([FINE])), PATIENT)
      .toMatchObject({ code: 'ERR_STORE_UNREACHABLE' })
    await redis.start()
    await recovers(store)
    expect(await store.run([note('after')])).toEqual([1])
    await forget()
  })

  it('reports that Redis has no memory left, and that it is a replica, and recovers', async () => {
    const { store } = await openStore()
    await recovers(store)
    await redis.send('CONFIG', 'SET', 'maxmemory', '1')
    expect(await failureOf(store.run([note('full')]))).toMatchObject({
      ...{ code: 'ERR_STORE_REFUSED', message: 'The store answered OOM.', fate: 'answered' },
    })
    await redis.send('CONFIG', 'SET', 'maxmemory', '0')
    await redis.send('REPLICAOF', '127.0.0.1', '1')
    expect(await failureOf(store.run([note('replica')]))).toMatchObject({
      ...{ code: 'ERR_STORE_REFUSED', message: 'The store answered READONLY.', fate: 'answered' },
    })
    await redis.send('REPLICAOF', 'NO', 'ONE')
    expect(await store.run([note('fine')])).toEqual([1])
    await forget()
  })

  it('reports a missing permission of the user, for commands and for scripts', async () => {
    await redis.send('ACL', 'SETUSER', 'limited', 'on', '>pw', '~sluice:*', '+@all', '-incr', '-hgetall')
    const { store } = await openStore({}, `redis://limited:pw@127.0.0.1:${proxy.port}`)
    for (const work of [
      store.run([{ command: 'HGETALL', key: 'sluice:h' }]),
      store.run([{ command: 'GET', key: 'other' }]),
      store.run([call("return redis.call('INCR', KEYS[1])")]),
    ])
      expect(await failureOf(work)).toMatchObject({
        ...{ code: 'ERR_STORE_REFUSED', fate: 'answered' },
        message: expect.stringMatching(/^The store answered NOPERM: .*lacks a permission \(docs\/deploy\.md/),
      })
    expect(await store.run([FINE])).toEqual([1])
    // A user that was changed keeps its connection, a deleted one loses it.
    await redis.send('ACL', 'DELUSER', 'limited')
    await expect.poll(() => failureOf(store.run([FINE])), PATIENT).not.toMatchObject({ code: 'no failure' })
  })

  it('reports a password that was changed, and recovers when it is changed back', async () => {
    await redis.send('ACL', 'SETUSER', 'app', 'on', '>right', '~*', '+@all')
    const { store } = await openStore({}, `redis://app:right@127.0.0.1:${proxy.port}`)
    await store.run([note('before')])
    await redis.send('ACL', 'SETUSER', 'app', '<right', '>other')
    proxy.cut()
    await expect
      .poll(() => failureOf(store.run([note('refused')])), PATIENT)
      .toEqual(
        isDirect
          ? {
              ...{ code: 'ERR_STORE_REFUSED', fate: 'answered' },
              message:
                'The store answered WRONGPASS. Check the user and the password in the URL of Redis, or of the client.',
            }
          : {
              ...{ code: 'ERR_STORE_UNREACHABLE', fate: 'may-have-run' },
              message: 'The bridge cannot reach its Redis.',
            },
      )
    await redis.send('ACL', 'SETUSER', 'app', '>right')
    await recovers(store)
    expect(await notes()).toEqual(['before'])
    await forget()
  })

  it('administration says the same of failures, without keys', async () => {
    const { admin } = await openStore({ connectMs: 2000 })
    const armed = proxy.arm({ request: client => void client.resetAndDestroy() }, n => n === 1)
    const failing = (work: Promise<unknown>) =>
      work.then(
        () => 'no failure',
        ({ kind, message }) => `${kind}: ${message}`,
      )
    expect(await failing(admin.run('SET', 'secret-key', '1'))).toMatch(
      isDirect
        ? /^store: The store broke the connection before it answered\. If this was a change/
        : /^store: /,
    )
    await armed.disarm()
    await expect.poll(() => failing(admin.run('GET', 'secret-key')), PATIENT).toBe('no failure')
    await shutProxy()
    await expect
      .poll(() => failing(admin.run('GET', 'secret-key')), PATIENT)
      .toMatch(isDirect ? /^store: The store cannot be reached\.$/ : /its Redis does not answer/)
    await openProxy()
    await expect.poll(() => failing(admin.run('GET', 'secret-key')), PATIENT).toBe('no failure')
  })
})
