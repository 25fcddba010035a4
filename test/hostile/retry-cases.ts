/** How often the origin gets a request, if it closes connections instead of answering. */
import { describe, it, vi } from 'vitest'
import { PATIENT } from '../support/patience.ts'
import { openClient } from './client.ts'
import { expectNoFaults } from './faults.ts'
import type { HostileBed } from './gateways.ts'
import { echo } from './origin.ts'
import { askForOwn, faultsAtOrigin, newToken, requestOf } from './origin-cases.ts'
import { CLOSE, FIN, RESET, type Step } from './steps.ts'

const ANSWER_MS = 5000

const REQUESTS: Readonly<Record<string, readonly [method: string, headers: string, body: string]>> = {
  GET: ['GET', '', ''],
  HEAD: ['HEAD', '', ''],
  OPTIONS: ['OPTIONS', '', ''],
  'a preflight without a key': [
    'OPTIONS',
    'Origin: https://evil.test\r\nAccess-Control-Request-Method: GET\r\n',
    '',
  ],
  DELETE: ['DELETE', '', ''],
  PUT: ['PUT', 'Content-Length: 3\r\n', 'abc'],
  POST: ['POST', 'Content-Length: 3\r\n', 'abc'],
  'POST in chunks': ['POST', 'Transfer-Encoding: chunked\r\n', '3\r\nabc\r\n0\r\n\r\n'],
  'POST without a body': ['POST', 'Content-Length: 0\r\n', ''],
  'GET with a body': ['GET', 'Content-Length: 3\r\n', 'abc'],
}
/** RFC 9110, section 9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])

const ENDS = { closes: CLOSE, resets: RESET, 'closes its direction of': FIN } as const
const FEW_IDLE = [0, 1, 20]
const MANY_IDLE = 175

export function describeRetries(bedOf: () => HostileBed): void {
  describe('an origin gets a request twice at most, if', () => {
    const cases = Object.entries(ENDS).flatMap(([what, end]) =>
      FEW_IDLE.map(count => [what, count, end] as const),
    )
    it.each(cases)('it %s each connection that is used, with %i idle ones', async (_, count, end) => {
      await expectOnce(bedOf(), Object.keys(REQUESTS), count, end)
    })
    it(`it closes each connection that is used, with ${MANY_IDLE} idle ones`, async () => {
      await expectOnce(bedOf(), ['GET', 'a preflight without a key', 'POST'], MANY_IDLE, CLOSE)
    })
  })
}

async function expectOnce(bed: HostileBed, names: readonly string[], idle: number, end: Step): Promise<void> {
  const faults: string[] = []
  for (const name of names) faults.push(...(await sendUnanswered(bed, name, idle, end)))
  expectNoFaults(bed, `${idle} idle connections`, faults)
}

/**
 * Sends a request that the origin does not answer.
 * @param name one of the requests above
 * @returns what went wrong
 */
export async function sendUnanswered(
  bed: HostileBed,
  name: string,
  idle: number,
  end: Step,
): Promise<string[]> {
  const { origin, url, keys } = bed
  const [method, headers, body] = REQUESTS[name]!
  await fillPool(bed, idle)
  const token = newToken()
  origin.routes.set('broken', { steps: () => [end] })
  const client = openClient(url, [method])
  const key = name.includes('without a key') ? 'none' : keys.attacker
  const request = requestOf(`${method} /broken/${token}`, key, headers)
  await client.send([(key === 'none' ? request.replace(/X-API-Key: none\r\n/, '') : request) + body])
  const isAnswered = await client.until(1, ANSWER_MS)
  client.destroy()
  const faults = faultsAtOrigin(origin, token, method)
  const times = origin.seen.filter(request => request.token === token).length
  if (!IDEMPOTENT.has(method) && times > 1) faults.push('got it again, although it may have been handled')
  if (!isAnswered) faults.push(`no reply within ${ANSWER_MS} ms`)
  const other = await askForOwn(bed, keys.victim)
  // workerd repeats no request, also not one whose idle connection was closed.
  if (other && !(bed.gateway === 'workerd' && other.includes('502'))) faults.push(`another client: ${other}`)
  bed.mustBeWell()
  return faults.map(fault => `${name}: ${fault}`)
}

/** Leaves the gateway with so many idle connections to the origin. */
async function fillPool({ origin, url, keys }: HostileBed, count: number): Promise<void> {
  await origin.reset()
  const waiting = new Set<number>()
  const all = Promise.withResolvers<void>()
  origin.routes.set('hold', {
    steps: request => [echo(request)],
    until({ connection }) {
      waiting.add(connection)
      if (waiting.size === count) all.resolve()
      return all.promise
    },
  })
  const clients = Array.from({ length: count }, () => openClient(url))
  await Promise.all(clients.map(client => client.send([requestOf(`GET /hold/${newToken()}`, keys.victim)])))
  await Promise.all(clients.map(client => client.until(1, ANSWER_MS)))
  for (const client of clients) client.destroy()
  await vi.waitUntil(() => origin.connections() >= count, PATIENT)
}
