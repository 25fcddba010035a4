/**
 * A Redis Cluster, used as one Redis. A command goes to the node that owns the slot of its key, also after the slot has moved. Commands
 * about the whole cluster go to every master. A command or transaction with keys of several slots is refused with the error of Redis, and
 * never split. If a node is down, only the commands for its slots fail.
 */
import type { ConnectionOptions } from 'node:tls'
import { ClusterTopology } from './cluster-topology.ts'
import { CommandKeys } from './command-keys.ts'
import type { Departure } from './departure.ts'
import type { FoundRedis } from './found-redis.ts'
import { slotOf } from './key-slot.ts'
import { redirectionOf } from './redirection.ts'
import {
  type Command,
  ErrorReply,
  type Outage,
  type RedisServer,
  RedisUnavailable,
  type Reply,
  withDeadline,
} from './redis-server.ts'
import { isScan, mergeOf } from './whole-cluster.ts'

/** Other clients follow as many. With a consistent slot map, one redirection is enough. */
const MAX_REDIRECTIONS = 16
const FIRST_PAUSE_MS = 10
const MAX_PAUSE_MS = 100

/** Another node may have taken the slots of one that answers like this. */
const HAS_LOST_SLOTS = /^(CLUSTERDOWN|LOADING|MASTERDOWN|READONLY)\b/

type Run<T> = (node: RedisServer) => Promise<T>

export class ClusterConnection implements FoundRedis {
  readonly isCluster = true
  readonly #topology: ClusterTopology
  readonly #keys: CommandKeys
  readonly #deadlineMs: number

  /**
   * @param seeds nodes of the cluster. At least one of them is connected
   * @param url the URL of a seed. Its user, password and TLS setting are used for every node
   * @throws ErrorReply, RedisUnavailable when no seed says what the cluster looks like
   */
  static async connect(
    seeds: readonly RedisServer[],
    url: string,
    deadlineMs: number,
  ): Promise<ClusterConnection> {
    const topology = new ClusterTopology(seeds, url, deadlineMs)
    try {
      await topology.refresh()
      const keys = await readKeys(seeds, deadlineMs)
      await topology.attempted()
      return new ClusterConnection(topology, keys, deadlineMs)
    } catch (error) {
      topology.close()
      throw error
    }
  }

  /**
   * Connects to a cluster that may be down. Then its slot map is read as soon as a node answers. Never rejects.
   * @param tls for every node, if the URL is `rediss://`
   */
  static async open(
    seeds: readonly RedisServer[],
    url: string,
    deadlineMs: number,
    tls?: ConnectionOptions,
  ): Promise<ClusterConnection> {
    const topology = new ClusterTopology(seeds, url, deadlineMs, tls)
    await topology.refresh().catch(() => {})
    // Without them, commands of administration are redirected more often.
    const keys = await readKeys(seeds, deadlineMs).catch(() => new CommandKeys([]))
    await topology.attempted()
    return new ClusterConnection(topology, keys, deadlineMs)
  }

  private constructor(topology: ClusterTopology, keys: CommandKeys, deadlineMs: number) {
    this.#topology = topology
    this.#keys = keys
    this.#deadlineMs = deadlineMs
  }

