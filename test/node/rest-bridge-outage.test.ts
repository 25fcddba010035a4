/** The bridge when Redis is slow, gone, and back: it answers in its own time, and needs no help to recover. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { hasRedisServer } from '../support/redis.ts'

const TOKEN = 'a token for tests'
const DEADLINE_MS = 300

const title = hasRedisServer ? 'the bridge' : 'the bridge (no real Redis is installed to freeze and kill)'

describe.skipIf(!hasRedisServer)(title, () => {
  let directory: string
  let socket: string
  let server: ReturnType<typeof spawn>
  let bridge: Bridge

  const startServer = () => {
    const args = ['--port', '0', '--unixsocket', socket, '--save', '', '--dir', directory]
    server = spawn('redis-server', args, { stdio: 'ignore' })
  }
  const ask = async (command: string[] | string[][], path = '/') => {
    const headers = { authorization: `Bearer ${TOKEN}` }
    const response = await fetch(bridge.url + path, {
      method: 'POST',
      headers,
      body: JSON.stringify(command),
    })
    return { status: response.status, body: (await response.json()) as { result?: unknown; error?: string } }
  }
  const answers = () =>
    expect.poll(() => ask(['PING']).then(({ status }) => status), { timeout: 10_000, interval: 20 }).toBe(200)

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'sluice-'))
    socket = join(directory, 's')
    startServer()
    await expect
      .poll(
        () =>
          startBridge({ redisUrl: `unix://${socket}`, token: TOKEN, port: 0, deadlineMs: DEADLINE_MS })
            .then(it => {
              bridge = it
              return true
            })
            .catch(() => false),
        { timeout: 10_000, interval: 20 },
      )
      .toBe(true)
  })
  afterEach(async () => {
    await bridge.close()
    server.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true, maxRetries: 5 })
  })

  it('answers 504 within its deadline while Redis is frozen, and goes on when it thaws', async () => {
    server.kill('SIGSTOP')
    const asked = performance.now()
    const { status, body } = await ask(['SET', 'late', '1'])
    expect([status, body.error]).toEqual([504, expect.stringContaining('did not answer in time')])
    // A bound for a machine that is busy with other suites; without a deadline it would wait for ever.
    expect(performance.now() - asked).toBeLessThan(DEADLINE_MS * 10)
    server.kill('SIGCONT')
    await answers()
    // Replies still go to the questions they belong to.
    await ask(['SET', 'who', 'me'])
    expect((await ask(['GET', 'who'])).body).toEqual({ result: 'me' })
  })

  it('answers 503 while Redis is gone, and reconnects by itself', async () => {
    server.kill('SIGKILL')
    await expect.poll(() => ask(['PING']).then(({ status }) => status), { timeout: 5000 }).toBe(503)
    startServer()
    await answers()
  })

  it('does not do later what it was asked while Redis was gone', async () => {
    server.kill('SIGKILL')
    await expect.poll(() => ask(['PING']).then(({ status }) => status), { timeout: 5000 }).toBe(503)
    const late = ['SET', 'late', '1']
    // Until the pauses between attempts to connect have grown longer than the deadline.
    const until = performance.now() + 1500
    while (performance.now() < until) {
      expect((await ask(late)).status).toBe(503)
      expect((await ask([late], '/pipeline')).status).toBe(503)
      expect((await ask([late], '/multi-exec')).status).toBe(503)
    }
    startServer()
    await answers()
    expect((await ask(['EXISTS', 'late'])).body).toEqual({ result: 0 })
  })

  it('connects anew when a connection has died without a word', async () => {
    const alive = new Set<Socket>()
    const forwarder = createServer(near => {
      const far = connect(socket)
      alive.add(near).add(far)
      near.on('data', data => alive.has(near) && far.write(data))
      far.on('data', data => alive.has(near) && near.write(data))
      near.on('error', () => {}).on('close', () => far.destroy())
      far.on('error', () => {}).on('close', () => alive.has(near) && near.destroy())
    })
    await new Promise<void>(resolve => forwarder.listen(0, '127.0.0.1', resolve))
    const { port } = forwarder.address() as AddressInfo
    const direct = bridge
    bridge = await startBridge({
      ...{ redisUrl: `redis://127.0.0.1:${port}`, token: TOKEN, port: 0 },
      deadlineMs: DEADLINE_MS,
    })
    try {
      expect((await ask(['PING'])).status).toBe(200)
      // Nobody closes it, and nothing passes any more, as when the other host has lost its power.
      alive.clear()
      expect((await ask(['PING'])).status).toBe(504)
      await answers()
      expect((await ask(['SET', 'who', 'me'])).body).toEqual({ result: 'OK' })
      expect((await ask(['GET', 'who'])).body).toEqual({ result: 'me' })
    } finally {
      await bridge.close()
      bridge = direct
      forwarder.close()
    }
  })
})
