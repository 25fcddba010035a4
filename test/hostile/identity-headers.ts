/** Headers by which an origin recognizes a caller or its address, and odd spellings of them. */

/** The client's own value of these never reaches the origin. */
export const IDENTITY_HEADERS = [
  ...[
    'X-Consumer-Id',
    'X-Consumer-Plan',
    'X-Consumer-Mode',
    'X-Consumer-Username',
    'X-Request-Id',
    'Sluice-Degraded',
  ],
  ...[
    'X-Forwarded-For',
    'X-Forwarded-Host',
    'X-Forwarded-Proto',
    'X-Forwarded-Port',
    'X-Forwarded-Prefix',
    'X-Forwarded-Server',
  ],
  ...[
    'Forwarded',
    'Forwarded-For',
    'X-Forwarded',
    'X-Original-Forwarded-For',
    'X-Real-IP',
    'X-Client-IP',
    'Client-IP',
  ],
  ...[
    'X-Cluster-Client-IP',
    'True-Client-IP',
    'Fastly-Client-IP',
    'Fly-Client-IP',
    'CF-Connecting-IP',
    'CF-Connecting-IPv6',
  ],
  ...[
    'X-Remote-IP',
    'X-Remote-Addr',
    'X-Originating-IP',
    'X-Envoy-External-Address',
    'Proxy-Client-IP',
    'WL-Proxy-Client-IP',
  ],
  ...['X-Host', 'X-Original-Host', 'X-Original-URL', 'X-Original-URI', 'X-Rewrite-URL'],
] as const

/** Lines with one name in odd forms. `evil` marks the value of the client. */
export const SPELLINGS: Readonly<Record<string, (name: string) => string>> = {
  'as it is': name => `${name}: evil`,
  'in lower case': name => `${name.toLowerCase()}: evil`,
  'in upper case': name => `${name.toUpperCase()}: evil`,
  'with underscores': name => `${name.replaceAll('-', '_')}: evil`,
  'with one underscore': name => `${name.replace('-', '_')}: evil`,
  'with dots': name => `${name.replaceAll('-', '.')}: evil`,
  twice: name => `${name}: evil\r\n${name}: evil`,
  'twice, once with underscores': name => `${name}: evil\r\n${name.replaceAll('-', '_')}: evil`,
  'in a folded line': name => `${name}:\r\n evil`,
  'with a space before the colon': name => `${name} : evil`,
  'with a tab before the value': name => `${name}:\tevil`,
  'named by Connection': name => `Connection: ${name}\r\n${name}: evil`,
  'named by Connection with underscores': name => `Connection: ${name.replaceAll('-', '_')}\r\n${name}: evil`,
  'in the line of another header': name => `X-Other: a\n${name}: evil`,
  'behind a bare CR': name => `X-Other: a\r${name}: evil`,
}
