/** Writes of administration: what must be stored for them, and other writers at the same time. */
import { expect, it } from 'vitest'
import type { AdminStore } from '../../src/ops/admin-store.ts'
import { ANY, changeText, write, writeFrom } from '../../src/ops/write.ts'
import { useAdmin } from '../support/admin.ts'
import { describeOnRedis } from '../support/redis.ts'

const KEY = 'sluice:{a}:b'

describeOnRedis('a write', start => {
  const admin = useAdmin(start)
  const { send, text } = admin

  it.each([
    ['a text', 'old', 'old', true],
    ['a text', 'old', 'other', false],
    ['a text', 'old', undefined, false],
    ['any text', ANY, 'old', true],
    ['any text', ANY, undefined, false],
    ['no text', '', undefined, true],
    ['no text', '', 'old', false],
  ])('that needs %s (%j) is made with %j: %j', async (_, wanted, stored, isMade) => {
    if (stored !== undefined) await send('SET', KEY, stored)
    const commands = [['SET', KEY, 'new'] as const]
    expect(await write(admin.store, { keys: [KEY], commands, onlyIf: [[KEY, wanted]] })).toBe(isMade)
    expect(await text('GET', KEY)).toBe(isMade ? 'new' : String(stored ?? null))
  })

  /** Another writer, before each of the first writes. */
  const withOthers = (changes: (() => Promise<unknown>)[]): AdminStore => ({
    ...admin.store,
    async runEach(commands) {
      if (commands[0]?.[0] === 'EVAL') await changes.shift()?.()
      return await admin.store.runEach(commands)
    },
  })

  it('is repeated on the text of another writer, also if that is as it was before', async () => {
    await send('SET', KEY, 'a')
    const away = () => send('DEL', KEY)
    const back = () => send('SET', KEY, 'a')
    const seen: (string | undefined)[] = []
    await changeText(withOthers([away, back]), KEY, before => {
      seen.push(before)
      return { text: `${before}!` }
    })
    expect(seen).toEqual(['a', undefined, 'a'])
    expect(await text('GET', KEY)).toBe('a!')
  })

  it('fails if other writers are always faster, or the claim is lost', async () => {
    let count = 0
    const others = Array.from({ length: 99 }, () => () => send('SET', KEY, `${count++}`))
    await expect(changeText(withOthers(others), KEY, () => ({ text: 'new' }))).rejects.toMatchObject({
      kind: 'conflict',
      message: expect.stringContaining('Another process is changing the same record'),
    })
    const claim = { key: 'sluice:{a}:claim', text: 'pending', done: 'id' }
    const prepare = () => ({ keys: [KEY], commands: [['DEL', KEY] as const], claim })
    await expect(writeFrom(admin.store, KEY, prepare)).rejects.toMatchObject({
      kind: 'conflict',
      message: expect.stringContaining('A later request with the same Idempotency-Key'),
    })
    expect(await text('GET', KEY)).not.toBe('null')
  })

  it('of a text sets its expiry, or none', async () => {
    const expiresAt = new Date(Date.now() + 60e3)
    await changeText(admin.store, KEY, () => ({ text: 'a', expiresAt }))
    expect(Number(await send('PEXPIRETIME', KEY))).toBe(expiresAt.getTime())
    await changeText(admin.store, KEY, text => ({ text: `${text}b` }))
    expect([await text('GET', KEY), Number(await send('PTTL', KEY))]).toEqual(['ab', -1])
    await changeText(admin.store, KEY, () => ({ text: undefined }))
    expect(await send('EXISTS', KEY)).toBe(0)
  })
})
