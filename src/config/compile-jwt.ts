/** One entry of `credentials.jwt`, from what the user wrote to what its tokens are verified with. Pure. */
import type { AccessInput, JwksInput, JwtInput, SecretInput } from './check/jwt-schema.ts'
import { milliseconds } from './duration.ts'
import type { JwtIssuer } from './jwt-method.ts'

export function compileJwt(name: string, input: JwtInput): JwtIssuer {
  const { audience, clockTolerance = '5s', claims = {}, plans = {}, sharesConsumers = false } = input
  const { header, consumerClaims, ...rest } = 'access' in input ? accessOf(input) : keysOf(input)
  return {
    name,
    ...rest,
    audience: listOf(audience),
    clockToleranceSeconds: milliseconds(clockTolerance) / 1e3,
    ...(header !== undefined && { header: header.toLowerCase() }),
    consumerClaims: listOf(claims.consumer ?? consumerClaims),
    ...(claims.plan !== undefined && { planClaim: claims.plan }),
    plans,
    sharesConsumers,
  }
}

function keysOf(input: JwksInput | SecretInput) {
  const { issuer, algorithms, header } = input
  const keys = 'jwks' in input ? { jwks: input.jwks } : { secret: input.secret }
  return { keys, issuer, algorithms, header, consumerClaims: 'sub' }
}

/** https://developers.cloudflare.com/cloudflare-one/access-controls/applications/http-apps/authorization-cookie/ */
function accessOf({ access, header = 'Cf-Access-Jwt-Assertion' }: AccessInput) {
  const issuer = new URL(access).origin
  return {
    keys: { jwks: `${issuer}/cdn-cgi/access/certs` },
    issuer,
    algorithms: ['RS256'],
    header,
    // The sub of a service token is empty.
    consumerClaims: ['sub', 'common_name'],
  }
}

function listOf(values: string | string[]): string[] {
  return typeof values === 'string' ? [values] : values
}