  async send(command: Command): Promise<Reply> {
    if (isScan(command)) throw refusal(command, 'a cursor belongs to one node')
    const merge = mergeOf(command)
    if (!merge) return await this.#atOwner(this.#slotFor(command), node => node.send(command))
    return merge(await this.#atEveryMaster(node => node.send(command)))
  }

  async dispatch(command: readonly string[], departure: Departure): Promise<Reply> {
    try {
      return await this.#follow(slotOfCall(command), node => node.dispatch(command, departure))
    } catch (error) {
      if (!(error instanceof ErrorReply) || HAS_LOST_SLOTS.test(error.message)) this.#topology.refreshSoon()
      throw error
    }
  }

  async transaction(commands: readonly Command[]): Promise<Reply[]> {
    for (const command of commands) {
      if (mergeOf(command) || isScan(command)) throw refusal(command, 'a transaction runs on one node')
    }
    const slots = new Set(commands.map(command => this.#slotFor(command)).filter(slot => slot !== undefined))
    if (slots.size > 1) throw new ErrorReply("CROSSSLOT Keys in request don't hash to the same slot")
    const [slot] = slots
    return await this.#atOwner(slot, node => node.transaction(commands))
  }

  async outages(): Promise<(Outage | undefined)[]> {
    const outages = await Promise.all(this.#topology.masters.map(master => master.outage()))
    // Another node may have taken its slots.
    if (outages.some(outage => outage)) this.#topology.refreshSoon()
    return outages
  }

  leave(): Promise<void> {
    return this.#topology.leave()
  }

  close(): void {
    this.#topology.close()
  }

  #slotFor(command: Command): number | undefined {
    const key = this.#keys.firstKeyOf(command)
    return key === undefined ? undefined : slotOf(key)
  }

  #atOwner<T>(slot: number | undefined, run: Run<T>): Promise<T> {
    return this.#answered(this.#follow(slot, run))
  }

  /** Runs a command at every master. If one of them fails, the others may have run it. */
  #atEveryMaster<T>(run: Run<T>): Promise<T[]> {
    const giveUpAt = performance.now() + this.#deadlineMs
    return this.#answered(
      Promise.all(this.#topology.masters.map(master => whenConnected(master, giveUpAt, run))),
    )
  }

  /** @throws ErrorReply, RedisUnavailable */
  async #answered<T>(work: Promise<T>): Promise<T> {
    try {
      return await withDeadline(work, this.#deadlineMs)
    } catch (error) {
      const isAnswer = error instanceof ErrorReply
      if (isAnswer ? HAS_LOST_SLOTS.test(error.message) : error instanceof RedisUnavailable)
        this.#topology.refreshSoon()
      throw error
    }
  }

  /**
   * Runs a command at the node that owns the slot. After a redirection the command has not run, so it is sent to the next node. After any
   * other failure it is unknown whether the command ran, so it is not sent again. After the deadline, nothing is sent.
   */
  async #follow<T>(slot: number | undefined, run: Run<T>): Promise<T> {
    const giveUpAt = performance.now() + this.#deadlineMs
    let node = this.#topology.nodeFor(slot)
    let runThere = run
    let redirections = 0
    let pauseMs = FIRST_PAUSE_MS
    for (;;) {
      try {
        return await whenConnected(node, giveUpAt, runThere)
      } catch (error) {
        const redirection = redirectionOf(error)
        if (!redirection) throw error

        if (redirection.kind === 'TRYAGAIN') {
          // The slot is moving, and the keys of the command are at two nodes. Tries again until they are at one.
          if (performance.now() + pauseMs > giveUpAt) throw error
          await new Promise(resolve => setTimeout(resolve, pauseMs))
          pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)
          node = this.#topology.nodeFor(slot)
          runThere = run
          continue
        }
        const next = await this.#topology.nodeAt(redirection.address, node)
        if (!next) throw error
        // The nodes do not agree whose slot it is.
        if (++redirections > MAX_REDIRECTIONS) throw new RedisUnavailable('unreachable')
        if (redirection.kind === 'MOVED') this.#topology.moved(redirection.slot, next)
        runThere = redirection.kind === 'ASK' ? there => there.asking(() => run(there)) : run
        node = next
      }
    }
  }
}

async function readKeys(seeds: readonly RedisServer[], deadlineMs: number): Promise<CommandKeys> {
  const seed = seeds.find(({ isReady }) => isReady) ?? seeds[0]!
  return new CommandKeys(await withDeadline(seed.send(['COMMAND']), deadlineMs).catch(noneIfForbidden))
}

/** Awaits only if the node is connecting, so that commands that arrive together are sent together and in order. */
export async function whenConnected<T>(node: RedisServer, giveUpAt: number, run: Run<T>): Promise<T> {
  if (node.isConnecting) await node.firstAttempt
  if (performance.now() > giveUpAt) throw new RedisUnavailable('timeout')
  return await run(node)
}

/** The slot of a script, or of a command that begins with its key. */
function slotOfCall([name, first, count, key]: readonly string[]): number | undefined {
  const found = name === 'EVALSHA' || name === 'EVAL' ? Number(count) > 0 && key : first
  return found ? slotOf(found) : undefined
}

function refusal(command: Command, why: string): ErrorReply {
  return new ErrorReply(
    `ERR '${String(command[0]).toLowerCase()}' is not available on a Redis Cluster: ${why}`,
  )
}

/** If COMMAND is forbidden, there are no descriptions of commands. Each command is then sent to any node, which redirects it. */
function noneIfForbidden(error: unknown): Reply {
  if (error instanceof ErrorReply) return []
  throw error
}
