/**
 * Where the Redis of an application's own client is: a client of `redis` (createClient, createCluster) or of `ioredis` (Redis, Cluster).
 *
 * Only the address, the credentials and the TLS settings are taken. The store has a connection of its own, because both libraries can send
 * a command again whose reply was lost, so that it spends twice: ioredis by `autoResendUnfulfilledCommands`, and both clients of a cluster
 * when a node has closed the connection. Neither library is imported. Their options are read: ioredis 5 and 6, node-redis 5 and 6.
 */
import type { ConnectionOptions } from 'node:tls'
import { GatewayError } from '../../errors.ts'
import { parseRedisUrl, type RedisTarget } from './redis-url.ts'

/**
 * @param environment whose keys the store accesses. It takes the place of a keyPrefix
 * @throws GatewayError ERR_CONFIG_INVALID for an object that is no such client, and for an option that a connection of Sluice lacks
 */
export function targetOfClient(given: unknown, environment?: string): RedisTarget {
  const client = Object(given)
  const {
    options,
    _options,
    startupNodes,
  }: {
    options?: Options
    _options?: NodeRedisClusterOptions
    startupNodes?: readonly IoNode[]
  } = client
  if ('getSentinelNode' in client) throw unusable('is one of createSentinel', OWN_SENTINEL)
  const all = [options, options?.redisOptions, _options, _options?.defaults, ...(_options?.rootNodes ?? [])]
  for (const options of all) if (options) refuseOptions(options, environment)
  if (startupNodes && options) return targetOfIoCluster(startupNodes, options)
  if (_options?.rootNodes) return targetOfNodeRedisCluster(_options)
  if (options?.sentinels) return targetOfIoSentinels(options)
  if (!options || !('duplicate' in client)) throw new GatewayError('ERR_CONFIG_INVALID', UNKNOWN)
  const place: Place = options.socket ? placeOfNodeRedis(options) : { ...options, database: options.db }
  return { kind: 'server', urls: [urlOf(place)], tls: tlsIn(place) }
}

/** Where one server is, and who connects. */
interface Place {
  host?: string | undefined
  port?: number | string | undefined
  /** Of a socket of this machine. */
  path?: string | null | undefined
  username?: string | null | undefined
  password?: string | null | undefined
  database?: number | undefined
  /** `true`: without settings. */
  tls?: ConnectionOptions | boolean | null | undefined
}

interface IoOptions extends Omit<Place, 'database'> {
  db?: number
  keyPrefix?: unknown
  sentinels?: readonly IoNode[] | null
  /** The name of the master that Sentinels watch. */
  name?: string | null
  role?: string
  sentinelUsername?: string | null
  sentinelPassword?: string | null
  sentinelTLS?: ConnectionOptions
  /** Of a cluster: those of each node. */
  redisOptions?: IoOptions
  natMap?: unknown
  Connector?: unknown
}

type IoNode = string | number | { host?: string; port?: number | string }

interface NodeRedisOptions extends Omit<Place, 'host' | 'port' | 'path' | 'tls'> {
  url?: string
  socket?: Pick<Place, 'host' | 'port' | 'path'> &
    Omit<ConnectionOptions, 'port' | 'path'> & { tls?: boolean }
  credentialsProvider?: object
  keyPrefix?: unknown
}

interface NodeRedisClusterOptions {
  rootNodes?: readonly NodeRedisOptions[]
  defaults?: NodeRedisOptions
  nodeAddressMap?: unknown
  keyPrefix?: unknown
}

type Options = IoOptions & NodeRedisOptions

function targetOfIoCluster(nodes: readonly IoNode[], options: IoOptions): RedisTarget {
  const { redisOptions = {} } = options
  const places = nodes.map(node => ({ ...redisOptions, ...placeOfIoNode(node) }))
  return { kind: 'cluster', urls: places.map(urlOf), tls: tlsIn(redisOptions) }
}

/** A node of ioredis: an URL, a port, or both of its parts. */
function placeOfIoNode(node: IoNode): Place {
  if (typeof node === 'number' || /^\d+$/.test(String(node))) return { host: '127.0.0.1', port: Number(node) }
  return typeof node === 'string' ? placeOfUrl(node) : node
}

function targetOfNodeRedisCluster(options: NodeRedisClusterOptions): RedisTarget {
  const { rootNodes = [], defaults = {} } = options
  const places = rootNodes.map(node => {
    const { socket, ...others } = { ...defaults, ...node }
    return placeOfNodeRedis({ ...others, socket: { ...defaults.socket, ...socket } })
  })
  return { kind: 'cluster', urls: places.map(urlOf), tls: places.map(tlsIn).find(tls => tls) }
}

/** A client of node-redis has read its URL into its socket already; a node of a cluster has not. */
function placeOfNodeRedis({ url, socket = {}, ...options }: NodeRedisOptions): Place {
  const { host, port, path, tls: isTls, ...tls } = socket
  const ofUrl = url === undefined ? {} : placeOfUrl(url)
  const usesTls = isTls ?? ofUrl.tls ?? false
  const given = {
    ...(host !== undefined && { host }),
    ...(port !== undefined && { port }),
    ...(path && { path }),
  }
  return { ...ofUrl, ...withoutMissing(options), ...given, tls: usesTls && tls }
}

