/** Which headers of a client reach the origin. */
import { describe, expect, it } from 'vitest'
import type { CredentialsInput } from '../../src/config/check/schema.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { proxy } from '../../src/set-ups/gateway/proxy.ts'
import type { ForwardContext } from '../../src/set-ups/http/forward.ts'
import { configOf } from '../support/engines.ts'

const CREDENTIAL = { method: 'api-key', consumer: 'acme', digest: '', isVerified: true } as const
const CALLER = {
  addressIdentity: '192.0.2.1',
  address: '192.0.2.1',
  credential: { ...CREDENTIAL, header: 'x-api-key', mode: 'live', subject: undefined as never },
} as const

/** What the gateway sets. */
const OWN = {
  'x-consumer-id': 'acme',
  'x-consumer-mode': 'live',
  'x-forwarded-for': '192.0.2.1',
  'x-forwarded-host': 'gateway.test',
  'x-forwarded-proto': 'https',
  'x-request-id': 'the-id',
}

/** The headers that the origin gets. @param lines of the client, of which several can have the same name */
async function headersAtOrigin(
  lines: Readonly<Record<string, string>> | readonly [string, string][],
  credentials: CredentialsInput = {},
  context: Partial<ForwardContext> = { caller: CALLER },
): Promise<Record<string, string>> {
  const headers = new Headers()
  for (const [name, value] of Array.isArray(lines) ? lines : Object.entries(lines))
    headers.append(name, value)
  // A Request would drop names that only browsers may set.
  const request = {
    url: 'https://gateway.test/a',
    method: 'GET',
    headers,
    signal: new AbortController().signal,
  }
  let sent = new Headers()
  const { response } = await proxy(
    request as unknown as Request,
    configOf({ rules: [], origin: 'http://origin.test', credentials }),
    { requestId: 'the-id', ...context },
    () => true,
    async (_, __, settings) => {
      sent = settings.headers as Headers
      return new Response()
    },
  )
  expect(response.status).toBe(200)
  return Object.fromEntries(sent)
}

