/** A private Redis Cluster of three masters, and the suites that run on it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { SLOTS } from '../../src/node/rest-bridge/key-slot.ts'
import { type Command, RedisServer, type Reply } from '../../src/node/rest-bridge/redis-server.ts'
import { type Guardian, startGuardian } from '../../src/node/start/guardian.ts'
import { freePort } from './free-port.ts'
import { PATIENT_MS } from './patience.ts'
import { hasRedisServer, STORE_SERVER } from './servers.ts'

/** How long the nodes may take to agree. They usually take about 2 s. */
const AGREE_MS = 25_000

/** Clusters that suites have closed. The next suite of this worker reuses them, because the nodes of a new one take 2 s to agree. */
const idle: TestCluster[] = []

/** Describes a suite that runs on a private cluster. */
export function describeOnCluster(name: string, suite: (start: () => Promise<TestCluster>) => void): void {
  if (hasRedisServer) describe(`${name}, on a Redis Cluster`, () => suite(startOrReuse))
  else
    describe.skip(`${name}, on a Redis Cluster (no redis-server is installed)`, () =>
      suite(TestCluster.start))
}

/** A cluster without data and scripts. */
async function startOrReuse(): Promise<TestCluster> {
  const cluster = idle.pop()
  if (!cluster) return await TestCluster.start()
  await cluster.empty()
  return cluster
}

/** A node with a direct connection. Redirections are not followed. */
export class TestNode {
  readonly port: number
  /** Whether it was killed or frozen. */
  wasDisturbed = false
  /** The port for the other nodes. */
  readonly busPort: number
  readonly #directory: string
  readonly #guardian: Guardian
  #process: ChildProcess | undefined
  #connection: RedisServer | undefined

  constructor(ports: [number, number], directory: string, guardian: Guardian) {
    ;[this.port, this.busPort] = ports
    this.#directory = join(directory, String(this.port))
    this.#guardian = guardian
    mkdirSync(this.#directory)
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`
  }

  /** Starts the node. After a stop, it has its id and slots again. */
  async start(): Promise<void> {
    const settings = {
      bind: '127.0.0.1',
      port: this.port,
      'cluster-enabled': 'yes',
      'cluster-port': this.busPort,
      'cluster-announce-ip': '127.0.0.1',
      'cluster-node-timeout': 1500,
      'cluster-require-full-coverage': 'no',
      'repl-diskless-sync-delay': 0,
      save: '',
      appendonly: 'no',
      dir: this.#directory,
    }
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
    this.#process = spawn(STORE_SERVER, args, { detached: true, stdio: 'ignore' })
    this.#guardian.guard({ group: this.#process.pid! })
    this.#connection = new RedisServer(this.url, PATIENT_MS)
    const exited = once(this.#process, 'exit').then(() => {
      throw new Error(`The node on port ${this.port} did not start. Is the port taken?`)
    })
    await Promise.race([this.#connection.connected, exited])
    exited.catch(() => {})
  }

  async kill(): Promise<void> {
    this.wasDisturbed = true
    this.#connection?.destroy()
    if (!this.#process || this.#process.signalCode || this.#process.exitCode !== null) return
    const exited = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await exited
  }

  freeze(): void {
    this.wasDisturbed = true
    this.#process!.kill('SIGSTOP')
  }

  thaw(): void {
    this.#process!.kill('SIGCONT')
  }

  ask(...command: Command): Promise<Reply> {
    return this.#connection!.send(command)
  }

  async id(): Promise<string> {
    return String(await this.ask('CLUSTER', 'MYID'))
  }
}

export class TestCluster {
  readonly #guardian = startGuardian()
  readonly #directory = mkdtempSync(join(tmpdir(), 'sluice-'))
  readonly nodes: TestNode[] = []

  static async start(): Promise<TestCluster> {
    const cluster = new TestCluster()
    cluster.#guardian.guard({ directory: cluster.#directory })
    await Promise.all([cluster.add(), cluster.add(), cluster.add()])
    const [first, ...others] = cluster.nodes
    await Promise.all(
      cluster.nodes.map((node, i) => {
        const [from, to] = [i, i + 1].map(part => Math.ceil((part * SLOTS) / 3))
        return node.ask('CLUSTER', 'ADDSLOTSRANGE', String(from), String(to! - 1))
      }),
    )
    for (const other of others) await cluster.#introduce(other, first!)
    await cluster.agrees()
    return cluster
  }

  get url(): string {
    return this.nodes[0]!.url
  }

  /** Starts a node that is not a member of the cluster yet. */
  async add(): Promise<TestNode> {
    const ports: [number, number] = [await freePort(), await freePort()]
    const node = new TestNode(ports, this.#directory, this.#guardian)
    this.nodes.push(node)
    await node.start()
    return node
  }

  /** Starts a new member of the cluster, without slots. */
  async join(): Promise<TestNode> {
    const node = await this.add()
    await this.#introduce(node, this.nodes[0]!)
    await this.agrees()
    return node
  }

  /** Waits until every node knows all others and considers every slot served. */
  async agrees(): Promise<void> {
    const wanted = [
      'cluster_state:ok',
      `cluster_slots_ok:${SLOTS}`,
      `cluster_known_nodes:${this.nodes.length}`,
    ]
    const until = Date.now() + AGREE_MS
    for (const node of this.nodes) {
      for (;;) {
        const info = String(await node.ask('CLUSTER', 'INFO')).split('\r\n')
        if (wanted.every(line => info.includes(line))) break
        if (Date.now() > until) throw new Error(`The nodes of the cluster do not agree: ${info.join(', ')}`)
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    }
  }

  /** Makes a node tell clients another port, such as that of a proxy. @param port 0: its own */
  async announce(node: TestNode, port: number): Promise<void> {
    await node.ask('CONFIG', 'SET', 'cluster-announce-port', String(port))
    const until = Date.now() + AGREE_MS
    for (const other of this.nodes)
      while (!String(await other.ask('CLUSTER', 'NODES')).includes(`127.0.0.1:${port || node.port}@`)) {
        if (Date.now() > until) throw new Error('The nodes of the cluster do not learn the port.')
        await new Promise(resolve => setTimeout(resolve, 20))
      }
  }

  /** The owner of a slot, by the slot map of the first node. */
  async ownerOf(slot: number): Promise<TestNode> {
    const ranges = (await this.nodes[0]!.ask('CLUSTER', 'SLOTS')) as [number, number, [Buffer, number]][]
    const range = ranges.find(([from, to]) => from <= slot && slot <= to)
    return this.nodes.find(({ port }) => port === range![2][1])!
  }

  /** Removes all data and scripts. */
  async empty(): Promise<void> {
    for (const node of this.nodes) {
      for (const command of [['FLUSHALL'], ['SCRIPT', 'FLUSH'], ['CONFIG', 'RESETSTAT']] as const)
        await node.ask(...command)
    }
  }

  /** Keeps the cluster for the next suite, unless this one has added, killed or frozen nodes. */
  async close(): Promise<void> {
    if (this.nodes.length === 3 && !this.nodes.some(({ wasDisturbed }) => wasDisturbed)) idle.push(this)
    else await this.end()
  }

  /** Ends the nodes, which another suite could have used. */
  async end(): Promise<void> {
    await Promise.all(this.nodes.map(node => node.kill()))
    await this.#guardian.dismiss()
  }

  #introduce(node: TestNode, other: TestNode): Promise<Reply> {
    return node.ask('CLUSTER', 'MEET', '127.0.0.1', String(other.port), String(other.busPort))
  }
}
