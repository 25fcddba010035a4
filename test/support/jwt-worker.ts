/** A Worker that verifies the token it is sent, and nothing else: for what only workerd can show. */
import { createJwtVerifier, type JwtIssuer, type JwtVerifier } from '../../src/credentials/jwt.ts'

let verifier: JwtVerifier | undefined

export default {
  async fetch(request: Request, env: { ISSUER: string }): Promise<Response> {
    verifier ??= createJwtVerifier(JSON.parse(env.ISSUER) as JwtIssuer, {})
    return Response.json(await verifier.verify(await request.text()))
  },
}
