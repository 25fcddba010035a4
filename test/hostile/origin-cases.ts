/** What each kind of origin must not do to the callers of a gateway. */
import { randomBytes } from 'node:crypto'
import { describe, it } from 'vitest'
import { type Client, openClient } from './client.ts'
import { expectNoFaults } from './faults.ts'
import type { HostileBed } from './gateways.ts'
import { echo, type HostileOrigin } from './origin.ts'
import { ORIGIN_KINDS, type OriginKind } from './origin-kinds.ts'
import { pause, takeSteps } from './steps.ts'
import { statusOf, valuesOf } from './wire.ts'

/** Longer than the deadlines of hostile.config.ts, on a busy machine. */
const ANSWER_MS = 5000
/** Of kinds whose delays matter. */
const ROUNDS = 2
const ATTACK = 'attack'

export const newToken = () => randomBytes(8).toString('hex')

export const requestOf = (line: string, key: string, more = '') =>
  `${line} HTTP/1.1\r\nHost: a.test\r\nX-API-Key: ${key}\r\n${more}\r\n`

export function describeOriginKinds(
  bedOf: () => HostileBed,
  platformOf: (kind: OriginKind) => string | undefined,
) {
  const cases = ORIGIN_KINDS.map(kind => ({ kind, title: kind.name }))

  describe('an origin with', () => {
    it.each(cases.filter(({ kind }) => !kind.isSlow))('$title', async ({ kind }) => {
      expectNoFaults(bedOf(), kind.name, await attack(bedOf(), kind, platformOf(kind) !== undefined))
    })
  })

  describe('an origin that reaches a deadline, with', () => {
    it.concurrent.each(cases.filter(({ kind }) => kind.isSlow))('$title', async ({ kind }) => {
      expectNoFaults(bedOf(), kind.name, await attack(bedOf(), kind, platformOf(kind) !== undefined))
    })
  })
}

/**
 * Lets callers ask an origin after an attack on it.
 * @param isPlatform leaves out what other callers get
 * @returns what went wrong, each with the number of times
 */
export async function attack(bed: HostileBed, kind: OriginKind, isPlatform = false): Promise<string[]> {
  const wrong = new Map<string, number>()
  const delays = kind.delays ?? (kind.isSlow ? [0] : [0, 5])
  const rounds = kind.delays ? ROUNDS : 1
  for (const [index, delay] of delays.entries()) {
    for (let i = 0; i < rounds; i++) {
      for (const [who, what] of await attackOnce(bed, kind, delay, (index + i) % 2 === 1)) {
        if (isPlatform && who !== 'attacker') continue
        const text = `${who}, ${delay} ms later: ${what}`
        wrong.set(text, (wrong.get(text) ?? 0) + 1)
      }
    }
  }
  bed.mustBeWell()
  return [...wrong].map(([text, count]) => `${text} (${count} of ${rounds})`)
}

type Fault = readonly [who: 'attacker' | 'victim' | 'attacker again' | 'origin', what: string]

/** @param isWarm whether the gateway has an idle connection to the origin, and no other one */
async function attackOnce(
  bed: HostileBed,
  kind: OriginKind,
  delay: number,
  isWarm: boolean,
): Promise<Fault[]> {
  const { origin, keys } = bed
  const faults: Fault[] = []
  const route = `${ATTACK}-${newToken()}`
  if (!kind.isSlow) await settle(bed, isWarm)
  origin.greeting = kind.greeting
  origin.routes.set(route, {
    steps(request) {
      if (kind.next)
        origin.closesOnNext.set(request.connection, socket => void takeSteps(socket, [kind.next!]))
      return kind.steps(request)
    },
    ...(kind.isEarly && { isEarly: true }),
  })
  const { method = 'GET', body } = kind
  const token = newToken()
  const client = openClient(bed.url, [method])
  const length = body?.reduce<number>((sum, step) => sum + (typeof step === 'string' ? step.length : 0), 0)
  const head = requestOf(
    `${method} /${kind.isHeld ? 'held/' : ''}${route}/${token}`,
    keys.attacker,
    (body ? `Content-Length: ${length}\r\n` : '') + (kind.headers ?? ''),
  )
  const sent = client.send([head, ...(body ?? [])])
  if (!(await client.until(1, ANSWER_MS))) faults.push(['attacker', `no reply within ${ANSWER_MS} ms`])
  await pause(delay)
  const before = client.replies.length
  // If the victim got the surplus, the attacker gets the reply to the victim.
  for (const who of ['victim', 'attacker again'] as const) {
    const fault = await askForOwn(bed, who === 'victim' ? keys.victim : keys.attacker)
    if (fault) faults.push([who, fault])
  }
  const fault = faultOf(client, kind, before)
  if (fault) faults.push(['attacker', fault])
  client.destroy()
  await sent
  origin.routes.delete(route)
  faults.push(...faultsAtOrigin(origin, token, method).map(what => ['origin', what] as const))
  return faults
}

