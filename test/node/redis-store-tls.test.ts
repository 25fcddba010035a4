/** The store over a direct connection with TLS, to one server and to a cluster, and only if the certificate can be verified. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { SLOTS } from '../../src/node/rest-bridge/key-slot.ts'
import { hasOpenssl, makeCertificates, TLS_SETTINGS } from '../support/certificates.ts'
import { environmentWith } from '../support/command-line.ts'
import { freePort } from '../support/free-port.ts'
import { PATIENT } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

const STORE = fileURLToPath(new URL('../../src/node/redis-store/redis-store.ts', import.meta.url))

/** Node reads NODE_EXTRA_CA_CERTS only when a process starts. */
const PROGRAM = `
const { connectRedisStore } = await import(process.argv[1])
const { store, ready, close } = await connectRedisStore({ url: process.argv[2], deadlineMs: 5000 })
const outcome = work => work.then(reply => reply, ({ code, message, fate }) => [code, message, fate])
console.log(JSON.stringify([store.isCluster, await outcome(store.run([{ command: 'GET', key: 'a' }])), await outcome(ready())]))
await close()`

const title = hasRedisServer && hasOpenssl ? '' : ' (needs redis-server and openssl)'

describe.skipIf(title)(`a store over a direct connection with TLS${title}`, () => {
  let redis: RedisProcess
  let node: RedisProcess
  const ports: number[] = []

  beforeAll(async () => {
    ports.push(await freePort(), await freePort())
    const [single, cluster] = ports.map(port => ({ ...TLS_SETTINGS, 'tls-port': String(port) }))
    redis = await startRedisProcess(single, makeCertificates)
    await redis.send('ACL', 'SETUSER', 'app', 'on', '>p@ss:word', '~*', '+@all')
    // One node is a cluster as well. It names itself by its TLS port.
    node = await startRedisProcess(
      {
        ...cluster,
        ...{ 'cluster-enabled': 'yes', 'tls-cluster': 'yes', 'cluster-port': String(await freePort()) },
        ...{ 'cluster-announce-ip': '127.0.0.1', 'cluster-announce-hostname': 'localhost' },
        'cluster-preferred-endpoint-type': 'hostname',
      },
      makeCertificates,
    )
    await node.send('CLUSTER', 'ADDSLOTSRANGE', '0', String(SLOTS - 1))
    await vi.waitUntil(
      async () => String(await node.send('CLUSTER', 'INFO')).includes('cluster_state:ok'),
      PATIENT,
    )
  })
  afterAll(async () => {
    await redis?.close()
    await node?.close()
  })

  async function outcome(url: string, authority?: string, server = redis): Promise<unknown> {
    const env = environmentWith({
      NODE_EXTRA_CA_CERTS: authority && join(server.directory, `${authority}.pem`),
    })
    const args = ['--input-type=module', '-e', PROGRAM, STORE, url]
    const { stdout } = await promisify(execFile)(process.execPath, args, { env })
    return JSON.parse(stdout)
  }

  it('works with a user and a password', async () => {
    const url = `rediss://app:${encodeURIComponent('p@ss:word')}@localhost:${ports[0]}`
    expect(await outcome(url, 'authority')).toEqual([false, [null], null])
  })

  it.each(['rediss', 'rediss+cluster'])('works with a cluster: %s', async scheme => {
    expect(await outcome(`${scheme}://localhost:${ports[1]}`, 'authority', node)).toEqual([
      true,
      [null],
      null,
    ])
  })

  it('refuses an authority that it does not know', async () => {
    expect(await outcome(`rediss://:secret@localhost:${ports[0]}`, 'other-authority')).toEqual([
      false,
      [
        'ERR_STORE_UNREACHABLE',
        expect.stringMatching(/^The store could not be reached \(\w*(CERT|SIGNATURE)\w*\)\.$/),
        'not-sent',
      ],
      [
        'ERR_STORE_UNREACHABLE',
        expect.stringMatching(`^Redis at localhost:${ports[0]} does not answer: [^.]*certificate[^.]*\\.$`),
        'may-have-run',
      ],
    ])
  })
})
