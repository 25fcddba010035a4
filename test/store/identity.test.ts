/** Two callers share a key of the store only if they are the same identity to the rule, whatever their values are. */

import { describe, expect, it } from 'vitest'
import type { CallerMode } from '../../src/config/caller-mode.ts'
import type { By } from '../../src/config/check/rule-schema.ts'
import { identityOf as nameOf, separatesModes } from '../../src/config/identity-parts.ts'
import { jwtConsumer } from '../../src/credentials/jwt-verifier.ts'
import type { Caller } from '../../src/set-ups/http/caller.ts'
import { createKeyReader } from '../../src/set-ups/http/identity-keys.ts'
import {
  chunksKey,
  consumerKey,
  credentialIndexKey,
  credentialKey,
  identityStateKey,
  inEnvironment,
  limitStateKey,
  pointerKey,
  sideKey,
} from '../../src/store/keys.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'
import { STATE_KEY } from '../support/store-keys.ts'

const SHA = 'ab'.repeat(32)

/** Few and similar values, so that values that could be confused often meet. */
const VALUES = [
  ...[
    '',
    'a',
    'A',
    'b',
    'a,b=c',
    'a%2Cb%3Dc',
    'a%252C',
    '=',
    ',',
    'header.a=a',
    'a,header.b=a',
    'claim.auth0.a',
  ],
  ...[
    `#${SHA}`,
    '#',
    '%23',
    '%',
    '{',
    '}',
    '{c:acme}',
    '}:state',
    ':',
    '*',
    '?',
    '~',
    '%7E',
    '%2A',
    '%2a',
    ' ',
    '+',
  ],
  ...[
    '\0',
    '\n',
    '\r\n',
    '\u2028',
    'ä',
    'a\u0308',
    'Ä',
    '%C3%A4',
    '🚦',
    '\ud83d',
    '\udea6',
    '\ud83d\ud83d',
    '\ufffd',
  ],
  ...['undefined', 'null', 'true', '1', '01', '1.0', '-0', 'x'.repeat(99), 'x'.repeat(100), 'x'.repeat(101)],
  ...['ä'.repeat(16), 'ä'.repeat(17), 'ä'.repeat(18), '\ud800'.repeat(200), 'x'.repeat(10_000)],
]

function randomText(random: Random): string {
  if (random.chance(0.7)) return random.pick(VALUES)
  if (random.chance(0.5)) return random.pick(VALUES) + random.pick(VALUES)
  return String.fromCharCode(...Array.from({ length: random.int(1, 3) }, () => random.int(0, 0xffff)))
}

/** Everything about a request that a rule can count by. */
interface Facts {
  consumer?: string
  digest: string
  claims?: Record<string, unknown>
  mode: CallerMode
  method: string
  address: string
  route?: string
  verb: string
  host: string
  headers: Record<string, string>
  cf: Record<string, unknown>
}

async function randomFacts(random: Random): Promise<Facts> {
  const issuer = random.pick(['auth0', 'a'])
  const isToken = random.chance(0.6)
  const kind = random.int(0, 3)
  return {
    ...(kind > 0 && {
      consumer: isToken
        ? await jwtConsumer(issuer, randomText(random))
        : random.pick(['acme', 'a', 'A', 'a.b', '?', 'auth0', 'state']),
    }),
    ...(kind > 0 && isToken && { claims: { a: randomClaim(random), 'b,c=d': randomClaim(random) } }),
    mode: random.pick(['live', 'test']),
    digest: random.pick([SHA, 'cd'.repeat(32)]),
    method: isToken ? issuer : 'api-key',
    address: random.pick(['192.0.2.1', '192.0.2.2', '2001:db8::/64', 'unknown']),
    ...(random.chance(0.7) && { route: random.pick(['a', 'b', 'route', 'state']) }),
    verb: random.pick(['GET', 'POST', 'a', "M'()!*~"]),
    host: random.pick(['a', 'b.test', '[::1]', 'x'.repeat(200)]),
    headers: Object.fromEntries(
      ['a', 'b'].flatMap(name => (random.chance(0.7) ? [[name, randomText(random)]] : [])),
    ),
    cf: { country: random.pick(['DE', 'FR', 'T1', undefined]), asn: random.pick([1, 12, undefined]) },
  }
}

const randomClaim = (random: Random) =>
  random.pick([randomText(random), randomText(random), 1, true, undefined])

const PARTS: By[] = [
  ...(['consumer', 'credential', 'address', 'route', 'method', 'host', 'country', 'asn', 'mode'] as const),
  ...(['header:a', 'header:b', 'claim:a', 'claim:b,c=d'] as const),
]

function randomBy(random: Random): By[] {
  if (random.chance(0.05)) return ['global']
  const parts = Array.from({ length: random.int(1, 4) }, () => random.pick(PARTS))
  return [...new Set(parts)]
}

async function keyOf(facts: Facts, by: By[], acrossModes?: true): Promise<string | undefined> {
  const { consumer, digest, claims, mode, method, address, route, verb, host, headers, cf } = facts
  const caller = {
    addressIdentity: address,
    ...(consumer !== undefined && {
      credential: {
        consumer,
        digest,
        mode,
        method,
        ...(claims && { claims }),
        header: '',
        isVerified: false,
      },
    }),
  } as Caller
  // Like a Request, but it also accepts values that a Request would reject.
  const request = {
    method: verb,
    url: `http://${host}/`,
    cf,
    headers: { get: (name: string) => headers[name] ?? null },
  }
  return createKeyReader(
    request as unknown as Request,
    caller,
    route,
  )({
    ...{ by, identity: nameOf(by, acrossModes) },
    ...(acrossModes && { acrossModes }),
  })
}