/** Leaves the gateway with one idle connection to the origin, or without one. */
export async function settle(bed: HostileBed, isWarm: boolean): Promise<void> {
  await bed.origin.reset()
  bed.origin.routes.set('settle', {
    steps: request => [echo(request, isWarm ? '' : 'Connection: close\r\n')],
  })
  // The gateway may have used a connection in the moment in which it was closed.
  for (let i = 0; i < 3; i++) if (!(await askForOwn(bed, bed.keys.victim, 'settle'))) return
}

/** Asks for a path, and expects the reply to this request. @returns what went wrong */
export async function askForOwn(bed: HostileBed, key: string, route = 'own'): Promise<string | undefined> {
  const token = newToken()
  const client = openClient(bed.url)
  await client.send([requestOf(`GET /${route}/${token}`, key)])
  const isAnswered = await client.until(1, ANSWER_MS)
  client.destroy()
  if (!isAnswered) return `no reply within ${ANSWER_MS} ms`
  const [reply] = client.replies
  if (client.malformed) return `a malformed reply: ${client.malformed}`
  if (!reply) return 'the connection was closed without a reply'
  if (reply.body === `echo ${token}` && valuesOf(reply, 'x-echo').join() === token && statusOf(reply) === 200)
    return undefined
  const isOther = /surplus|echo|greeting|idle/.test(client.text)
  return isOther
    ? 'got the reply to ANOTHER request'
    : `got ${reply.start}${reply.isWhole ? '' : ', cut off'}`
}

function faultOf(
  { replies, malformed, text, isClosed }: Client,
  kind: OriginKind,
  before: number,
): string | undefined {
  const [reply] = replies
  if (malformed !== undefined) return `got a malformed reply: ${malformed}`
  if (replies.length > 1) return `got ${replies.length} replies to one request`
  if (before !== replies.length) return 'got a reply that came later'
  const outcome = reply?.isWhole ? statusOf(reply) : 'cut'
  if (outcome === 'cut' && !isClosed) return `got no whole reply: ${JSON.stringify(text.slice(0, 300))}`
  if (!kind.outcomes.includes(outcome) && !(outcome === 'cut' && !reply && kind.outcomes.includes('cut')))
    return `got ${outcome}, not ${kind.outcomes.join(' or ')}`
  if (reply?.isWhole && statusOf(reply) < 400) {
    if (kind.has && !kind.has.test(text)) return `got a reply without ${kind.has}: ${JSON.stringify(text)}`
    if (kind.hasNot?.test(text)) return `got a reply with ${kind.hasNot}`
    if (/surplus/.test(text)) return 'got bytes behind the reply'
  }
  return undefined
}

/** A request is sent twice at most, the second time on a new connection, and once if it must not be repeated (RFC 9110, section 9.2.2). */
export function faultsAtOrigin(origin: HostileOrigin, token: string, method: string): string[] {
  const all = origin.seen.filter(request => request.token === token)
  const most = method === 'POST' || method === 'PATCH' ? 1 : 2
  const faults = origin.malformed.splice(0).map(what => `the gateway has sent ${what}`)
  if (all.length > most) faults.push(`got the request ${all.length} times`)
  if (all.slice(1).some(({ nth }) => nth > 1))
    faults.push('got the request again on a connection that was used before')
  return faults
}
