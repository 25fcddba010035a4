/** Service tokens: they are created, listed, shown, revoked and rotated, by operators and by other tokens. */
import { describe, expect, it } from 'vitest'
import { readServiceToken } from '../../src/credentials/service-token.ts'
import { parseNewToken } from '../../src/ops/inputs.ts'
import {
  createToken,
  findToken,
  listTokens,
  revokeToken,
  rotateToken,
  type TokenMaker,
} from '../../src/ops/tokens.ts'
import { sha256 } from '../../src/sha256.ts'
import { useAdmin } from '../support/admin.ts'
import { runInProcess } from '../support/command-line.ts'
import { describeOnRedis } from '../support/redis.ts'

const DAY = 86_400e3
const inDays = (days: number) => new Date(Date.now() + days * DAY)
const SUPPORT = { name: 'support', scopes: ['consumers:block', 'stats:read'] }

describeOnRedis('service tokens', start => {
  const admin = useAdmin(start)
  const { send, text } = admin
  const contents = async () => {
    const keys = ((await send('KEYS', '*')) as Buffer[]).map(String)
    const read = (key: string) =>
      key.endsWith(':digests') ? text('ZRANGE', key, '0', '-1') : text('GET', key)
    const values = await Promise.all(keys.map(read))
    return [...keys, ...values].join('\n')
  }

  it('are stored as digests, with a name and scopes, and end when Redis says', async () => {
    const expiresAt = inDays(90)
    const made = await createToken(admin.store, { ...SUPPORT, expiresAt, by: 'ops ü' })
    expect(made).toMatchObject({ ...SUPPORT, expiresAt, by: 'ops ü', digest: sha256(made.token) })
    expect(made.id).toBe(made.digest.slice(0, 12))
    expect(readServiceToken(made.token)).toEqual({ environment: undefined })
    const key = `sluice:{t:${made.digest}}`
    expect(await text('GET', key)).toBe(
      `name=support scopes=consumers:block,stats:read created=${made.createdAt.toISOString()} expires=${expiresAt.toISOString()} by=ops%20%C3%BC`,
    )
    expect(Number(await send('PEXPIRETIME', key))).toBe(expiresAt.getTime())
    expect(await text('ZRANGE', 'sluice:{tokens}:digests', '0', '-1')).toBe(made.digest)
    expect(await contents()).not.toContain(made.token.slice(4, 47))
  })

  it('belong to an environment', async () => {
    const staging = admin.storeOf({ environment: 'staging' })
    const made = await createToken(staging, SUPPORT)
    expect(readServiceToken(made.token)).toEqual({ environment: 'staging' })
    expect(await send('EXISTS', `sluice:staging:{t:${made.digest}}`)).toBe(1)
    expect(await listTokens(admin.store)).toEqual([])
    await expect(findToken(admin.store, made.token)).rejects.toThrow('This is not a token.')
    expect(await findToken(staging, made.token)).toMatchObject({ id: made.id })
  })

  it('have an id that is known before they are stored', async () => {
    let known: unknown
    const before = async (id: string) => {
      known = [id, await listTokens(admin.store)]
      return undefined
    }
    const { id } = await createToken(admin.store, SUPPORT, { before })
    expect(known).toEqual([id, []])
  })

  it('are listed in the order of their creation, without those that have ended', async () => {
    const first = await createToken(admin.store, SUPPORT)
    const second = await createToken(admin.store, { name: 'a', scopes: ['limits:use'] })
    const ended = await createToken(admin.store, SUPPORT)
    await send('DEL', `sluice:{t:${ended.digest}}`)
    const { token: _, digest: __, ...shown } = first
    const listed = await listTokens(admin.store)
    expect(listed.map(({ id }) => id).sort()).toEqual([first.id, second.id].sort())
    expect(listed).toContainEqual(shown)
    expect(await send('ZCARD', 'sluice:{tokens}:digests')).toBe(2)
  })

  it('are found by their id, its beginning, or the token; ids that begin alike have more digits', async () => {
    const { id, token, digest } = await createToken(admin.store, SUPPORT)
    for (const reference of [id, id.slice(0, 6), digest, token])
      expect(await findToken(admin.store, reference)).toMatchObject({ digest, record: SUPPORT })
    const twin = digest.slice(0, 12) + (digest[12] === '0' ? '1' : '0') + digest.slice(13)
    await send(
      'SET',
      `sluice:{t:${twin}}`,
      `name=twin scopes=stats:read created=${new Date(0).toISOString()}`,
    )
    await send('ZADD', 'sluice:{tokens}:digests', '0', twin)
    expect((await listTokens(admin.store)).map(each => each.id)).toEqual([
      twin.slice(0, 16),
      digest.slice(0, 16),
    ])
    await expect(findToken(admin.store, id)).rejects.toThrow('More than one token begins like this')
    await expect(findToken(admin.store, 'ffff')).rejects.toThrow("There is no token 'ffff'")
    await expect(findToken(admin.store, `${token}x`)).rejects.toThrow('Check that it was copied whole')
    await expect(findToken(admin.store, 'acme')).rejects.toThrow('This is not a token. Use its ID')
  })

  it('are gone when they were revoked', async () => {
    const { id } = await createToken(admin.store, SUPPORT)
    await revokeToken(admin.store, await findToken(admin.store, id))
    expect(await send('DBSIZE')).toBe(0)
    await expect(findToken(admin.store, id)).rejects.toThrow('has ended, or was revoked')
  })

  it('are refused without scopes, and with unknown ones', () => {
    for (const scopes of [[], ['limits:use', 'keys:wirte'], ['limits:use:A']])
      expect(() => parseNewToken({ name: 'a', scopes }, [])).toThrow(
        expect.objectContaining({ kind: 'usage' }),
      )
    expect(() => parseNewToken({ name: 'a', scopes: ['keys:wirte'] }, [])).toThrow(
      "'keys:wirte' is not a scope. Did you mean 'keys:write'?",
    )
  })

  describe('that are rotated', () => {
    it('have a successor with the same name, scopes and lifetime, and end after the overlap', async () => {
      const old = await createToken(admin.store, { ...SUPPORT, expiresAt: inDays(30) })
      const found = await findToken(admin.store, old.id)
      const { created, oldEndsAt } = await rotateToken(admin.store, found, 3600e3)
      expect(created).toMatchObject(SUPPORT)
      expect(created.expiresAt!.getTime() - created.createdAt.getTime()).toBeCloseTo(30 * DAY, -4)
      expect(Number(await send('PEXPIRETIME', `sluice:{t:${old.digest}}`))).toBe(oldEndsAt!.getTime())
      const { record } = await findToken(admin.store, old.id)
      expect(record).toMatchObject({ replacedBy: created.id, expiresAt: oldEndsAt })
      await expect(rotateToken(admin.store, { ...found, record }, 0)).rejects.toThrow(
        'is already replaced by',
      )
    })

    it('are revoked at once without an overlap, and never live longer than before', async () => {
      const old = await createToken(admin.store, { ...SUPPORT, expiresAt: inDays(1) })
      const long = await rotateToken(admin.store, await findToken(admin.store, old.id), 9 * DAY)
      expect(long.oldEndsAt).toEqual(old.expiresAt)
      await rotateToken(admin.store, await findToken(admin.store, long.created.id), 0)
      await expect(findToken(admin.store, long.created.id)).rejects.toThrow('There is no token')
    })
  })

  it.each([0, 3600e3])(
    'that are rotated twice at once get one successor, with an overlap of %i ms',
    async overlap => {
      const old = await createToken(admin.store, SUPPORT)
      const found = await findToken(admin.store, old.id)
      const results = await Promise.allSettled(
        [1, 2, 3, 4].map(() => rotateToken(admin.store, found, overlap)),
      )
      const made = results.flatMap(each => (each.status === 'fulfilled' ? each.value.created.id : []))
      expect(made).toHaveLength(1)
      const others = (await listTokens(admin.store)).map(({ id }) => id).filter(id => id !== old.id)
      expect(others).toEqual(made)
    },
  )

  it.each([0, 3600e3])('that are revoked while they are rotated get no successor (%i ms)', async overlap => {
    const old = await createToken(admin.store, SUPPORT)
    const found = await findToken(admin.store, old.id)
    await revokeToken(admin.store, found)
    await expect(rotateToken(admin.store, found, overlap)).rejects.toMatchObject({ kind: 'not-found' })
    expect(await listTokens(admin.store)).toEqual([])
  })

  describe('that tokens make, revoke and rotate', () => {
    const maker: TokenMaker = { scopes: ['tokens:write', 'limits:use', 'stats:read'], expiresAt: inDays(10) }
    const forbidden = { kind: 'forbidden' }
    const CASES: [what: string, scopes: string[], days: number | undefined, isAllowed: boolean][] = [
      ['fewer scopes', ['stats:read'], 5, true],
      ['the same scopes', ['tokens:write', 'limits:use', 'stats:read'], 5, true],
      ['one limit of all', ['limits:use:exports'], 5, true],
      ['another scope', ['stats:read', 'keys:write'], 5, false],
      ['a scope that looks alike', ['limits:reset'], 5, false],
      ['a later end', ['stats:read'], 11, false],
      ['no end', ['stats:read'], undefined, false],
    ]
    it.each(CASES)('with %s', async (_, scopes, days, isAllowed) => {
      const wanted = { name: 'new', scopes, ...(days !== undefined && { expiresAt: inDays(days) }) }
      const making = createToken(admin.store, wanted, { maker })
      if (isAllowed) await expect(making).resolves.toMatchObject(wanted)
      else await expect(making).rejects.toMatchObject(forbidden)

      const { id } = await createToken(admin.store, wanted)
      const found = await findToken(admin.store, id)
      const before = await send('DBSIZE')
      const rotating = rotateToken(admin.store, found, 0, { maker })
      if (!isAllowed) {
        await expect(rotating).rejects.toMatchObject(forbidden)
        await expect(revokeToken(admin.store, found, maker)).rejects.toMatchObject(forbidden)
        expect(await send('DBSIZE')).toBe(before)
        return
      }
      const { created } = await rotating
      expect(created.expiresAt!.getTime()).toBeLessThanOrEqual(maker.expiresAt!.getTime())
      await revokeToken(admin.store, await findToken(admin.store, created.id), maker)
      await expect(findToken(admin.store, created.id)).rejects.toThrow('There is no token')
    })

    it('end with their maker if they are rotated late in its life', async () => {
      const { id } = await createToken(admin.store, {
        name: 'a',
        scopes: ['stats:read'],
        expiresAt: inDays(9),
      })
      const soon = { ...maker, expiresAt: inDays(9.5) }
      const found = await findToken(admin.store, id)
      const old = { ...found, record: { ...found.record, createdAt: inDays(-30) } }
      const { created } = await rotateToken(admin.store, old, 0, { maker: soon })
      expect(created.expiresAt).toEqual(soon.expiresAt)
    })
  })

  it('are made, shown and revoked with the command line', async () => {
    const sluice = async (line: string, input = '') => {
      const url = admin.proxy.url
      return await runInProcess(
        [...line.split(' '), '--config', 'sluice.config.ts'],
        { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: 'a token for tests' },
        input,
      )
    }
    const made = await sluice(
      'tokens create --name support --scopes consumers:block,stats:read --expires 90d --by ops',
    )
    expect(made).toMatchObject({
      code: 0,
      stderr: expect.stringContaining("Created a service token for 'support'"),
    })
    const token = made.stdout.trim()
    const id = sha256(token).slice(0, 12)
    expect((await sluice('tokens list')).stdout).toContain(`${id}  support  consumers:block, stats:read`)
    const shown = JSON.parse((await sluice('tokens show - --json', token)).stdout)
    expect(shown).toMatchObject({ id, ...SUPPORT, by: 'ops' })
    const rotated = JSON.parse((await sluice(`tokens rotate ${id} --overlap 1h --by ops --json`)).stdout)
    expect(rotated).toMatchObject({ ...SUPPORT, replaces: { id } })
    expect(Object.keys(rotated)).not.toContain('digest')
    expect(await sluice(`tokens revoke ${id}`)).toMatchObject({ code: 2 })
    expect(await sluice(`tokens revoke ${id} --yes`)).toMatchObject({
      code: 0,
      stdout: `Token '${id}' is revoked.\n`,
    })
    expect((await sluice('tokens list --json')).stdout).toContain(rotated.id)
    expect((await sluice('tokens create --name a --scopes limits:us')).stderr).toContain(
      "Did you mean 'limits:use'?",
    )
  })
})
