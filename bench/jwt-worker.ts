/** A Worker that does nothing but verify a token, as often as a request asks for. */
import type { JwtIssuer, JwtVerifier } from '../src/config/jwt-method.ts'
import { createJwtVerifier } from '../src/credentials/jwt-verifier.ts'

interface Environment {
  /** Algorithms with what verifies their tokens, as JSON. */
  SUBJECTS: string
}

export interface Subject {
  issuer: JwtIssuer
  secret?: string
  /** What the issuer publishes: handed over, as it is not the network that is measured. */
  jwks?: { keys: object[] }
  token: string
}

let verifiers: Record<string, { verify: JwtVerifier['verify']; token: string }> | undefined

export default {
  async fetch(request: Request, env: Environment): Promise<Response> {
    verifiers ??= verifiersOf(JSON.parse(env.SUBJECTS))
    const { searchParams } = new URL(request.url)
    const { verify, token } = verifiers[searchParams.get('algorithm')!]!
    const count = Number(searchParams.get('count'))
    for (let i = 0; i < count; i++) {
      const { kind } = await verify(token)
      if (kind !== 'verified') return new Response(kind, { status: 500 })
    }
    return new Response('verified')
  },
}

function verifiersOf(subjects: Record<string, Subject>): NonNullable<typeof verifiers> {
  return Object.fromEntries(
    Object.entries(subjects).map(([algorithm, { issuer, secret, jwks, token }]) => {
      const fetch = async () => Response.json(jwks)
      return [algorithm, { token, verify: createJwtVerifier(issuer, { secret, fetch }).verify }]
    }),
  )
}
