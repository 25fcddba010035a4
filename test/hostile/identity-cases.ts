/** No client chooses the identity or the address that the origin sees, and no credential for the gateway reaches the origin. */
import { describe, it } from 'vitest'
import { openClient } from './client.ts'
import { expectNoFaults } from './faults.ts'
import type { HostileBed } from './gateways.ts'
import { IDENTITY_HEADERS, SPELLINGS } from './identity-headers.ts'
import { newToken } from './origin-cases.ts'
import { valuesOf } from './wire.ts'

const ANSWER_MS = 5000

export function describeIdentity(bedOf: () => HostileBed): void {
  describe("an origin does not get the client's own", () => {
    it.concurrent.each(IDENTITY_HEADERS)('%s', async name => {
      const { victim } = bedOf().keys
      const faults = await Promise.all(
        Object.entries(SPELLINGS).map(async ([spelling, line]) => {
          const fault = await faultOf(bedOf(), victim, line(name), `X-API-Key: ${victim}`, 'evil')
          return fault && `${spelling}: ${fault}`
        }),
      )
      expectNoFaults(
        bedOf(),
        name,
        faults.filter(fault => fault !== undefined),
      )
    })
  })

  describe('an origin does not get the credential in', () => {
    it.each([
      ['X-API-Key', (key: string) => `X-API-Key: ${key}`],
      ['x-api-key', (key: string) => `x-api-key: ${key}`],
      ['Authorization', (key: string) => `Authorization: Bearer ${key}`],
      ['both headers', (key: string) => `X-API-Key: ${key}\r\nAuthorization: Bearer ${key}`],
      ['X_API_Key as well', (key: string) => `X-API-Key: ${key}\r\nX_API_Key: ${key}`],
      ['X-API-Key, named by Connection', (key: string) => `Connection: X-Api-Key\r\nX-API-Key: ${key}`],
      [
        'Authorization as well, named by Connection',
        (key: string) => `X-API-Key: ${key}\r\nConnection: Authorization\r\nAuthorization: Bearer ${key}`,
      ],
      [
        'Proxy-Authorization as well',
        (key: string) => `X-API-Key: ${key}\r\nProxy-Authorization: Bearer ${key}`,
      ],
    ])('%s', async (name, lines) => {
      const { victim } = bedOf().keys
      const fault = await faultOf(bedOf(), victim, lines(victim), '', victim)
      expectNoFaults(bedOf(), name, fault === undefined ? [] : [fault])
    })
  })
}

/**
 * @param lines of the client
 * @param secret what the origin must not get
 */
async function faultOf(
  bed: HostileBed,
  key: string,
  lines: string,
  credential: string,
  secret: string,
): Promise<string | undefined> {
  const token = newToken()
  const client = openClient(bed.url)
  const head = ['GET /own/' + token + ' HTTP/1.1', 'Host: a.test', ...(credential ? [credential] : []), lines]
  await client.send([`${head.join('\r\n')}\r\n\r\n`])
  const isAnswered = await client.until(1, ANSWER_MS)
  client.destroy()
  if (!isAnswered) return `no reply within ${ANSWER_MS} ms`
  for (const request of bed.origin.seen.filter(request => request.token === token)) {
    const evil = request.headers.filter(([, value]) => value.includes(secret))
    if (evil.length > 0)
      return `the origin got ${evil.map(([name, value]) => `${name}: ${value.replaceAll(key, '(key)')}`).join(', ')}`
    const consumer = valuesOf(request, 'x-consumer-id').join()
    if (consumer !== 'alice') return `the origin got the consumer ${JSON.stringify(consumer)}`
  }
  return undefined
}