/** An unambiguous text for the identity that a rule counts. */
function identityOf(
  { consumer, digest, claims, mode, method, ...facts }: Facts,
  by: By[],
  acrossModes: boolean,
): string {
  const entries = by.flatMap((part): [string, unknown][] => {
    const [kind, name = ''] = part.split(/:(.*)/s)
    switch (kind) {
      case 'global':
        return []
      case 'consumer':
        return [['consumer', consumer]]
      case 'credential':
        return [
          ['consumer', consumer],
          ['credential', digest],
        ]
      case 'claim':
        return [[part, [method, claims?.[name] === undefined ? null : String(claims[name])]]]
      case 'header':
        return [[part, facts.headers[name] ?? null]]
      case 'country':
      case 'asn':
        return [[part, facts.cf[kind] ?? null]]
      case 'mode':
        return [[part, consumer === undefined ? 'live' : mode]]
      case 'method':
        return [[part, facts.verb]]
      default:
        return [[part, facts[kind as 'address' | 'route' | 'host'] ?? null]]
    }
  })
  if (acrossModes) entries.push(['both modes', true])
  else if (mode === 'test' && separatesModes(by)) entries.push(['test', true])
  return JSON.stringify(Object.entries(Object.fromEntries(entries)).sort(([a], [b]) => (a < b ? -1 : 1)))
}

it(`the keys of two requests are equal only if their identities are (SEED=${SEED})`, async () => {
  const random = randomFrom(SEED)
  const identityByKey = new Map<string, string>()
  let collisions = 0
  for (let i = 0; i < 3000; i++) {
    const facts = await randomFacts(random)
    const by = randomBy(random)
    const acrossModes = separatesModes(by) && random.chance(0.2) ? true : undefined
    const key = await keyOf(facts, by, acrossModes)
    const identity = identityOf(facts, by, acrossModes === true)
    if (key === undefined) {
      expect(by.some(part => /^(consumer|credential|claim)/.test(part))).toBe(true)
      continue
    }
    expect(key).toMatch(STATE_KEY)
    expect(key.length).toBeLessThan(1000)
    const before = identityByKey.get(key)
    if (before !== undefined) collisions += 1
    expect(identity, `${key} is also ${before} (request ${i}, SEED=${SEED})`).toBe(before ?? identity)
    identityByKey.set(key, identity)
    expect(await keyOf(structuredClone(facts), [...by], acrossModes)).toBe(key)
  }
  // The requests were similar enough to meet often, and different enough to need different keys.
  expect(collisions).toBeGreaterThan(200)
  expect(identityByKey.size).toBeGreaterThan(500)
})

describe('a value', () => {
  it.each(['header.a', 'claim.auth0.a', 'account'])(
    'in %s has its side key, and differs from a missing value',
    async part => {
      const texts = [...new Set(VALUES)]
      const keys = [...texts, undefined].map(value => identityStateKey(undefined, [[part, value]]))
      expect(new Set(keys).size).toBe(texts.length + 1)
      const byName = texts.map(value => limitStateKey('l', [[part, value]]))
      for (const key of [...keys, ...byName]) expect(key).toMatch(STATE_KEY)
      expect(new Set([...keys, ...byName]).size).toBe(2 * texts.length + 1)
    },
  )

  it('as the consumer of a token differs from the consumers of other issuers and of API keys', async () => {
    const texts = [...new Set(VALUES)]
    const consumers = texts.flatMap(text => ['a', 'auth0', 'a-b'].map(issuer => jwtConsumer(issuer, text)))
    expect(new Set(consumers).size).toBe(3 * texts.length)
    for (const consumer of consumers) {
      // The consumer is written into keys and into headers for the origin.
      expect(consumer).toMatch(/^[a-z0-9_-]+~[\w.%#!'()-]*$/)
      expect(consumer.length).toBeLessThan(170)
    }
  })

  it('is another identity if it is moved to the next part', async () => {
    const pairs = [
      ['a', 'b'],
      ['a,header.b=b', ''],
      ['', 'a,header.b=b'],
      ['a,header.b', 'b'],
      ['a%2Cheader.b%3Db', ''],
    ] as const
    const keys = pairs.map(([a, b]) =>
      identityStateKey(undefined, [
        ['header.a', a],
        ['header.b', b],
      ]),
    )
    expect(new Set(keys).size).toBe(pairs.length)
  })
})

it('all keys of the store are different, within an environment and between environments', async () => {
  const random = randomFrom(SEED)
  const keys = new Set<string>()
  const names = ['a', 'c', 'key', 'keys', 'state', 'consumer', 'live', 'test', 'log', 'l']
  const add = (key: string) => {
    for (const environment of [undefined, 'a', 'c', 'live', 'test', 'state']) {
      const own = inEnvironment(key, environment)
      expect(keys, own).not.toContain(own)
      keys.add(own)
    }
  }
  for (const name of names) {
    for (const key of [consumerKey(name), credentialIndexKey(name), pointerKey(name)]) add(key)
    for (const other of names) add(credentialKey(name, other))
    for (const owner of [{ consumer: name }, { address: name }]) {
      for (const parts of [[], [[name, undefined]], [['route', name]]] as const) {
        const key = identityStateKey(owner, parts)
        add(key)
        add(identityStateKey(owner, parts, 'test'))
        for (const tag of ['abc', 'log', random.pick(['x0y', 'key'])])
          for (const kind of ['log', 'held'] as const)
            if (!keys.has(sideKey(key, kind, tag))) {
              add(sideKey(key, kind, tag))
              add(chunksKey(sideKey(key, kind, tag)))
            }
      }
    }
    for (const identity of [[], [['account', name]]] as const) add(limitStateKey(name, identity))
  }
  for (const parts of [[], [['route', 'a']], [['route', undefined]]] as const)
    add(identityStateKey(undefined, parts))
})