function targetOfIoSentinels(options: IoOptions): RedisTarget {
  const { sentinels, name, role, sentinelUsername, sentinelPassword, sentinelTLS } = options
  if (role === 'slave')
    throw unusable("has role: 'slave'", 'Sluice writes. Hand over a client of the master.')
  if (!name) throw unusable('has sentinels without the name of their master')
  const { db, ...node } = options
  return {
    kind: 'sentinel',
    urls: (sentinels ?? []).map(sentinel =>
      urlOf({
        port: 26379,
        ...placeOfIoNode(sentinel),
        username: sentinelUsername,
        password: sentinelPassword,
        tls: sentinelTLS,
      }),
    ),
    master: name,
    tls: tlsIn(node),
    sentinelTls: sentinelTLS,
    urlOf: (host, port) => urlOf({ ...node, path: undefined, host, port, database: db }),
  }
}

function placeOfUrl(text: string): Place {
  const withScheme = /^[a-z][a-z+]*:\/\//i.test(text) ? text : `redis://${text}`
  const { protocol, hostname, port, username, password, pathname } = new URL(withScheme)
  return {
    host: hostname.replace(/^\[(.*)\]$/, '$1'),
    ...(port && { port }),
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(pathname.length > 1 && { database: Number(pathname.slice(1)) }),
    tls: protocol === 'rediss:',
  }
}

function urlOf({ host, port, path, username, password, database, tls }: Place): string {
  const user = username ? encodeURIComponent(username) : ''
  const secret = password ? encodeURIComponent(password) : ''
  if (path) {
    const query = new URLSearchParams({
      ...(username && { username }),
      ...(password && { password }),
      ...(database && { db: String(database) }),
    }).toString()
    return `unix://${encodeURI(path)}${query && `?${query}`}`
  }
  const name = host || '127.0.0.1'
  const authority = `${user || secret ? `${user}:${secret}@` : ''}${name.includes(':') ? `[${name}]` : name}:${port || 6379}`
  const url = `${tls ? 'rediss' : 'redis'}://${authority}${database ? `/${database}` : ''}`
  // Refuses what a URL cannot name, such as a host with a space.
  parseRedisUrl(url)
  return url
}

const tlsIn = ({ tls }: Pick<Place, 'tls'>): ConnectionOptions | undefined =>
  typeof tls === 'object' && tls !== null ? tls : undefined

const withoutMissing = (options: Place): Place =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))

type AnyOptions = Partial<IoOptions & NodeRedisOptions & NodeRedisClusterOptions>

/** Options that change which keys a command has, where it goes, or who sends it. */
function refuseOptions(options: AnyOptions, environment: string | undefined): void {
  const { keyPrefix, credentialsProvider, password, natMap, nodeAddressMap, Connector } = options
  const name = environmentLike(keyPrefix)
  if (name !== undefined && name !== environment)
    throw unusable(`has keyPrefix '${keyPrefix}'`, prefixFix(name))
  // node-redis adds one to each client that has a password.
  if (credentialsProvider && !password) throw unusable('has a credentialsProvider', PASSWORD)
  if (natMap || nodeAddressMap) throw unusable(`has a ${natMap ? 'natMap' : 'nodeAddressMap'}`, NO_MAP)
  if (Connector) throw unusable('has a Connector of its own', URL_INSTEAD)
}

/** The environment that keeps keys apart as the prefix does: `shop` for `Shop:`. Undefined without a prefix. */
const environmentLike = (keyPrefix: unknown) =>
  keyPrefix
    ? String(keyPrefix)
        .toLowerCase()
        .replace(/[^a-z0-9]/g, '')
        .slice(0, 16)
    : undefined

const prefixFix = (name: string) =>
  `Keys that scripts make would not have it. ${name ? `Set environment: '${name}' in the config: then the keys of Sluice begin with sluice:${name}: and this client is taken.` : "Hand over client.duplicate({ keyPrefix: '' })."}`

const PASSWORD =
  'Sluice connects again at any time, with a user and a password. Hand over a client that has them.'
const NO_MAP = 'Sluice reaches each node at the address that the cluster announces (cluster-announce-ip).'
const URL_INSTEAD = 'Set the option to the URL of the Redis.'
const OWN_SENTINEL =
  'It can send a command again that has spent already. Set the option to the Sentinels: redis+sentinel://user:password@host:26379,host:26379/mymaster.'
const UNKNOWN =
  'is neither the URL of a Redis nor a client of node-redis, ioredis or @upstash/redis whose address can be read. Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN, or the option to a URL redis://…'

const unusable = (what: string, fix = URL_INSTEAD) =>
  new GatewayError('ERR_CONFIG_INVALID', `The client ${what}. ${fix}`)
