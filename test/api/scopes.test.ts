/** Every route needs one of its scopes: generated from the routes and the table of scopes. */
import { beforeAll, describe, expect, it } from 'vitest'
import { SCOPES } from '../../src/scope-table.ts'
import { listOfScopes } from '../../src/set-ups/api/openapi.ts'
import { ROUTES } from '../../src/set-ups/api/routes.ts'
import { type ApiCall, apiOf, EVERY_ROUTE, tokenWith } from '../support/api.ts'
import { useGatewayOn } from '../support/gateway.ts'
import { startRedis } from '../support/redis.ts'

const ALL = [...Object.keys(SCOPES), 'limits:use:sms', 'limits:use:other']

/** What a route needs, with the name of the limit. */
const CASES = ROUTES.filter(({ kind }) => kind === 'limit' || kind === 'admin').map(route => {
  const path = route.path.replace('{name}', 'sms').replaceAll(/\{\w+\}/g, 'abcd')
  const scopes = listOfScopes(route).map(scope => scope.replace('{name}', 'sms'))
  return { what: `${route.method} ${path}`, scopes, body: route.body ? {} : undefined }
})

describe('the API', () => {
  // No request changes anything, so the tests share a store.
  const gateway = useGatewayOn(() => startRedis())
  const tokens = new Map<string, string>()
  let api: ApiCall

  beforeAll(async () => {
    api = apiOf(gateway, EVERY_ROUTE)
    for (const scope of ALL) tokens.set(scope, await tokenWith(gateway, [scope]))
    tokens.set('all others', '')
  })

  it.each(CASES)('$what needs one of $scopes', async ({ what, scopes, body }) => {
    expect((await api(what, { body })).status).toBe(401)
    for (const scope of ALL) {
      const { status } = await api(what, { token: tokens.get(scope)!, body })
      expect([scope, status === 403]).toEqual([scope, !scopes.includes(scope)])
    }
    const others = await tokenWith(
      gateway,
      ALL.filter(scope => !scopes.includes(scope)),
    )
    const refused = await api(what, { token: others, body })
    expect(refused).toMatchObject({ status: 403, body: { scope: scopes.join(' or ') } })
    expect(refused.headers.get('www-authenticate')).toContain('insufficient_scope')
  })

  it('is served without a token only where that is intended', () => {
    const open = ROUTES.filter(({ kind }) => kind === 'open' || kind === 'own').map(({ path }) => path)
    expect(open.sort()).toEqual(['openapi.json', 'usage'])
  })
})
