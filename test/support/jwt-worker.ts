/** A Worker that only verifies the token in the request body, for tests that need workerd. */
import type { JwtIssuer, JwtVerifier } from '../../src/config/jwt-method.ts'
import { createJwtVerifier } from '../../src/credentials/jwt-verifier.ts'

let verifier: JwtVerifier | undefined

export default {
  async fetch(request: Request, env: { ISSUER: string }): Promise<Response> {
    verifier ??= createJwtVerifier(JSON.parse(env.ISSUER) as JwtIssuer, {})
    return Response.json(await verifier.verify(await request.text()))
  },
}
