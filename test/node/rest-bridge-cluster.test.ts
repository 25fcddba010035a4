/** The bridge in front of a Redis Cluster: its clients see one Redis, whatever the nodes do. */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { Redis } from '@upstash/redis'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { CommandKeys } from '../../src/node/rest-bridge/command-keys.ts'
import { SLOTS, slotOf } from '../../src/node/rest-bridge/key-slot.ts'
import type { Reply } from '../../src/node/rest-bridge/redis-server.ts'
import { describeOnCluster, type TestCluster, type TestNode } from '../support/cluster.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { PASSWORD, SET_USER_OF_CLUSTER } from '../support/redis-user.ts'

const SLUICE = fileURLToPath(new URL('../../src/node/cli/sluice.ts', import.meta.url))
const TOKEN = 'a token for tests'
const POLL = { timeout: 20_000, interval: 20 }

/** A hash tag for each of the first three nodes, which own a third of the slots each. */
const [A, B, C] = [0, 1, 2].map(third => {
  const tags = Array.from({ length: 100 }, (_, i) => `{t${i}}`)
  return tags.find(tag => Math.floor((slotOf(tag) * 3) / SLOTS) === third)!
}) as [string, string, string]

const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')

describeOnCluster('the bridge', start => {
  let cluster: TestCluster
  let bridge: Bridge

  beforeAll(async () => {
    cluster = await start()
    bridge = await startBridge({ redisUrl: cluster.url, token: TOKEN, port: 0 })
  })
  afterAll(async () => {
    await bridge?.close()
    await cluster?.close()
  })
  beforeEach(async () => {
    await client().flushall()
  })

  const client = (options = {}) => new Redis({ url: bridge.url, token: TOKEN, ...options })
  /** Sends a request without a client library, and returns the reply as received. */
  const ask = async (body: unknown, path = '/', at = bridge) => {
    const headers = { authorization: `Bearer ${TOKEN}` }
    const response = await fetch(at.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    // biome-ignore lint/suspicious/noExplicitAny: whatever came
    return { status: response.status, body: (await response.json()) as any }
  }
  const statusOf = (...command: string[]) => ask(command).then(({ status }) => status)

  it('reports at its start that it has found a cluster', async () => {
    expect(bridge.isCluster).toBe(true)
    const args = ['bridge', '--redis', cluster.url, '--token', TOKEN, '--port', '0']
    const child = spawn(process.execPath, [SLUICE, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
    const [output] = await once(child.stdout, 'data')
    child.kill()
    expect(String(output)).toMatch(
      /^The bridge is ready on http:\/\/127\.0\.0\.1:\d+, in front of a cluster\n$/,
    )
  })

  it.each([
    ['with default options (auto-pipelining, base64)', {}],
    [
      'without auto-pipelining, base64 and deserialization',
      { enableAutoPipelining: false, responseEncoding: false, automaticDeserialization: false },
    ],
  ])('serves keys of every slot to @upstash/redis %s', async (_, options) => {
    const upstash = client(options)
    const names = Array.from({ length: 60 }, (_, i) => `key:${i}`)
    await Promise.all(names.map(name => upstash.set(name, `value of ${name}`)))
    expect(await Promise.all(names.map(name => upstash.get(name)))).toEqual(
      names.map(name => `value of ${name}`),
    )
    for (const node of cluster.nodes) expect(Number(await node.ask('DBSIZE'))).toBeGreaterThan(0)
  })

  it('answers a pipeline in order, whichever node answers first', async () => {
    const pipeline = client().pipeline()
    pipeline
      .set(`${A}n`, 1)
      .set(`${B}n`, 2)
      .incr(`${A}n`)
      .lpush(`${C}n`, 'x')
      .incr(`${C}n`)
      .get(`${B}n`)
      .incr(`${A}n`)
    const answers = await pipeline.exec({ keepErrors: true })
    expect(answers.map(({ result, error }) => result ?? error)).toEqual([
      'OK',
      'OK',
      2,
      1,
      expect.stringContaining('WRONGTYPE'),
      2,
      3,
    ])
  })

  it('sends all commands of a pipeline at once, without waiting for answers', async () => {
    const [frozen, other] = await nodesOf(A, B)
    frozen.freeze()
    const answers = ask(
      [
        ['SET', `${A}x`, '1'],
        ['SET', `${B}x`, '2'],
      ],
      '/pipeline',
    )
    await expect.poll(() => other.ask('GET', `${B}x`).then(String), POLL).toBe('2')
    frozen.thaw()
    expect((await answers).body).toEqual([{ result: 'OK' }, { result: 'OK' }])
  })

  describe('agrees with Redis about', () => {
    it('the slot of a key', async () => {
      const { int, pick } = randomFrom(SEED)
      const names = [
        '',
        '{}',
        '{}x',
        'a{}{b}',
        'a{b',
        'a}{b}',
        '{{a}}',
        'a{b}{c}',
        'ünï{cödé}🚦',
        '123456789',
      ]
      const bytes = Array.from({ length: 200 }, () => {
        const alphabet = [0x7b, 0x7d, int(0, 255), int(0, 255)]
        return Buffer.from(Array.from({ length: 8 }, () => pick(alphabet)))
      })
      const node = cluster.nodes[0]!
      for (const key of [...names, ...bytes]) {
        expect([key, slotOf(key)]).toEqual([key, await node.ask('CLUSTER', 'KEYSLOT', key)])
      }
    })

    const COMMANDS = [
      'GET k',
      'set k v',
      'MSET k v l w',
      'DEL k l',
      'EVAL source 2 k l argument',
      'evalsha sha 1 k',
      'EVALSHA_RO sha 1 k',
      'FCALL function 1 k',
      'ZUNION 2 k l WITHSCORES',
      'ZUNIONSTORE target 2 k l',
      'LMPOP 2 k l LEFT',
      'BITOP AND target k l',
      'OBJECT ENCODING k',
      'object encoding k',
      'MEMORY USAGE k',
      'XGROUP CREATE k group 0',
      'XREAD COUNT 2 streams k l 0 0',
      'XREADGROUP GROUP g c STREAMS k >',
      'SORT k BY pattern STORE target',
      'GEOSEARCHSTORE target k FROMMEMBER m BYRADIUS 1 m',
    ].map(text => text.split(' '))

    it('the first key of a command', async () => {
      const node = cluster.nodes[0]!
      const keys = new CommandKeys(await node.ask('COMMAND'))
      for (const command of COMMANDS) {
        const all = (await node.ask('COMMAND', 'GETKEYS', ...command)) as Buffer[]
        expect([command, keys.firstKeyOf(command)]).toEqual([command, String(all[0])])
      }
      for (const command of [
        'PING',
        'EVAL source 0',
        'EVAL source',
        'XREAD COUNT 1',
        'NOSUCH k',
        'OBJECT HELP',
      ]) {
        expect([command, keys.firstKeyOf(command.split(' '))]).toEqual([command, undefined])
      }
    })

    it('the first key of most commands and of scripts, even if the server describes less (Redis 6)', async () => {
      const descriptions = (await cluster.nodes[0]!.ask('COMMAND')) as Reply[][]
      const keys = new CommandKeys(descriptions.map(description => description.slice(0, 7)))
      const found = COMMANDS.filter(command => keys.firstKeyOf(command) !== undefined).map(([name]) => name)
      expect(found).toEqual(expect.arrayContaining(['GET', 'EVAL', 'evalsha', 'ZUNIONSTORE', 'SORT']))
      expect(new CommandKeys([]).firstKeyOf(['GET', 'k'])).toBeUndefined()
    })
  })

  it('finds the keys at any position of a command', async () => {
    for (const tag of [A, B, C]) {
      const [k, l] = [`${tag}k`, `${tag}l`]
      const results = []
      for (const command of [
        ['ZADD', k, '1', 'one'],
        ['ZADD', l, '2', 'two'],
        ['ZUNION', '2', k, l],
        ['ZUNIONSTORE', `${tag}both`, '2', k, l],
        ['OBJECT', 'ENCODING', k],
        ['XADD', `${tag}s`, '1-1', 'field', 'value'],
        ['XREAD', 'COUNT', '1', 'streams', `${tag}s`, '0'],
        ['BITOP', 'NOT', `${tag}not`, `${tag}none`],
        ['EVAL_RO', 'return KEYS[1]', '1', k],
      ]) {
        results.push((await ask(command)).body.result)
      }
      const entry = [[`${tag}s`, [['1-1', ['field', 'value']]]]]
      expect(results).toEqual([1, 1, ['one', 'two'], 2, 'listpack', '1-1', entry, 0, k])
    }
  })

  describe('scripts', () => {
    const source = "return {KEYS[1], KEYS[2], redis.call('INCR', KEYS[1])}"

    it('run by their SHA-1 on a node that has them, and other nodes answer NOSCRIPT', async () => {
      await client().scriptFlush()
      const upstash = client({ enableAutoPipelining: false })
      for (const tag of [A, B, C]) {
        const keys = [`${tag}x`, `${tag}y`]
        await expect(upstash.evalsha(sha1(source), keys, [])).rejects.toThrow('NOSCRIPT')
        expect(await upstash.eval(source, keys, [])).toEqual([...keys, 1])
        expect(await upstash.evalsha(sha1(source), keys, [])).toEqual([...keys, 2])
      }
    })

    it('also run without keys, and can then be run by their SHA-1', async () => {
      const upstash = client()
      const keyless = "return 'no keys'"
      expect(await upstash.eval(keyless, [], [])).toBe('no keys')
      expect(await upstash.evalsha(sha1(keyless), [], [])).toBe('no keys')
    })

    it('are loaded on every node, and exist only if every node has them', async () => {
      const upstash = client()
      await upstash.scriptFlush()
      expect(await upstash.scriptExists(sha1(source))).toEqual([0])
      const [one] = await nodesOf(A)
      await one.ask('SCRIPT', 'LOAD', source)
      expect(await upstash.scriptExists(sha1(source), sha1(source))).toEqual([0, 0])
      expect(await upstash.scriptLoad(source)).toBe(sha1(source))
      expect(await upstash.scriptExists(sha1(source), 'f'.repeat(40))).toEqual([1, 0])
      for (const tag of [A, B, C]) {
        expect(await upstash.evalsha(sha1(source), [`${tag}1`, `${tag}2`], [])).toHaveLength(3)
      }
    })

    it('fail at an undeclared key of another node', async () => {
      const reaching = `return redis.call('INCR', '${B}undeclared')`
      const answer = await ask(['EVAL', reaching, '1', `${A}declared`])
      expect([answer.status, answer.body.error]).toEqual([400, expect.stringMatching(/non local key/)])
    })

    it('cannot make the bridge connect to another server with its password', async () => {
      let visits = 0
      const trap = createServer(socket => {
        visits++
        socket.destroy()
      })
      await once(trap.listen(0, '127.0.0.1'), 'listening')
      try {
        for (const kind of ['MOVED', 'ASK']) {
          const error = `${kind} ${slotOf(A)} 127.0.0.1:${(trap.address() as AddressInfo).port}`
          const answer = await ask(['EVAL', 'return redis.error_reply(ARGV[1])', '1', A, error])
          expect(answer).toEqual({ status: 400, body: { error } })
        }
        expect(visits).toBe(0)
      } finally {
        trap.close()
      }
    })
  })

  describe('keys of several slots', () => {
    it.each([
      ['MSET', ['MSET', `${A}m`, '1', `${B}m`, '2']],
      ['MGET', ['MGET', `${A}m`, `${B}m`]],
      ['DEL', ['DEL', `${A}m`, `${B}m`]],
      ['EVAL', ['EVAL', "return redis.call('SET', KEYS[1], '1')", '2', `${A}m`, `${B}m`]],
    ])('are refused in one command: %s', async (_, command) => {
      expect(await ask(command)).toEqual({
        status: 400,
        body: { error: expect.stringMatching(/^CROSSSLOT /) },
      })
      expect(await client().dbsize()).toBe(0)
    })

    it.each([
      [
        'on several nodes',
        [
          ['SET', `${A}m`, '1'],
          ['SET', `${B}m`, '2'],
        ],
      ],
      [
        'on one node',
        [
          ['SET', `${A}m`, '1'],
          ['SET', sibling(A), '2'],
        ],
      ],
      [
        'in its second command',
        [
          ['SET', `${A}m`, '1'],
          ['MSET', `${A}m`, '2', `${B}m`, '2'],
        ],
      ],
      ['after a command without keys', [['PING'], ['SET', `${A}m`, '1'], ['SET', `${B}m`, '2']]],
    ])('are refused in one transaction, and none of its commands runs: %s', async (_, commands) => {
      expect(await ask(commands, '/multi-exec')).toEqual({
        status: 400,
        body: { error: expect.stringMatching(/^CROSSSLOT /) },
      })
      expect(await client().dbsize()).toBe(0)
    })

    it('are accepted in several transactions, one for each slot', async () => {
      for (const tag of [A, B, C]) {
        const answers = await client()
          .multi()
          .set(`${tag}m`, 5)
          .incr(`${tag}m`)
          .mget(`${tag}m`, `${tag}none`)
          .exec()
        expect(answers).toEqual(['OK', 6, [6, null]])
      }
      const { body } = await ask(
        [
          ['SET', `${A}m`, 'x'],
          ['INCR', `${A}m`],
          ['GET', `${A}m`],
        ],
        '/multi-exec',
      )
      expect(body).toEqual([
        { result: 'OK' },
        { error: expect.stringMatching(/not an integer/) },
        { result: 'x' },
      ])
    })
  })

  describe('a command about the whole cluster', () => {
    it('is sent to every node and gets one answer', async () => {
      const upstash = client()
      const names = Array.from({ length: 30 }, (_, i) => `key:${i}`)
      await Promise.all(names.map(name => upstash.set(name, 1)))
      expect(await upstash.dbsize()).toBe(30)
      expect((await upstash.keys('key:*')).sort()).toEqual([...names].sort())
      expect(names).toContain(await upstash.randomkey())
      await upstash.flushdb()
      expect([await upstash.dbsize(), await upstash.keys('*'), await upstash.randomkey()]).toEqual([
        0,
        [],
        null,
      ])
    })

    it('is refused if the answer would not cover the whole cluster', async () => {
      const refusal = {
        status: 400,
        body: { error: expect.stringMatching(/not available on a Redis Cluster/) },
      }
      expect(await ask(['SCAN', '0'])).toEqual(refusal)
      expect(await ask([['SET', `${A}m`, '1'], ['DBSIZE']], '/multi-exec')).toEqual(refusal)
      expect(await client().dbsize()).toBe(0)
    })
  })

  it('uses its password for every node', async () => {
    const all = (password: string) =>
      Promise.all(cluster.nodes.map(node => node.ask('CONFIG', 'SET', 'requirepass', password)))
    const at = (password: string) => {
      const redisUrl = cluster.url.replace('//', `//:${encodeURIComponent(password)}@`)
      return startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs: 1000 })
    }
    await all('p@ss')
    try {
      const locked = await at('p@ss')
      const commands = [A, B, C].map(tag => ['SET', `${tag}p`, '1'])
      expect((await ask(commands, '/pipeline', locked)).body).toEqual(commands.map(() => ({ result: 'OK' })))
      await locked.close()
      await expect(at('wrong')).rejects.toThrow(
        /^Redis did not answer at 127\.0\.0\.1:\d+: WRONGPASS [^.]*\. Check/,
      )
    } finally {
      await all('')
    }
  })

  it('works as the Redis user of docs/deploy.md, also for a slot that is moving', async () => {
    const send = (command: string) => Promise.all(cluster.nodes.map(node => node.ask(...command.split(' '))))
    await send(SET_USER_OF_CLUSTER)
    await send('ACL LOG RESET')
    const redisUrl = cluster.url.replace('//', `//sluice:${PASSWORD}@`)
    const asUser = await startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
    const slot = String(slotOf(A))
    const [source, target] = await nodesOf(A, B)
    try {
      const commands = [A, B, C].map(tag => ['SET', `sluice:${tag}`, '1'])
      expect((await ask(commands, '/pipeline', asUser)).body).toEqual(commands.map(() => ({ result: 'OK' })))
      await target.ask('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await source.id())
      await source.ask('CLUSTER', 'SETSLOT', slot, 'MIGRATING', await target.id())
      // The key is not at the source, which redirects by ASK.
      expect((await ask(['GET', `sluice:${A}moving`], '/', asUser)).body).toEqual({ result: null })
      const denied = (await send('ACL LOG')).flat(2).map(String)
      const objects = denied.filter((_, i) => denied[i - 1] === 'object')
      expect(objects.filter(name => /^(cluster|command|asking)/.test(name))).toEqual([])
    } finally {
      await Promise.all([source, target].map(node => node.ask('CLUSTER', 'SETSLOT', slot, 'STABLE')))
      await asUser.close()
      await send('ACL DELUSER sluice')
    }
  })

  it('follows a slot that moves to a new node, without errors for its clients', async () => {
    const slot = slotOf(A)
    const [source] = await nodesOf(A)
    const target = await cluster.join()
    await Promise.all([ask(['SET', `${A}old`, '1']), ask(['SET', `${A}other`, '1'])])
    await target.ask('CLUSTER', 'SETSLOT', String(slot), 'IMPORTING', await source.id())
    await source.ask('CLUSTER', 'SETSLOT', String(slot), 'MIGRATING', await target.id())

    // The old node answers for the keys that it still has, and redirects to the new node (ASK) for others.
    expect((await ask(['INCR', `${A}old`])).body).toEqual({ result: 2 })
    expect((await ask(['SET', `${A}new`, 'n'])).body).toEqual({ result: 'OK' })
    expect((await ask(['GET', `${A}new`])).body).toEqual({ result: 'n' })
    expect(await target.ask('CLUSTER', 'COUNTKEYSINSLOT', String(slot))).toBe(1)
    const counted = [
      ['INCR', `${A}count`],
      ['INCR', `${A}count`],
    ]
    expect((await ask(counted, '/multi-exec')).body).toEqual([{ result: 1 }, { result: 2 }])

    // With one key on each node (TRYAGAIN), the script runs once, after both keys are on the same node.
    const both = "return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])"
    const joint = ask(['EVAL', both, '2', `${A}old`, `${A}count`])
    await expect.poll(() => errorsOf(source, 'TRYAGAIN'), POLL).toBeGreaterThan(0)
    const keys = [`${A}old`, `${A}other`]
    await source.ask('MIGRATE', '127.0.0.1', String(target.port), '', '0', '5000', 'KEYS', ...keys)
    expect((await joint).body).toEqual({ result: 6 })

    for (const node of [target, source, ...cluster.nodes]) {
      await node.ask('CLUSTER', 'SETSLOT', String(slot), 'NODE', await target.id())
    }
    // A transaction and a pipeline are redirected first (MOVED). Later commands go directly to the new node.
    expect((await ask(counted, '/multi-exec')).body).toEqual([{ result: 4 }, { result: 5 }])
    const sequel = [
      ['SET', `${A}old`, '1'],
      ['INCR', `${A}old`],
      ['GET', `${B}none`],
      ['INCR', `${A}old`],
    ]
    expect((await ask(sequel, '/pipeline')).body.map(({ result }: { result: unknown }) => result)).toEqual([
      'OK',
      2,
      null,
      3,
    ])
    const met = await errorsOf(source, 'MOVED')
    for (let i = 0; i < 5; i++) expect((await ask(['GET', `${A}old`])).body).toEqual({ result: '3' })
    expect(await errorsOf(source, 'MOVED')).toBe(met)
  })

  it('answers 503 only for the slots of a node that is down, until it is back', async () => {
    const [gone] = await nodesOf(B)
    await gone.kill()
    await expect.poll(() => statusOf('GET', `${B}k`), POLL).toBe(503)
    expect(await Promise.all([A, C].map(tag => statusOf('SET', `${tag}k`, '1')))).toEqual([200, 200])
    expect(await statusOf('PING')).toBe(200)
    expect(
      (
        await ask(
          [
            ['INCR', `${B}k`],
            ['INCR', `${B}k`],
          ],
          '/multi-exec',
        )
      ).status,
    ).toBe(503)

    const mixed = [
      ['GET', `${A}k`],
      ['GET', `${B}k`],
      ['GET', `${C}k`],
    ]
    const unreachable = { error: 'ERR Redis cannot be reached' }
    expect(await ask(mixed, '/pipeline')).toEqual({
      status: 200,
      body: [{ result: '1' }, unreachable, { result: '1' }],
    })
    expect(await ask([mixed[1]], '/pipeline')).toEqual({ status: 503, body: unreachable })

    // A bridge that starts now finds the other nodes.
    const redisUrl = (await nodesOf(C))[0].url
    const lines: string[] = []
    const late = await startBridge({ redisUrl, token: TOKEN, port: 0, log: line => lines.push(line) })
    const { host } = new URL(gone.url)
    const lost = new RegExp(
      `^Redis at ${host} does not answer: .*\\. Until it is back, the bridge answers commands on its keys with 503\\.$`,
    )
    await expect.poll(() => lines, POLL).toEqual([expect.stringMatching(lost)])
    // The bridge is healthy, so that load balancers still send it commands on the keys of the other nodes.
    expect((await fetch(`${late.url}/health`)).status).toBe(200)
    const answered = await ask(mixed, '/pipeline', late)
    expect(answered.body).toEqual([{ result: '1' }, unreachable, { result: '1' }])

    await gone.start()
    await expect.poll(() => statusOf('SET', `${B}k`, '2'), POLL).toBe(200)
    await expect
      .poll(() => ask(mixed, '/pipeline', late).then(({ body }) => body[1]), POLL)
      .toEqual({ result: '2' })
    await expect.poll(() => lines.at(-1), POLL).toMatch(/^Redis is back after \d+ s\.$/)
    await late.close()
    await cluster.agrees()
  })

  it.each([
    ['is down', (node: TestNode) => node.kill(), (node: TestNode) => node.start(), 503],
    ['hangs', async (node: TestNode) => node.freeze(), async (node: TestNode) => node.thaw(), 504],
  ])('continues with the replica that replaces a node that %s', async (_, fail, heal, status) => {
    const [lost] = await nodesOf(C)
    const replica = await cluster.join()
    await replica.ask('CLUSTER', 'REPLICATE', await lost.id())
    await ask(['SET', `${C}k`, 'kept'])
    await expect.poll(() => replica.ask('DBSIZE'), POLL).toBe(1)

    await fail(lost)
    await expect.poll(() => statusOf('GET', `${C}k`), POLL).toBe(status)
    await replica.ask('CLUSTER', 'FAILOVER', 'TAKEOVER')
    await expect.poll(() => ask(['GET', `${C}k`]), POLL).toEqual({ status: 200, body: { result: 'kept' } })
    await heal(lost)
    await cluster.agrees()
  })

  async function nodesOf<T extends string[]>(...keys: T): Promise<{ [K in keyof T]: TestNode }> {
    const owners = await Promise.all(keys.map(key => cluster.ownerOf(slotOf(key))))
    return owners as { [K in keyof T]: TestNode }
  }

  /** How often the node has answered with this error. */
  async function errorsOf(node: TestNode, code: string): Promise<number> {
    const statistics = String(await node.ask('INFO', 'errorstats'))
    return Number(new RegExp(`errorstat_${code}:count=(\\d+)`).exec(statistics)?.[1] ?? 0)
  }
})

/** A key in another slot of the same node. */
function sibling(tag: string): string {
  const third = (key: string) => Math.floor((slotOf(key) * 3) / SLOTS)
  const names = Array.from({ length: 100 }, (_, i) => `s${i}`)
  return names.find(name => third(name) === third(tag) && slotOf(name) !== slotOf(tag))!
}
