/** Compiles one entry of `credentials.jwt`: how tokens of an issuer are verified. Pure. */
import type { AccessInput, JwksInput, JwtInput, SecretInput } from './check/jwt-schema.ts'
import { milliseconds } from './duration.ts'
import type { JwtIssuer } from './jwt-method.ts'

export function compileJwt(name: string, input: JwtInput): JwtIssuer {
  const {
    audience,
    clockTolerance = '5s',
    claims = {},
    plans = {},
    modes = {},
    sharesConsumers = false,
  } = input
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
    ...(claims.mode !== undefined && { modeClaim: claims.mode }),
    modes,
    sharesConsumers,
  }
}

function keysOf(input: JwksInput | SecretInput) {
  const { issuer, algorithms, header } = input
  const keys = 'jwks' in input ? { jwks: input.jwks } : { secret: input.secret }
  return { keys, issuer, algorithms, header, consumerClaims: 'sub' }
}

/** The keys, issuer and header of Cloudflare Access: https://developers.cloudflare.com/cloudflare-one/access-controls/applications/http-apps/authorization-cookie/ */
function accessOf({ access, header = 'Cf-Access-Jwt-Assertion' }: AccessInput) {
  const issuer = new URL(access).origin
  return {
    keys: { jwks: `${issuer}/cdn-cgi/access/certs` },
    issuer,
    algorithms: ['RS256'],
    header,
    // Service tokens have an empty sub.
    consumerClaims: ['sub', 'common_name'],
  }
}

function listOf(values: string | string[]): string[] {
  return typeof values === 'string' ? [values] : values
}
