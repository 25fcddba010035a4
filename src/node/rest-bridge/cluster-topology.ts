/**
 * Which node of a Redis Cluster owns which slot, with a connection to each of them.
 *
 * The slot map is read by CLUSTER SLOTS and updated by redirections (MOVED). Nothing waits for a node that is down.
 * createCluster of node-redis 6.3 does not fit: it splits a DEL or MGET with keys of several slots into several commands, its connect()
 * waits until every node is connected, and it does not find the successor of a node that it has never reached.
 */
import type { ConnectionOptions } from 'node:tls'
import { SLOTS } from './key-slot.ts'
import { RedisServer, RedisUnavailable, type Reply, withDeadline } from './redis-server.ts'

/** Between two background refreshes of the slot map: otherwise each command that fails on a lost node would start one. */
const REFRESH_PAUSE_MS = 200

export class ClusterTopology {
  /** The nodes that the user named. The first slot map comes from them, and later ones if no other node answers. */
  readonly #seeds: readonly RedisServer[]
  readonly #url: string
  readonly #tls: ConnectionOptions | undefined
  readonly #deadlineMs: number
  /** By address, `host:port`. */
  readonly #nodes = new Map<string, RedisServer>()
  /** By slot; undefined where no node serves it. */
  #owners: (RedisServer | undefined)[] = []
  #masters: RedisServer[] = []
  #refreshing: Promise<void> | undefined
  #refreshedAt = 0
  #refreshes = 0
  #isClosed = false

  /**
   * @param url of a seed. Its user and password are used for every node
   * @param tls for every node, if the URL is `rediss://`
   */
  constructor(seeds: readonly RedisServer[], url: string, deadlineMs: number, tls?: ConnectionOptions) {
    this.#seeds = seeds
    this.#url = url
    this.#tls = tls
    this.#deadlineMs = deadlineMs
  }

  /** In the order of their slots. */
  get masters(): readonly RedisServer[] {
    return this.#masters.length > 0 ? this.#masters : this.#seeds
  }

  /**
   * The owner of the slot. If there is no slot, or no owner: any node, which answers with CLUSTERDOWN if the slot has no owner. That is the
   * same node while it is connected, so that a script without keys and its EVALSHA go to the same node.
   */
  nodeFor(slot: number | undefined): RedisServer {
    const owner = slot === undefined ? undefined : this.#owners[slot]
    return owner ?? this.masters.find(({ isReady }) => isReady) ?? this.masters[0]!
  }

  /**
   * The node to which `teller` redirects. Undefined if the address is not a node of the cluster: a script can return any error, such as
   * `MOVED 0 elsewhere:6379`, and the password must only be sent to nodes of the cluster.
   */
  async nodeAt(address: string, teller: RedisServer): Promise<RedisServer | undefined> {
    if (address.startsWith(':')) return await this.nodeAt(teller.host + address, teller)
    const known = this.#nodes.get(address)
    if (known) return known
    const members = String(await teller.send(['CLUSTER', 'NODES'])).split('\n')
    if (!members.some(member => addressesOf(member).includes(address))) return undefined
    return this.#nodes.get(address) ?? this.#open(address)
  }

  /** Waits for the connections, so that the first commands need not. A node that is down does not make this fail. */
  async attempted(): Promise<void> {
    const attempts = this.masters.map(({ firstAttempt }) => firstAttempt)
    await withDeadline(Promise.all(attempts), this.#deadlineMs).catch(() => {})
  }

  /** One slot has moved. Others probably have too. */
  moved(slot: number, owner: RedisServer): void {
    if (this.#owners[slot] === owner) return
    this.#owners[slot] = owner
    this.refreshSoon()
  }

  /** Reads the slot map again in the background: after a node failed, another may have taken its slots. */
  refreshSoon(): void {
    if (performance.now() - this.#refreshedAt > REFRESH_PAUSE_MS) this.refresh().catch(() => {})
  }

  /** @throws RedisUnavailable when no node answers */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#refresh().finally(() => {
      this.#refreshing = undefined
      this.#refreshedAt = performance.now()
    })
    return this.#refreshing
  }

  /** Closes every connection when its commands in flight are answered, or after the deadline. */
  async leave(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#seeds, ...this.#nodes.values()].map(node => node.leave()))
  }

  close(): void {
    this.#isClosed = true
    for (const node of [...this.#seeds, ...this.#nodes.values()]) node.destroy()
  }

  async #refresh(): Promise<void> {
    const ready = this.#masters.filter(({ isReady }) => isReady)
    // Begins with a different node each time, because a node that is cut off from the cluster answers with an outdated map.
    const first = this.#refreshes++ % (ready.length || 1)
    for (const node of [...ready.slice(first), ...ready.slice(0, first), ...this.#seeds]) {
      try {
        const ranges = await withDeadline(node.send(['CLUSTER', 'SLOTS']), this.#deadlineMs)
        // A node that was removed from the cluster knows no slots.
        if (!this.#seeds.includes(node) && (ranges as Reply[]).length === 0) continue
        this.#adopt(ranges as SlotRange[], node.host)
        return
      } catch {
        // The next one may answer.
      }
    }
    throw new RedisUnavailable('unreachable')
  }

  #adopt(ranges: SlotRange[], askedHost: string): void {
    const inUse = new Set<string>()
    const owners = new Array<RedisServer | undefined>(SLOTS).fill(undefined)
    for (const [from, to, [name, port]] of ranges) {
      const host = String(name ?? '')
      // A node that does not know its own address leaves out the host. It is reached at the host that was asked.
      const address = `${host && host !== '?' ? host : askedHost}:${port}`
      inUse.add(address)
      owners.fill(this.#nodes.get(address) ?? this.#open(address), from, to + 1)
    }
    for (const [address, node] of this.#nodes) {
      if (inUse.has(address)) continue
      this.#nodes.delete(address)
      void node.leave()
    }
    this.#owners = owners
    this.#masters = [...new Set(owners)].filter(owner => owner !== undefined)
  }

  /** With the user, the password and the TLS of the URL that the user gave. */
  #open(address: string): RedisServer {
    // A command that is still being redirected must not open a connection after close().
    if (this.#isClosed) throw new RedisUnavailable('unreachable')
    const at = address.lastIndexOf(':')
    const host = address.slice(0, at)
    const url = new URL(this.#url)
    url.hostname = host.includes(':') ? `[${host}]` : host
    url.port = address.slice(at + 1)
    const node = new RedisServer(url.href, this.#deadlineMs, this.#tls)
    this.#nodes.set(address, node)
    return node
  }
}

type SlotRange = [from: number, to: number, master: [host: Buffer | null, port: number], ...replicas: Reply[]]

/** `<id> 10.0.0.1:6379@16379,a.example <flags> …`: a node goes by its IP address or by its name. */
function addressesOf(member: string): string[] {
  const [endpoint = '', name] = (member.split(' ')[1] ?? '').split(',')
  const address = endpoint.replace(/@\d+$/, '')
  return name ? [address, `${name}${address.slice(address.lastIndexOf(':'))}`] : [address]
}
