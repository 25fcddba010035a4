/** The bridge while Redis is slow or down, and afterwards: it answers within its deadline, and recovers by itself. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { hasRedisServer, STORE_SERVER } from '../support/servers.ts'

const TOKEN = 'a token for tests'
/** Long enough for a Redis that works on a busy machine. Some tests wait until it is over. */
const DEADLINE_MS = 1000
/** Shorter than the longest pause between two attempts to connect. */
const SHORT_DEADLINE_MS = 300

const PATIENT = { timeout: 30_000, interval: 20 }

const title = hasRedisServer ? 'the bridge' : 'the bridge (no real Redis is installed to freeze and kill)'

describe.skipIf(!hasRedisServer)(title, () => {
  let directory: string
  let socket: string
  let server: ReturnType<typeof spawn>
  let bridge: Bridge
  /** The clock of the bridge, which only tests of /health move. */
  let nowMs: number

  const startServer = () => {
    const args = ['--port', '0', '--unixsocket', socket, '--save', '', '--dir', directory]
    server = spawn(STORE_SERVER, args, { stdio: 'ignore' })
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
  /** Starts a bridge as soon as Redis answers within the deadline. */
  const bridgeTo = async (redisUrl: string, deadlineMs = DEADLINE_MS) =>
    (await vi.waitUntil(
      () =>
        startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs, now: () => nowMs }).catch(() => undefined),
      PATIENT,
    ))!
  const becomes = (status: number) =>
    expect.poll(() => ask(['PING']).then(({ status }) => status), PATIENT).toBe(status)
  const answers = () => becomes(200)
  /** Checks that two commands get their own replies. They are repeated while a busy machine misses the deadline. */
  const repliesBelong = async () => {
    for (const [command, result] of [
      [['SET', 'who', 'me'], 'OK'],
      [['GET', 'who'], 'me'],
    ] as const) {
      const inTime = async () => {
        const reply = await ask([...command])
        return reply.status === 504 ? undefined : reply
      }
      expect(await vi.waitUntil(inTime, PATIENT)).toEqual({ status: 200, body: { result } })
    }
  }

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'sluice-'))
    socket = join(directory, 's')
    nowMs = 0
    startServer()
    bridge = await bridgeTo(`unix://${socket}`)
  })
  afterEach(async () => {
    await bridge.close()
    server.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true, maxRetries: 5 })
  })

  it('answers 504 at its deadline while Redis is frozen, and recovers when Redis thaws', async () => {
    server.kill('SIGSTOP')
    const timers = vi.spyOn(globalThis, 'setTimeout')
    const { status, body } = await ask(['SET', 'late', '1'])
    expect([status, body.error]).toEqual([504, expect.stringContaining('did not answer in time')])
    // Without a deadline there would be no answer. The timer shows that the answer came at the deadline of the bridge.
    expect(timers.mock.calls.map(([, ms]) => ms)).toContain(DEADLINE_MS)
    server.kill('SIGCONT')
    await answers()
    // Each command still gets its own reply.
    await repliesBelong()
  })

  it('answers 503 while Redis is down, and reconnects by itself', async () => {
    server.kill('SIGKILL')
    await becomes(503)
    startServer()
    await answers()
  })

  it('reports without any request that Redis is killed, frozen, or back', async () => {
    const lines: string[] = []
    const watching = await startBridge({
      redisUrl: `unix://${socket}`,
      token: TOKEN,
      port: 0,
      deadlineMs: DEADLINE_MS,
      log: line => lines.push(line),
      pause: () => new Promise(resolve => setTimeout(resolve, 10)),
    })
    const expectLines = (...expected: RegExp[]) =>
      expect.poll(() => lines, PATIENT).toEqual(expected.map(line => expect.stringMatching(line)))
    const [back, lost] = [/^Redis is back after \d+ s\.$/, `Redis at ${socket} does not answer: `]
    try {
      server.kill('SIGKILL')
      const gone = new RegExp(
        `^${lost}.*(closed|ECONN|ENOENT|EPIPE).*\\. Until it is back, the bridge answers every command with 503\\.$`,
      )
      await expectLines(gone)
      startServer()
      await expectLines(gone, back)
      server.kill('SIGSTOP')
      const late = new RegExp(
        `^${lost}no reply within 1 s\\. Until it is back, the bridge answers every command with 504\\.$`,
      )
      await expectLines(gone, back, late)
      server.kill('SIGCONT')
      await expectLines(gone, back, late, back)
    } finally {
      await watching.close()
    }
  })

  it('is healthy while Redis answers, and shows this without a token and without details', async () => {
    const health = async (method = 'GET') => {
      const response = await fetch(`${bridge.url}/health`, { method })
      return [response.status, await response.text()]
    }
    /** Each look is more than a second after the one before: the bridge keeps its answer for a second. */
    const becomes = (...expected: unknown[]) => {
      const look = () => {
        nowMs += 1001
        return health()
      }
      return expect.poll(look, PATIENT).toEqual(expected)
    }
    await becomes(200, '{"status":"ok"}')
    expect(await health('HEAD')).toEqual([200, ''])
    const exited = once(server, 'exit')
    server.kill('SIGKILL')
    await exited
    nowMs += 1000
    expect(await health()).toEqual([200, '{"status":"ok"}'])
    await becomes(503, '{"status":"unavailable"}')
    expect(await health('HEAD')).toEqual([503, ''])
    startServer()
    await becomes(200, '{"status":"ok"}')
  })

  it('never runs commands that arrived while Redis was down', async () => {
    const forwarder = await startForwarder()
    await throughForwarder(
      forwarder,
      async () => {
        await answers()
        forwarder.refuse()
        await becomes(503)
        const late = ['SET', 'late', '1']
        // Waits until the pauses between connection attempts are longer than the deadline.
        await vi.waitUntil(async () => {
          expect((await ask(late)).status).toBe(503)
          expect((await ask([late], '/pipeline')).status).toBe(503)
          expect((await ask([late], '/multi-exec')).status).toBe(503)
          return forwarder.longestPauseMs() > SHORT_DEADLINE_MS
        }, PATIENT)
        forwarder.accept()
        await answers()
        const exists = () => ask(['EXISTS', 'late']).then(({ status, body }) => status === 200 && body)
        expect(await vi.waitUntil(exists, PATIENT)).toEqual({ result: 0 })
      },
      SHORT_DEADLINE_MS,
    )
  })

  it('reconnects if a connection has died without being closed', async () => {
    const forwarder = await startForwarder()
    await throughForwarder(forwarder, async () => {
      await answers()
      // The connection stays open but transfers nothing, as when the other host has lost power.
      forwarder.silence()
      expect((await ask(['PING'])).status).toBe(504)
      await answers()
      await repliesBelong()
    })
  })

  /** Runs a test with a bridge that reaches Redis through the forwarder. */
  async function throughForwarder(forwarder: Forwarder, test: () => Promise<void>, deadlineMs?: number) {
    const direct = bridge
    try {
      bridge = await bridgeTo(`redis://127.0.0.1:${forwarder.port}`, deadlineMs)
      await test()
    } finally {
      if (bridge !== direct) await bridge.close()
      bridge = direct
      forwarder.close()
    }
  }

  type Forwarder = Awaited<ReturnType<typeof startForwarder>>

  /** Starts a forwarder that connects to Redis. It can close connections, or silently drop their bytes. */
  async function startForwarder() {
    const alive = new Set<Socket>()
    const attempts: number[] = []
    let isRefusing = false
    const forwarder = createServer(near => {
      if (isRefusing) {
        attempts.push(performance.now())
        near.on('error', () => {}).destroy()
        return
      }
      const far = connect(socket)
      alive.add(near).add(far)
      near.on('data', data => alive.has(near) && far.write(data))
      far.on('data', data => alive.has(near) && near.write(data))
      near.on('error', () => {}).on('close', () => far.destroy())
      far.on('error', () => {}).on('close', () => alive.has(near) && near.destroy())
    })
    await new Promise<void>(resolve => forwarder.listen(0, '127.0.0.1', resolve))
    return {
      port: (forwarder.address() as AddressInfo).port,
      /** Closes all connections, and every new one immediately. */
      refuse: () => {
        isRefusing = true
        for (const each of alive) each.destroy()
      },
      accept: () => {
        isRefusing = false
      },
      /** The longest pause between two refused attempts. */
      longestPauseMs: () => Math.max(0, ...attempts.slice(1).map((at, i) => at - attempts[i]!)),
      /** Existing connections transfer nothing anymore. New ones do. */
      silence: () => alive.clear(),
      close: () => void forwarder.close(),
    }
  }
})
