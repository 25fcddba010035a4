/** Clients that leave in the middle of a request: the gateway keeps working, and counts correctly. */
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { armHttp } from '../support/fault-proxy.ts'
import { anonymous, askAs, undisturbed } from './callers.ts'
import type { Lane, Lanes } from './lane.ts'
import { CASE_TIMEOUT_MS } from './matrix.ts'
import { LIMIT, type Mode } from './modes.ts'
import { untilDecided } from './scenario.ts'

const MODE: Mode = 'open'
const GONE = 20

interface Leaving {
  name: string
  /** The lines of the request that the client sends before it leaves. */
  lines: (address: string) => readonly string[]
  /** A fault that keeps the client waiting until it leaves. */
  wait?: (lane: Lane) => { disarm(): Promise<void> }
}

const get = (path: string) => (address: string) => [
  `GET ${path} HTTP/1.1`,
  'Host: a.test',
  `CF-Connecting-IP: ${address}`,
  '',
  '',
]

const LEAVING: readonly Leaving[] = [
  { name: 'in the middle of their headers', lines: address => get(`/${MODE}/x`)(address).slice(0, -1) },
  {
    name: 'in the middle of their upload',
    lines: address => [
      `POST /${MODE}/x HTTP/1.1`,
      ...get('')(address).slice(1, -2),
      'Content-Length: 100000',
      '',
      'x'.repeat(10_000),
    ],
  },
  {
    name: 'while the store is asked',
    lines: get(`/${MODE}/x`),
    wait: ({ store }) =>
      armHttp(
        store,
        request => request.resume(),
        () => true,
      ),
  },
  {
    name: 'while the origin is asked',
    lines: get(`/${MODE}/x`),
    wait: ({ originProxy }) => originProxy.arm({ request: () => {} }, () => true),
  },
  { name: 'while their requests are delayed', lines: get('/held/x') },
  { name: 'before they read the reply', lines: get(`/${MODE}/x`) },
]

export function describeClients(lanes: () => Lanes): void {
  describe(`${GONE} clients that go away at the same time`, {
    concurrent: true,
    timeout: CASE_TIMEOUT_MS,
  }, () => {
    it.each(LEAVING)('$name leave nothing behind', async leaving => {
      await lanes().use(async lane => {
        const fault = leaving.wait?.(lane)
        const address = lane.address()
        await Promise.all(Array.from({ length: GONE }, () => goAway(lane.url, leaving.lines(address))))
        await fault?.disarm()

        const { replies } = await undisturbed(async () => {
          await untilDecided(lane, MODE)
          const caller = anonymous(lane)
          for (let i = 0; i <= LIMIT; i++) await askAs(lane, caller, MODE)
          return caller
        })
        expect(replies.map(({ mark }) => mark)).toEqual(replies.map(() => undefined))
        expect(replies.map(({ status }) => status)).toEqual([...Array(LIMIT).fill(200), 429])
      })
    })
  })
}

/** Sends the lines, waits until the gateway has read them, and closes the connection with a reset. */
async function goAway(url: string, lines: readonly string[]): Promise<void> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {})
  await new Promise(resolve => socket.write(lines.join('\r\n'), resolve))
  await new Promise(resolve => setTimeout(resolve, 30))
  socket.resetAndDestroy()
}