describe('a header that names the client, or what it asked for, is set by the gateway only', () => {
  it.each([
    // What the gateway sets itself.
    ...['X-Consumer-Id', 'X-Consumer-Custom-Id', 'Sluice-Degraded', 'X-Request-Id', 'X-Forwarded-For'],
    // Addresses: lists of request-ip, ipware, Rails, and of CDNs and platforms.
    ...[
      'Forwarded',
      'Forwarded-For',
      'X-Forwarded',
      'X-Forward-For',
      'X-Real-IP',
      'Client-IP',
      'X-Client-IP',
    ],
    ...['X-Cluster-Client-IP', 'True-Client-IP', 'Fastly-Client-IP', 'Fly-Client-IP', 'CF-Connecting-IP'],
    ...['CF-Connecting-IPv6', 'CF-Pseudo-IPv4', 'DO-Connecting-IP', 'Proxy-Client-IP', 'WL-Proxy-Client-IP'],
    ...[
      'X-Azure-ClientIP',
      'X-Azure-SocketIP',
      'X-AppEngine-User-IP',
      'X-AppEngine-Remote-Addr',
      'Remote-Addr',
    ],
    ...['X-NF-Client-Connection-IP', 'X-Vercel-Forwarded-For', 'CloudFront-Viewer-Address', 'Cdn-Src-Ip'],
    ...[
      'X-Coming-From',
      'Coming-From',
      'X-ProxyUser-Ip',
      'X-Envoy-External-Address',
      'Incap-Client-IP',
      'X-Original-Forwarded-For',
    ],
    // URLs and hosts: Spring, Symfony, IIS, nginx, Envoy, Tornado, Jetty, Gunicorn, Traefik, Next.js.
    ...[
      'X-Host',
      'X-Forwarded-Host',
      'X-HTTP-Host-Override',
      'X-Original-Host',
      'X-Original-URL',
      'X-Rewrite-URL',
    ],
    ...[
      'X-Forwarded-Prefix',
      'X-Envoy-Original-Path',
      'X-Scheme',
      'X-Url-Scheme',
      'X-Forwarded-Ssl',
      'Base-Url',
    ],
    ...[
      'Front-End-Https',
      'X-Proxied-Https',
      'Script_Name',
      'Path_Info',
      'X-Replaced-Path',
      'X-Matched-Path',
    ],
    ...[
      'X-Middleware-Subrequest',
      'X-Invoke-Path',
      'X-Now-Route-Matches',
      'CloudFront-Forwarded-Proto',
      'Disguised-Host',
    ],
    // Users: Grafana, oauth2-proxy, Authelia, authentik, Kubernetes, Kong, WebSphere, SiteMinder, App Service, IAP, mod_auth_openidc,
    // Tailscale Serve.
    ...['OIDC_CLAIM_sub', 'Tailscale-User-Login'],
    ...['X-Webauth-User', 'X-Auth-Request-Email', 'X-Forwarded-User', 'Remote-User', 'Remote-Groups'],
    ...[
      'X-Remote-User',
      'X-Remote-Extra-Scopes',
      'X-Authenticated-Userid',
      'X-Authentik-Username',
      'X-Userinfo',
    ],
    ...['X-Credential-Identifier', 'X-Anonymous-Consumer', '$WSRU', 'SM_USER', 'OAM_REMOTE_USER', 'IV-User'],
    ...['X-MS-Client-Principal-Name', 'X-Goog-Authenticated-User-Email', 'X-Amzn-Oidc-Identity'],
    // Certificates: RFC 9440, nginx, Traefik, WebLogic, AWS, App Service, Jetty.
    ...['Client-Cert', 'Client-Cert-Chain', 'X-Client-Cert', 'X-SSL-Client-Verify', 'SSL-Client-Cert'],
    ...[
      'X-Forwarded-Tls-Client-Cert',
      'X-Forwarded-Client-Cert',
      'WL-Proxy-Client-Cert',
      'X-Amzn-Mtls-Clientcert',
    ],
    ...['X-ARR-ClientCert', 'Proxy-auth-cert'],
    // httpoxy, and Rack::Sendfile.
    ...['Proxy', 'X-Sendfile-Type', 'X-Accel-Mapping'],
  ])('%s', async name => {
    const spellings = [name, name.replaceAll('-', '_'), name.replaceAll('-', '.'), name.replaceAll('-', '~')]
    for (const spelling of [...spellings, ...spellings]) {
      expect(
        await headersAtOrigin([
          [spelling, 'forged'],
          [spelling, 'again'],
        ]),
      ).toEqual(OWN)
      const anonymous = await headersAtOrigin({ [spelling]: 'forged' }, {}, { address: '192.0.2.1' })
      expect(Object.values(anonymous)).not.toContain('forged')
    }
  })

  it('also if its name is too long to be remembered', async () => {
    expect(await headersAtOrigin({ [`x_consumer_${'x'.repeat(99)}`]: 'forged' })).toEqual(OWN)
  })

  it('also after more names than are remembered', async () => {
    for (let i = 0; i < 3000; i += 100) {
      const made = Array.from({ length: 100 }, (_, j) => [`x-made-up-${i + j}`, 'a'] as [string, string])
      expect(await headersAtOrigin([...made, ['X_Real_IP', 'forged']])).toEqual({
        ...OWN,
        ...Object.fromEntries(made),
      })
    }
  })

  it('also if Connection names the one of the gateway', async () => {
    const connection = `close, ${Object.keys(OWN).join(', ')}, X_Consumer_Id`
    expect(await headersAtOrigin({ connection, 'x-consumer-id': 'admin' })).toEqual(OWN)
  })
})

it.each<[string, Record<string, string>]>([
  ['those of the protocol', { 'content-length': '0', 'content-type': 'a/b', 'cache-control': 'no-cache' }],
  ['those of proxies that name no client', { via: '1.1 a', 'cdn-loop': 'cloudflare', 'max-forwards': '3' }],
  ['those of Cloudflare', { 'cf-ray': 'a-FRA', 'cf-ipcountry': 'DE', 'cf-visitor': '{"scheme":"https"}' }],
  ['those of traces', { traceparent: '00-a-b-01', 'x-amzn-trace-id': 'Root=1', 'x-b3-traceid': 'a' }],
  [
    'those of applications',
    { 'x-user-id': '7', 'x-auth-token': 'a', 'x-original-filename': 'a', x_under: '1' },
  ],
  ['assertions with a signature', { 'x-amzn-oidc-data': 'a.b.c', 'x-goog-iap-jwt-assertion': 'a.b.c' }],
])('other headers stay: %s', async (_, headers) => {
  expect(await headersAtOrigin(headers)).toEqual({ ...OWN, ...headers })
})

