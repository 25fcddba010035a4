/** The store over a direct connection follows the master that Sentinels name. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { connectRedisStore, type RedisStore } from '../../src/node/redis-store/redis-store.ts'
import { createScript } from '../../src/script/create-script.ts'
import { PATIENT } from '../support/patience.ts'
import { MASTER, type Sentinels, startSentinels } from '../support/sentinels.ts'
import { hasRedisServer } from '../support/servers.ts'

const NOTE = createScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title)(`a store behind Sentinels${title}`, () => {
  let sentinels: Sentinels
  let opened: RedisStore
  let names = 0
  const fates = new Map<string, string>()

  beforeEach(async () => {
    fates.clear()
    sentinels = await startSentinels()
    // Two Sentinels that do not exist are skipped.
    opened = await connectRedisStore({
      url: `redis+sentinel://127.0.0.1:1,${sentinels.hosts}/${MASTER}`,
      deadlineMs: 1000,
    })
  })
  afterEach(async () => {
    await opened?.close()
    await sentinels?.close()
  })

  /** Runs a call, and remembers its fate. @returns the code of its failure */
  async function note(): Promise<string> {
    const name = String(names++)
    try {
      await opened.store.run([{ script: NOTE, keys: ['notes'], args: [name] }])
      fates.set(name, 'ran')
      return ''
    } catch (error) {
      const { code, fate, message } = error as { code: string; fate: string; message: string }
      fates.set(name, fate)
      return `${code} ${message}`
    }
  }
  const recovers = () => expect.poll(note, PATIENT).toBe('')
  const notesAt = async (server: Sentinels['master']) =>
    ((await server.send('LRANGE', 'notes', '0', '-1')) as Buffer[]).map(String)

  it('sends its calls to the master, and reports that it is ready', async () => {
    expect(opened.store.isCluster).toBe(false)
    await opened.ready()
    expect(await note()).toBe('')
    expect(await notesAt(sentinels.master)).toHaveLength(1)
    expect(await opened.admin.run('GET', 'none')).toBe(null)
  })

  it('follows a planned failover: calls that were refused have not run, none runs twice', async () => {
    expect(await note()).toBe('')
    await sentinels.failOver()
    await sentinels.agreeOn(sentinels.replica)
    // The old master still answers, until the Sentinels demote it.
    await expect
      .poll(async () => {
        const failure = await note()
        const last = (await notesAt(sentinels.replica)).at(-1)
        return failure || (last === String(names - 1) && last)
      }, PATIENT)
      .toMatch(/^\d+$/)
    const notes = await notesAt(sentinels.replica)
    expect(new Set(notes).size).toBe(notes.length)
    for (const [name, fate] of fates)
      if (fate === 'answered' || fate === 'not-sent') expect(notes).not.toContain(name)
    const before = names
    for (let n = 0; n < 10; n++) expect(await note()).toBe('')
    expect((await notesAt(sentinels.replica)).slice(-10)).toEqual(
      Array.from({ length: 10 }, (_, i) => String(before + i)),
    )
  })

  it('follows a failover because the master is gone', async () => {
    expect(await note()).toBe('')
    await sentinels.master.kill()
    await expect.poll(note, PATIENT).toMatch(/^ERR_STORE_UNREACHABLE .* \(ECONNREFUSED\)\.$/)
    await expect(opened.ready()).rejects.toThrow(/does not answer/)
    await recovers()
    expect((await notesAt(sentinels.replica)).at(-1)).toBe(String(names - 1))
    await opened.ready()
  })

  it('says what is wrong if the Sentinels do not know the master, or do not answer', async () => {
    const other = await connectRedisStore({ url: `redis+sentinel://${sentinels.hosts}/other` })
    await expect(other.store.ping()).rejects.toMatchObject({ code: 'ERR_STORE_REFUSED', fate: 'answered' })
    await expect(other.ready()).rejects.toThrow(
      'The master other is not known, because no Sentinel answers with its address: ERR a Sentinel knows no master of this name.',
    )
    await other.close()
    const none = await connectRedisStore({ url: 'redis+sentinel://127.0.0.1:1/other' })
    await expect(none.store.ping()).rejects.toMatchObject({
      ...{ code: 'ERR_STORE_UNREACHABLE', fate: 'not-sent' },
      message: 'The store could not be reached (ECONNREFUSED).',
    })
    await none.close()
  })
})
