/**
 * Measures the CPU time of verifying a token in workerd, with the issuer's keys already loaded. The clock inside a Worker stands still
 * while it computes, so the time is measured from outside: how much longer a request takes if it verifies the token many times.
 */
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import type { JwtInput } from '../../src/config/check/jwt-schema.ts'
import { compileJwt } from '../../src/config/compile-jwt.ts'
import { startBenchWorker } from '../child.ts'
import { counted, measured } from '../figures.ts'
import type { Subject } from '../jwt-worker.ts'
import { inRounds, measureTimes, median } from '../measure.ts'
import type { Findings } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

const ALGORITHMS = ['RS256', 'ES256', 'EdDSA', 'HS256'] as const
const ROUNDS = 2
const REQUESTS = 20
const MANY = 101

export async function jwt(bed: TestBed): Promise<Findings> {
  const subjects = await Promise.all(ALGORITHMS.map(async name => [name, await subject(name)] as const))
  const bindings = { SUBJECTS: JSON.stringify(Object.fromEntries(subjects)) }
  const worker = await startBenchWorker({ entry: 'jwt-worker.ts', bindings }, bed)
  try {
    const verify = (algorithm: string, count: number) => async () => {
      const response = await fetch(`${worker.ready.url}/?algorithm=${algorithm}&count=${count}`)
      if (!response.ok) throw new Error(`${algorithm}: the token was ${await response.text()}`)
      await response.text()
    }
    const measure = (algorithm: string) => async () => {
      const once = median(await measureTimes(REQUESTS, verify(algorithm, 1)))
      const many = median(await measureTimes(REQUESTS, verify(algorithm, MANY)))
      return ((many - once) / (MANY - 1)) * 1e3
    }
    const tasks = Object.fromEntries(ALGORITHMS.map(name => [name, measure(name)]))
    await inRounds(1, tasks)
    const perVerification = await inRounds(ROUNDS, tasks)
    const tokens = Object.fromEntries(subjects.map(([name, { token }]) => [name, token.length]))
    return {
      tables: [
        {
          title: 'Tokens: CPU time of one verification in workerd',
          head: ['algorithm', 'µs', 'characters of the token'],
          rows: ALGORITHMS.map(name => [name, measured(perVerification[name]!), counted(tokens[name]!)]),
        },
      ],
      rounds: [{ title: 'One verification in workerd, µs', columns: perVerification }],
      notes: [
        `Tokens: a request that verifies the token ${MANY} times is compared with a request that verifies it once (medians of ${REQUESTS} ` +
          `requests each). The difference, divided by ${MANY - 1}, is CPU time, because a verification waits for nothing. It includes decoding, ` +
          'the signature, the claims and the consumer, for a token with six claims. The keys of the issuer are loaded before. RSA keys have ' +
          '2048 bits.',
      ],
    }
  } finally {
    await worker.close()
  }
}

async function subject(algorithm: (typeof ALGORITHMS)[number]): Promise<Subject> {
  const common = { issuer: 'https://issuer.example.com/', audience: 'api' }
  const secret = 'a secret of the benchmark, 32 bytes and more'
  const { keys, input, signingKey } = await issuerFor(algorithm, secret)
  const now = Math.floor(Date.now() / 1e3)
  const token = await new SignJWT({ scope: 'read write' })
    .setProtectedHeader({ alg: algorithm, kid: 'bench', typ: 'JWT' })
    .setIssuer(common.issuer)
    .setAudience(common.audience)
    .setSubject('auth0|5f7c8ec7c33c6c004bbafe82')
    .setIssuedAt(now)
    .setExpirationTime(now + 86400)
    .sign(signingKey)
  const issuer = compileJwt('bench', { ...common, ...input } as JwtInput)
  return { issuer, token, secret, ...(keys && { jwks: { keys } }) }
}

async function issuerFor(algorithm: (typeof ALGORITHMS)[number], secret: string) {
  if (algorithm === 'HS256') {
    const signingKey = new TextEncoder().encode(secret)
    return { input: { secret: 'JWT_SECRET', algorithms: [algorithm] }, signingKey }
  }
  const { publicKey, privateKey: signingKey } = await generateKeyPair(algorithm)
  const keys = [{ ...(await exportJWK(publicKey)), kid: 'bench', alg: algorithm, use: 'sig' }]
  return {
    keys,
    input: { jwks: 'https://issuer.example.com/jwks.json', algorithms: [algorithm] },
    signingKey,
  }
}
