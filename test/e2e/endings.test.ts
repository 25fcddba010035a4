/** The endings of replies through the gateway in workerd. Observing a reply does not change it. */

import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { Ending } from '../../src/limiter/engine-shape.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type EndingOrigin, startEndingOrigin } from '../support/ending-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { startTestWorker, type TestWorker } from '../support/workerd.ts'
import { describeEndings, wholeReply } from './ending-cases.ts'

const STORE_TOKEN = 'a token for tests'
let redis: TestRedis
let bridge: Bridge
beforeAll(async () => {
  redis = await startRedis()
  bridge = await startBridge({ redisUrl: redis.url, token: STORE_TOKEN, port: 0, deadlineMs: PATIENT_MS })
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

const startWorker = (originUrl: string) =>
  startTestWorker('ending-worker.ts', { ORIGIN_URL: originUrl, STORE_URL: bridge.url, STORE_TOKEN })

describeEndings('the gateway', async originUrl => {
  const { url, close } = await startWorker(originUrl)
  const endingsOf = async (name: string) => {
    const endings = (await (await fetch(`${url}/endings`)).json()) as Record<string, Ending[]>
    return endings[name] ?? []
  }
  return { url, endingsOf, close }
})

describe('an observed reply', () => {
  let origin: EndingOrigin
  let worker: TestWorker

  beforeAll(async () => {
    origin = await startEndingOrigin()
    worker = await startWorker(origin.url)
  })
  afterAll(async () => {
    await worker?.close()
    await origin?.close()
  })

  const paths = [
    ...['/whole', '/chunked', '/large', '/large-chunked', '/gzip', '/gzip-chunked', '/unknown-encoding'],
    ...['/range', '/204', '/304', '/empty', '/empty-chunked', '/early-hints', '/error', '/no-reply'],
  ]
  it.each(paths.flatMap(path => [`GET ${path}`, `HEAD ${path}`]))(
    'has the same headers and bytes as an unobserved one: %s',
    async line => {
      const [method, path] = line.split(' ') as [string, string]
      const headers = { 'accept-encoding': 'gzip' }
      const observed = await wholeReply(worker.url + path, method, headers)
      const unobserved = await wholeReply(worker.url + path, method, { ...headers, 'x-unobserved': 'yes' })
      expect(observed).toEqual(unobserved)
    },
  )

  // workerd does not detect this FIN while the origin is silent.
  it.each([
    ['/silent', 'leaves with a FIN'],
    ['/silent-fixed', 'leaves with a FIN'],
    ['/silent', 'stays'],
    ['/silent-fixed', 'stays'],
  ])(
    'whose body is silent for longer than idleDeadline is cut off at both ends: %s, the client %s',
    async (path, what) => {
      const name = `idle ${path} ${what}`.replaceAll(' ', '-')
      const { hostname, port } = new URL(worker.url)
      const socket = connect(Number(port), hostname)
      const closed = new Promise(resolve => socket.once('close', resolve).once('error', () => {}))
      socket.write(`GET ${path} HTTP/1.1\r\nHost: a.test\r\nX-Case: ${name}\r\nX-Idle: yes\r\n\r\n`)
      await new Promise((resolve, reject) => socket.once('data', resolve).once('error', reject))
      socket.resume()
      if (what !== 'stays') socket.end()
      await vi.waitUntil(() => origin.cut.has(name), PATIENT_MS)
      await closed
      const endings = (await (await fetch(`${worker.url}/endings`)).json()) as Record<string, Ending[]>
      expect(endings[name]).toEqual(['failed'])
    },
  )

  it('has the same headers as an unobserved one: a WebSocket', async () => {
    const handshake = (header: string) =>
      new Promise<string[]>((resolve, reject) => {
        const { hostname, port } = new URL(worker.url)
        const socket = connect(Number(port), hostname)
        socket.once('error', reject)
        socket.once('data', data => {
          socket.destroy()
          const lines = String(data).split('\r\n')
          resolve(lines.filter(line => !/^x-request-id:/i.test(line)).toSorted())
        })
        socket.write(
          'GET /socket HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
            'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n' +
            `Sec-WebSocket-Protocol: chat.v2\r\n${header}\r\n\r\n`,
        )
      })
    const unobserved = await handshake('X-Unobserved: yes')
    expect(unobserved).toContain('Sec-WebSocket-Protocol: chat.v2')
    expect(await handshake('X-Case: handshake')).toEqual(unobserved)
  })
})
