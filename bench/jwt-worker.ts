/** A Worker that verifies a token, as many times as the query says. */
import type { JwtIssuer, JwtVerifier } from '../src/config/jwt-method.ts'
import { createJwtVerifier } from '../src/credentials/jwt-verifier.ts'

interface Environment {
  /** JSON: a subject for each algorithm. */
  SUBJECTS: string
}

/** A token, and everything needed to verify it. */
export interface Subject {
  issuer: JwtIssuer
  secret?: string
  /** The key set of the issuer. It is passed in, because the network is not measured. */
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
