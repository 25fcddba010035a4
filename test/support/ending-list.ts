/**
 * What every set-up is tested with: the methods, the ways in which the user's code (or the origin) ends a request, and the moments at
 * which a client leaves. This file runs in every runtime, so a Worker of the tests has the same app as a server on Node.
 */
import type { ConfigInput } from '../../src/config/check/schema.ts'

/** The units of each case. */
export const LIMIT = 2

export const AT_ONCE_CONFIG = {
  store: { deadline: '20s', breaker: false },
  log: { perSecond: 0 },
  stats: { keep: false },
  refusals: { rememberFor: 0 },
  credentials: { accept: ['anonymous'] },
  // Each case counts by itself. With a ttl of an hour, no unit becomes free by expiry.
  rules: [{ name: 'at-once', by: 'header:x-case', algorithm: 'concurrency', limit: LIMIT, ttl: '1h' }],
} satisfies ConfigInput

/** OPTIONS without `Access-Control-Request-Method` is an ordinary request, not a preflight. */
export const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS'] as const
export type Method = (typeof METHODS)[number]

/** Whether requests of the tests have a body: `abc`. */
export const hasBody = (method: Method) => method === 'POST' || method === 'PUT' || method === 'DELETE'

/** A body is sent at once. A stream sends its first part at once, and its last one when the test lets it continue. */
interface AppEnd {
  status: number
  body?: string | null
  stream?: 'ends' | 'breaks off'
  throws?: true
  /** The app first reads the body of the request. */
  reads?: true
}

/** What the app does when the test lets it continue. */
export const ENDS = {
  'sends a text': { status: 200, body: 'text' },
  'sends an empty body': { status: 200, body: '' },
  'sends 204': { status: 204, body: null },
  'sends 304': { status: 304, body: null },
  'sends an error': { status: 500, body: 'error' },
  'reads the request and sends a text': { status: 200, body: 'text', reads: true },
  'streams and ends': { status: 200, stream: 'ends' },
  'streams and breaks off': { status: 200, stream: 'breaks off' },
  throws: { status: 500, throws: true },
} as const satisfies Record<string, AppEnd>
export type End = keyof typeof ENDS

export const endOf = (name: End): AppEnd => ENDS[name]

export const FIRST = 'first '
export const LAST = 'last'

/** What an app tells the test about its work, and where the test lets it continue. */
export interface Turns {
  /** The app has begun to work on a request. */
  begin(work: Work): void | Promise<void>
  /** Resolves when the test lets the app continue. After the last turn, the app does no more work. */
  turn(work: Work, isLast: boolean): Promise<void>
  /** The app has noticed that it need not continue. */
  stop(work: Work): void
}

export interface Work {
  /** The name of the case. */
  name: string
  id: string
}

/** The header of each reply of the app. Its value is the method that the app was called with. */
export const APP_HEADER = 'x-app'

/** With other types, the local simulation of Cloudflare's edge may wait to compress the body. */
const BYTES = 'application/octet-stream'

export const pathOf = (end: End) => `/${encodeURIComponent(end)}`

export const endOfPath = (path: string) => decodeURIComponent(path.slice(1)) as End

export class AppError extends Error {
  constructor() {
    super('The app has failed.')
  }
}

/** The app as a function of a request. */
export async function answer(request: Request, turns: Turns): Promise<Response> {
  const { status, body = null, stream, throws, reads } = endOf(endOfPath(new URL(request.url).pathname))
  const work = { name: request.headers.get('x-case')!, id: crypto.randomUUID() }
  await turns.begin(work)
  if (reads) {
    try {
      await request.text()
    } catch (error) {
      turns.stop(work)
      throw error
    }
  }
  await turns.turn(work, !stream)
  if (throws) throw new AppError()
  const headers = { [APP_HEADER]: request.method, 'content-type': BYTES }
  if (!stream) return new Response(body, { status, headers })
  const text = new TextEncoder()
  const parts = new ReadableStream<Uint8Array>({
    start: controller => controller.enqueue(text.encode(FIRST)),
    async pull(controller) {
      await turns.turn(work, true)
      if (stream === 'breaks off') throw new AppError()
      controller.enqueue(text.encode(LAST))
      controller.close()
    },
    cancel: () => turns.stop(work),
  })
  return new Response(parts, { status, headers })
}

/** What a caller does with the units that `acquire` has returned. */
export const UNIT_ENDS = [
  'releases them',
  'releases them twice',
  'disposes of them',
  'releases and disposes of them',
  'throws in their block',
] as const
export type UnitEnd = (typeof UNIT_ENDS)[number]

interface Units {
  allowed: unknown
  release(): unknown
}

/**
 * Acquires all units of a limit, ends them, and acquires them again.
 * @param acquire waits for at most this time (ms)
 * @param dispose does what the end of a `using` block does
 * @returns which of the calls were allowed: a number of units as large as the limit, one more, and again all of them
 */
export async function acquireTwice<U extends Units>(
  end: UnitEnd,
  acquire: (timeoutMs: number) => Promise<U>,
  dispose: (units: U) => unknown,
): Promise<boolean[]> {
  const allowed: boolean[] = []
  async function acquireAll(): Promise<U[]> {
    const all: U[] = []
    for (let i = 0; i < LIMIT; i++) all.push(await acquire(PATIENT_CALLER_MS))
    for (const units of all) allowed.push((await units.allowed) === true)
    return all
  }
  const all = await acquireAll()
  const more = await acquire(1)
  allowed.push((await more.allowed) === true)
  await dispose(more)
  for (const units of all) await endUnits(units, end, dispose)
  for (const units of await acquireAll()) await dispose(units)
  return allowed
}

/** Less than the `ttl` of the limits of the tests, which would free the units, too. */
const PATIENT_CALLER_MS = 10_000

async function endUnits<U extends Units>(
  units: U,
  end: UnitEnd,
  dispose: (units: U) => unknown,
): Promise<void> {
  if (end === 'throws in their block') {
    try {
      try {
        throw new AppError()
      } finally {
        await dispose(units)
      }
    } catch (error) {
      if (!(error instanceof AppError)) throw error
    }
    return
  }
  if (end.startsWith('releases')) await units.release()
  if (end === 'releases them twice') await units.release()
  if (end.endsWith('disposes of them')) await dispose(units)
}