it('a header that frames the message, or is for one hop, is removed in other spellings, too', async () => {
  const headers = {
    Content_Length: '9',
    Sec_WebSocket_Protocol: 'sluice-key.slk_acme_secret',
    Transfer_Encoding: 'chunked',
    Proxy_Authorization: 'Basic a',
    'keep.alive': '1',
  }
  expect(await headersAtOrigin({ ...headers, 'content-length': '0' })).toEqual({
    ...OWN,
    'content-length': '0',
  })
})

describe('a credential for the gateway', () => {
  const KEY = 'slk_acme_secret'
  const issuer = jwt({
    jwks: 'https://issuer.example/jwks',
    algorithms: ['RS256'],
    issuer: 'https://issuer.example/',
    audience: 'api',
    header: 'X_Partner_Token',
  })
  const settings: CredentialsInput = { opaqueKeys: { header: 'X-Partner-Key' }, jwt: { issuer } }

  it('does not reach the origin, in any spelling', async () => {
    for (const name of [
      'X-API-Key',
      'X_Api_Key',
      'x.api.key',
      'X-Partner-Key',
      'X_Partner_Key',
      'X-Partner-Token',
    ])
      expect(await headersAtOrigin({ [name]: KEY }, settings)).toEqual(OWN)
  })

  it('does not reach the origin if Connection names its header', async () => {
    const headers = { connection: 'cookie, authorization, x-api-key', 'x-api-key': KEY, x_api_key: KEY }
    const others = { cookie: 'a=1', authorization: `Bearer ${KEY}` }
    expect(await headersAtOrigin({ ...headers, ...others })).toEqual(OWN)
  })

  it.each([
    [`sluice-key.${KEY}, chat`, 'chat'],
    [`chat,sluice-key.${KEY},  superchat`, 'chat, superchat'],
    [`${KEY}, chat`, 'chat'],
    [`sluice-key.${KEY}`, undefined],
    ['chat,superchat', 'chat,superchat'],
  ])('does not reach the origin as a subprotocol of a WebSocket: %s', async (protocols, rest) => {
    const { 'sec-websocket-protocol': received } = await headersAtOrigin({
      'sec-websocket-protocol': protocols,
    })
    expect(received).toBe(rest)
  })

  it('reaches the origin with `forward`, in the spelling of the config only', async () => {
    const forward = { ...settings, forward: true }
    const sent = {
      'x-api-key': KEY,
      'x-partner-key': 'a',
      x_partner_token: 'b',
      'sec-websocket-protocol': KEY,
    }
    const others = { x_api_key: 'other', x_partner_key: 'other', 'x-partner-token': 'other' }
    expect(await headersAtOrigin({ ...sent, ...others }, forward)).toEqual({ ...OWN, ...sent })
  })

  it('reaches the origin with `forward`, even if other proxies name users in its header', async () => {
    const forward = { opaqueKeys: { header: 'X-Remote-Key' }, forward: true }
    expect(await headersAtOrigin({ 'x-remote-key': 'a' }, forward)).toEqual({ ...OWN, 'x-remote-key': 'a' })
  })
})

// In CPU time, which other processes do not change. With quadratic time, it took half a minute.
it('many headers that Connection names take linear time', async () => {
  const names = Array.from({ length: 10_000 }, (_, i) => `x-own-${i}`)
  const lines = names.map((name): [string, string] => [name, '1'])
  const before = process.cpuUsage()
  const origin = await headersAtOrigin([
    ['connection', 'x-no-0000, '.repeat(500_000) + names.slice(1)],
    ...lines,
  ])
  expect(origin).toEqual({ ...OWN, 'x-own-0': '1' })
  expect(process.cpuUsage(before).user).toBeLessThan(5e6)
})
