/** A creation with an Idempotency-Key can be repeated whatever became of the first request: nothing is created twice. */
import { beforeEach, describe, expect, it } from 'vitest'
import { withActor } from '../../src/ops/admin-store.ts'
import { createClaim } from '../../src/set-ups/api/idempotency.ts'
import { API_ON_CLUSTER } from '../../src/set-ups/api/on-cluster.ts'
import { sha256 } from '../../src/sha256.ts'
import { sized } from '../selection.ts'
import { type ApiCall, type ApiReply, apiOf, tokenWith } from '../support/api.ts'
import { useGateway } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const SCOPES = ['keys:write', 'tokens:write', 'stats:read']
const HEADERS = { 'idempotency-key': 'order-17' }

describeOnRedis('creations with an Idempotency-Key', (_, kind) => {
  const gateway = useGateway(kind)
  let api: ApiCall
  let token: string

  beforeEach(async () => {
    api = apiOf(gateway, { credentials: { opaqueKeys: {} } })
    token = await tokenWith(gateway, SCOPES, { name: 'a' })
    // So that the faults below are about the creation alone.
    await api('GET keys', { token })
  })

  const CREATIONS = [
    ['POST keys', { consumer: 'acme' }],
    ['POST keys/import', { consumer: 'acme', sha256: sha256('a key of another system') }],
    ['POST tokens', { name: 'b', scopes: ['stats:read'] }],
    ['POST keys/{old}/rotate', {}],
    ['POST tokens/{old}/rotate', { overlap: '0s' }],
  ] as const

  /** The request, which replaces a new key or token if it is a rotation. */
  async function requestOf(what: string, body: object): Promise<() => Promise<ApiReply>> {
    const made = what.includes('{old}')
      ? await (what.includes('keys')
          ? api('POST keys', { token, body: { consumer: 'acme' } })
          : api('POST tokens', { token, body: { name: 'b', scopes: ['stats:read'] } }))
      : undefined
    return () => api(what.replace('{old}', String(made?.body.id)), { token, headers: HEADERS, body })
  }

  async function idsOf(what: string): Promise<string[]> {
    const { body } = await api(what.includes('tokens') ? 'GET tokens' : 'GET keys', { token })
    return body.items.map(({ id }: { id: string }) => id)
  }

  describe.each(CREATIONS.filter((_, i) => sized(true, i === 0 || i === 4)))('%s %j', (what, body) => {
    it.each([
      'loses its request to the store',
      'loses the reply of the store',
      'is overtaken by its repeat',
    ] as const)('%s, at any point', async fault => {
      let isOver = false
      for (let at = 0; !isOver; at++) {
        await gateway.redis.connection.send(['FLUSHALL'])
        token = await tokenWith(gateway, SCOPES, { name: 'a' })
        await api('GET keys', { token })
        const send = await requestOf(what, body)
        const before = await idsOf(what)
        let requests = 0
        let goOn = () => {}
        const isHeld = new Promise<void>(resolve => {
          gateway.store.fault = (_, response, passOn) => {
            if (requests++ !== at) return passOn()
            if (fault === 'loses its request to the store') response.destroy()
            else if (fault === 'loses the reply of the store') passOn((_, to) => to.destroy())
            else goOn = () => passOn()
            resolve()
          }
        })
        const sent = send()
        if (fault === 'is overtaken by its repeat') await Promise.race([isHeld, sent])
        else await sent
        gateway.store.fault = undefined
        const repeat = await send()
        goOn()
        const first = await sent
        const created = (await idsOf(what)).filter(id => !before.includes(id))
        expect([at, created.length]).toEqual([at, 1])
        const replies = [first, repeat].filter(({ status }) => status === 201)
        expect([at, replies.length <= 1]).toEqual([at, true])
        for (const { body } of replies) expect([at, body.id]).toEqual([at, created[0]])
        // If no reply has what was created, the repeat names it.
        if (replies.length === 0) expect([at, repeat.body.id]).toEqual([at, created[0]])
        expect((await send()).body).toMatchObject({ status: 409, id: created[0] })
        isOver = requests <= at
      }
    })
  })

  it('name nothing that may never be created, whoever takes the claim over', async () => {
    const claimOf = (requestId: string, run = gateway.admin.run) =>
      createClaim(
        'order-17',
        { ...gateway.admin, run },
        { tokenId: 'a', requestId, onCluster: API_ON_CLUSTER },
      )
    await claimOf('first').claim('acme/1')
    let isOvertaken = false
    const second = claimOf('second', async (...command) => {
      const reply = await gateway.admin.run<never>(...command)
      if (!isOvertaken) await claimOf('third').claim('acme/3')
      isOvertaken = true
      return reply
    })
    await expect(second.claim('acme/2')).rejects.toMatchObject({ kind: 'conflict' })
  })

  it('name what a repeat has created if that is the reason of a refusal, also where the claim was taken over', async () => {
    const claimOf = (requestId: string) =>
      createClaim('order-17', gateway.admin, { tokenId: 'a', requestId, onCluster: API_ON_CLUSTER })
    const first = claimOf('first')
    await first.claim('acme/1')
    const { key, done } = (await claimOf('second').claim('acme/2'))!
    // Nothing was created yet.
    await first.release()
    await gateway.admin.run('SET', key, done)
    await expect(first.release()).rejects.toMatchObject({
      problem: 'repeated',
      details: { extra: { id: 'acme/2' } },
    })
  })

  it('on a cluster belong to one of two imports of the same key, which have the same id', async () => {
    const store = { ...gateway.admin, decisions: { ...gateway.admin.decisions, isCluster: true } }
    const claimOf = (requestId: string) =>
      createClaim('order-17', store, { tokenId: 'a', requestId, onCluster: API_ON_CLUSTER })
    await claimOf('first').claim('acme/1')
    const second = claimOf('second')
    await expect(second.claim('acme/1')).rejects.toMatchObject({ details: { extra: { id: 'acme/1' } } })
    await second.release()
    await expect(claimOf('third').claim('acme/1')).rejects.toMatchObject({ problem: 'repeated' })
  })

  it('on a cluster say how to find out what became of the first', async () => {
    const { admin } = gateway
    const store = withActor(
      { ...admin, decisions: { ...admin.decisions, isCluster: true } },
      { actor: { kind: 'operator', name: 'a' } },
    )
    const claimOf = () =>
      createClaim('order-17', store, { tokenId: 'a', requestId: 'r', onCluster: API_ON_CLUSTER })
    const first = claimOf()
    expect(await first.claim('acme/1')).toBeUndefined()
    expect(first.isSafe()).toBe(false)
    await expect(claimOf().claim('acme/2')).rejects.toThrow(
      'for acme/1. If a GET does not find it a minute later',
    )
    await first.release()
    expect(await claimOf().claim('acme/2')).toBeUndefined()
  })
})
