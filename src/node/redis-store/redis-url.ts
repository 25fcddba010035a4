/**
 * The URL of a store that is reached directly:
 *
 *     redis://user:password@host:6379/2                     one Redis or Valkey; if it is a node of a cluster, the cluster
 *     unix:///run/redis.sock?username=…&password=…&db=2     the same, over a socket of this machine
 *     redis+cluster://host:6379,host:6379                   a Redis Cluster, by any of its nodes
 *     redis+sentinel://host:26379,host:26379/mymaster/2     the master that Sentinels watch; name of the master, database
 *
 * `rediss` in place of `redis` uses TLS for every connection, also to Sentinels. The user and the password are those of Redis.
 * `?sentinelUsername=…&sentinelPassword=…` are those of the Sentinels, if they need any.
 */
import type { ConnectionOptions } from 'node:tls'
import { GatewayError } from '../../errors.ts'

export type RedisTarget = {
  /** Certificates and names for `rediss://`, which a URL has no place for. */
  tls?: ConnectionOptions | undefined
} & (
  | { kind: 'server' | 'cluster'; urls: readonly string[] }
  | {
      kind: 'sentinel'
      /** Of the Sentinels. */
      urls: readonly string[]
      sentinelTls?: ConnectionOptions | undefined
      master: string
      /** The URL of a node. @param host an IPv6 address without brackets */
      urlOf(host: string, port: string): string
    }
)

const SEVERAL =
  /^(rediss?)\+(cluster|sentinel):\/\/(?:([^@/?#]*)@)?([^@/?#]+)(?:\/([^/?#]*)(?:\/(\d+))?)?\/?(?:\?([^#]*))?$/

/** @throws GatewayError ERR_CONFIG_INVALID without the URL, which may contain a password */
export function parseRedisUrl(text: string): RedisTarget {
  const [, scheme, kind, credentials, hosts = '', path = '', db, query] = SEVERAL.exec(text.trim()) ?? []
  if (!kind) return { kind: 'server', urls: [serverUrl(text.trim())] }
  if (credentials && isUnescaped(`redis://${credentials}@`)) throw invalidUrl(UNESCAPED)
  const urlAt = (host: string, credentials: string | undefined, db?: string) =>
    serverUrl(`${scheme}://${credentials ? `${credentials}@` : ''}${host}${db ? `/${db}` : ''}`)
  if (kind === 'cluster') {
    if (path || query) throw invalidUrl('A URL redis+cluster:// has no path and no query.')
    return { kind, urls: hosts.split(',').map(host => urlAt(host, credentials)) }
  }
  if (!path) throw invalidUrl('The name of the master is missing: redis+sentinel://host:26379/mymaster')
  const { sentinelUsername = '', sentinelPassword } = Object.fromEntries(new URLSearchParams(query))
  const ofSentinels =
    sentinelPassword && `${encodeURIComponent(sentinelUsername)}:${encodeURIComponent(sentinelPassword)}`
  return {
    kind: 'sentinel',
    urls: hosts.split(',').map(host => urlAt(withPort(host, 26379), ofSentinels)),
    master: decodeURIComponent(path),
    urlOf: (host, port) => urlAt(`${host.includes(':') ? `[${host}]` : host}:${port}`, credentials, db),
  }
}

/** @throws GatewayError ERR_CONFIG_INVALID */
function serverUrl(text: string): string {
  if (isUnescaped(text)) throw invalidUrl(UNESCAPED)
  if (!URL.canParse(text)) throw invalidUrl(FORMS)
  const { protocol, hostname, pathname, searchParams } = new URL(text)
  const isSocket = protocol === 'unix:' && hostname === '' && pathname.length > 1
  if (!isSocket && !(/^rediss?:$/.test(protocol) && hostname !== '')) throw invalidUrl(FORMS)
  if (!/^\d*$/.test(isSocket ? (searchParams.get('db') ?? '') : pathname.slice(1))) throw invalidUrl(DATABASE)
  return text
}

const withPort = (host: string, port: number) => (/:\d+$/.test(host) ? host : `${host}:${port}`)

/** Whether a user or a password has characters that end it in a URL, or a percent sign that encodes none. */
export function isUnescaped(text: string): boolean {
  const [, credentials = ''] = /^rediss?(?:\+\w+)?:\/\/(.*)@/s.exec(text) ?? []
  return /[/?#]|%(?![\da-f]{2})/i.test(credentials)
}

export const UNESCAPED =
  'The user and the password must be percent-encoded: write %25 for %, %23 for #, %2F for / and %3F for ?.'

const DATABASE = 'The database is a number, as in redis://host:6379/2 or unix:///run/redis.sock?db=2.'

const FORMS = 'Use redis://, rediss://, unix:///, redis+cluster:// or redis+sentinel://.'

const invalidUrl = (fix: string) =>
  new GatewayError('ERR_CONFIG_INVALID', `The URL of the store is not valid. ${fix}`)
